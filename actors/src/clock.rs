//! The node's monotonic clock, as core counts time.

use crate::runtime::{Instant, elapsed};
use kvbaton_core::time::Timestamp;

/// Counts from the node's start.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts counting now.
    #[must_use]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Time since the start.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp(u64::try_from(elapsed(self.start).as_nanos()).unwrap_or(u64::MAX))
    }
}
