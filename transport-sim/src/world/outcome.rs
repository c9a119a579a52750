//! What a run came to.

use crate::history::Event;
use crate::oracles::Violation;

/// How to run a plan.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// The planted bug, by name; needs the feature `planted-bugs`.
    pub plant: Option<String>,
}

/// What a run came to.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Hash of all events.
    pub hash: u64,
    /// All events.
    pub events: Vec<Event>,
    /// Virtual time that passed, in nanoseconds.
    pub virtual_ns: u64,
    /// What an oracle found first, if any did; the run ends there.
    pub violation: Option<Violation>,
}
