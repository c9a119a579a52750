//! The lifecycle of a whole engine: what a host engine gives ([`EnginePort`]), what its ranks
//! do ([`RankPort`]), and the handle that operators and the engine use ([`EngineHandle`], or
//! [`Engine`] for hosts that are not asynchronous).
//!
//! An engine with a lifecycle of its own leaves all this out and uses the parts:
//! `prepare_release`, `commit_release`, `cancel_release`, `restore`, `abort_transfers` and
//! `set_weights` of [`crate::node::NodeHandle`].

mod blocking;
mod handle;
mod manager;
pub mod port;
mod rank;

pub use blocking::Engine;
pub use handle::{EngineConfig, EngineError, EngineHandle, EngineStatus};
pub use port::{Asked, EnginePort, Mailbox, RankPort, Told, mailbox};
