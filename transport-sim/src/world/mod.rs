//! Running a plan: engines, clients, faults, until everything has come to its end.

mod chaos;
mod clients;
mod door;
mod ending;
mod engine;
pub mod model;
mod outcome;
pub mod own;
mod process;
mod prompt;
mod run;
mod witness;

pub use outcome::{Outcome, RunOptions};
pub use run::run;
