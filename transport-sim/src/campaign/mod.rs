//! Campaigns: many plans, run in parallel; what they reached, what failed, how a failure
//! looks when it is cut down to what it needs.
//!
//! Nothing here knows a world: a [`Suite`] hands in how plans are made and run. Each run has
//! a thread of its own; results are taken in order, so a campaign says the same whatever the
//! number of jobs.

pub mod alarm;
mod case;
pub mod coverage;
pub mod cycles;
#[cfg(test)]
mod fake;
pub mod ledger;
mod origin;
pub mod page;
mod progress;
pub mod report;
mod seeds;
pub mod shrink;
mod suite;
pub mod sweep;
pub mod words;

pub use case::{NO_PANIC, run_alone};
pub use origin::{Case, Origin, Queue};
pub use progress::Progress;
pub use seeds::Seeds;
pub use suite::{Bug, Run, Scenario, Suite};
