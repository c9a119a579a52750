//! Running a plan.

mod outcome;

pub use outcome::{Outcome, RunOptions};
