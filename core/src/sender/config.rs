//! Bounds of P's side.

use std::time::Duration;

/// Bounds of a [`super::Sender`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SenderConfig {
    /// Writes that may run at once `[P03]`; at least 1.
    pub senders: usize,
    /// Writes that may run at once towards one D rank; at least 1. One that has stopped
    /// reading holds no more slots than these, until `write_timeout` `[P03, Z03]`.
    pub senders_per_peer: usize,
    /// How long finished requests wait for D, and how long a transfer that only D has
    /// named waits for P's engine `[P06]`.
    pub hold_timeout: Duration,
    /// How long a pull may wait when D did not say how long it waits `[P04]`.
    pub pull_timeout: Duration,
    /// P answers this much earlier than D stops waiting, at most a quarter of D's wait `[P04]`.
    pub answer_margin: Duration,
    /// Longest time for one write.
    pub write_timeout: Duration,
    /// Transfers known at once; beyond it P's engine keeps its blocks. Pulls for transfers
    /// that P's engine has not named may fill half of it; beyond that they are refused as
    /// overloaded, so that peers cannot shut the engine out `[Z01]`.
    pub max_transfers: usize,
    /// Requests of pulls that may wait for an answer at once; beyond it they are refused as
    /// overloaded `[Z01]`.
    pub max_waiting: usize,
    /// D ranks that may read one transfer `[Z01]`.
    pub max_readers: usize,
    /// Ended transfers that are remembered, so that whoever comes late is told at once.
    pub max_remembered: usize,
}

impl Default for SenderConfig {
    fn default() -> Self {
        Self {
            senders: 32,
            senders_per_peer: 8,
            hold_timeout: Duration::from_secs(480),
            pull_timeout: Duration::from_secs(480),
            answer_margin: Duration::from_secs(2),
            write_timeout: Duration::from_secs(30),
            max_transfers: 65_536,
            max_waiting: 262_144,
            max_readers: 1_024,
            max_remembered: 16_384,
        }
    }
}

impl SenderConfig {
    /// When P must have answered a pull that came at `now`, D waiting for `timeout`
    /// (zero: D did not say) `[P04]`.
    #[must_use]
    pub(super) fn answer_within(&self, timeout: Duration) -> Duration {
        if timeout.is_zero() {
            return self.pull_timeout;
        }
        let margin = self.answer_margin.min(timeout / 4);
        self.pull_timeout.min(timeout - margin)
    }
}
