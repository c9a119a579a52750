//! Registration, sleep, pause and weight updates, decided without effects.
//!
//! [`Lifecycle`] is one rank's registration; an engine that has a lifecycle of its own uses
//! that part alone. [`engine`] is the lifecycle of a whole engine over all its ranks: it
//! tells the engine and the ranks what to do, in order, and takes back what did not work.

pub mod engine;
mod rank;

pub use rank::{Lifecycle, LifecycleAction, LifecycleError, Names, State};
