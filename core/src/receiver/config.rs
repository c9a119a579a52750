//! Bounds of D's side.

use std::time::Duration;

/// Bounds and properties of a [`super::Receiver`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReceiverConfig {
    /// A load ends within this time, one way or the other `[P04]`. It goes along with the
    /// pull, so that P answers before it.
    pub load_timeout: Duration,
    /// Loads at once; beyond it they are refused.
    pub max_loads: usize,
    /// Engines and echoes remembered; least recently used ones are forgotten `[L08]`.
    pub max_peers: usize,
    /// Whether a revoked grant proves that nothing can land any more (the data plane
    /// checks each write) `[G03]`. Where revoking has to fence whole connections, a failed
    /// or dropped load first waits for every P rank, until its deadline at the latest.
    pub revoke_settles: bool,
    /// Feature bits that go along with pulls to our own P.
    pub features: u64,
    /// How long blocks stay closed to stock loads after a stock P answered that it failed.
    /// They are the engine's again at once: late writes are refused meanwhile. Without an
    /// answer they stay closed for `load_timeout` from the pull, or from P's last answer to
    /// it, which must therefore be longer than a stock P waits for a prefill (480 s) and
    /// then writes.
    pub stock_quarantine: Duration,
}

impl Default for ReceiverConfig {
    fn default() -> Self {
        Self {
            load_timeout: Duration::from_secs(540),
            max_loads: 65_536,
            max_peers: 4_096,
            revoke_settles: true,
            features: 0,
            stock_quarantine: Duration::from_secs(10),
        }
    }
}
