//! A node's own monotonic time, as a number that tests can make up.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds on the node's monotonic clock since the node started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Later than any deadline: "no deadline".
    pub const NEVER: Self = Self(u64::MAX);

    /// `millis` milliseconds after the node's start.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// How long ago `earlier` was; zero when it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_and_subtract_within_their_range() {
        let (at, step) = (Timestamp(10), Duration::from_nanos(4));
        assert_eq!((at + step, at - step), (Timestamp(14), Timestamp(6)));
        assert_eq!(
            (at.since(Timestamp(4)), Timestamp(4).since(at)),
            (step + step / 2, Duration::ZERO)
        );
        assert_eq!((at - Duration::MAX, at + Duration::MAX), (Timestamp(0), Timestamp::NEVER));
        assert_eq!(Timestamp::from_millis(2), Timestamp(2_000_000));
        assert_eq!(Timestamp::from_millis(u64::MAX), Timestamp::NEVER);
    }
}
