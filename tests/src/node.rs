//! Nodes with memory of their own, in this process or in one of theirs.

mod in_process;
mod options;
mod process;

pub use in_process::TestNode;
pub use options::{NodeOptions, Side};
pub use process::{NodeProcess, serve};
