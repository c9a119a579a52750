//! What an engine embeds: [`Node`] on a thread of its own, [`NodeHandle`] for every thread.

pub mod config;
mod handle;
pub mod registration;
mod start;

pub use config::{NodeConfig, Role};
pub use handle::{Load, Node, NodeHandle, NodeStatus};
pub use start::{NodeError, start_actors};
