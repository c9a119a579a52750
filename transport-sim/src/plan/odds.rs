//! What the network does by chance, per message or piece, until the world heals.

use serde::{Deserialize, Serialize};

/// Odds in 1 of 10,000; times in virtual milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Odds {
    /// Shortest time that a message takes.
    pub latency_min_ms: u64,
    /// Longest time, without mishaps.
    pub latency_max_ms: u64,
    /// A control message vanishes.
    pub loss: u32,
    /// A control message comes twice.
    pub duplication: u32,
    /// A control message is held up for up to `delay_ms`, and others overtake it.
    pub reordering: u32,
    /// How long at most.
    pub delay_ms: u64,
    /// A connection breaks when a message is sent on it.
    pub reset: u32,
    /// A write breaks off in its middle; its issuer is told.
    pub write_fails: u32,
    /// A piece of a write is held up for up to `stall_ms`; its issuer may give up before.
    pub write_stalls: u32,
    /// How long at most.
    pub stall_ms: u64,
    /// Largest piece in which a write lands, in bytes.
    pub piece: u64,
    /// Bytes per millisecond of a link.
    pub bandwidth: u64,
    /// Writes through an old registration land in the old pages unseen, as real adapters
    /// let them; otherwise they are refused.
    pub stale_lands: bool,
}

impl Default for Odds {
    fn default() -> Self {
        Self {
            latency_min_ms: 1,
            latency_max_ms: 3,
            loss: 0,
            duplication: 0,
            reordering: 0,
            delay_ms: 0,
            reset: 0,
            write_fails: 0,
            write_stalls: 0,
            stall_ms: 0,
            piece: 512,
            bandwidth: 256,
            stale_lands: false,
        }
    }
}

impl Odds {
    /// Whether nothing goes wrong by chance.
    #[must_use]
    pub const fn is_calm(&self) -> bool {
        self.loss == 0
            && self.duplication == 0
            && self.reordering == 0
            && self.reset == 0
            && self.write_fails == 0
            && self.write_stalls == 0
    }

    /// The same speed, without mishaps.
    #[must_use]
    pub fn calmed(&self) -> Self {
        Self {
            latency_min_ms: self.latency_min_ms,
            latency_max_ms: self.latency_max_ms,
            piece: self.piece,
            bandwidth: self.bandwidth,
            stale_lands: self.stale_lands,
            ..Self::default()
        }
    }
}
