//! Timeouts and table sizes of a world's nodes. All are far below the defaults, so that a
//! run reaches them.

use kvbaton_core::lifecycle::engine;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Bounds of every node of a world. Times in virtual milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// P: how long finished requests wait for D.
    pub hold_ms: u64,
    /// D: how long a load may take.
    pub load_ms: u64,
    /// P: longest time for one write.
    pub write_ms: u64,
    /// P: how much earlier than D it answers.
    pub margin_ms: u64,
    /// P: writes at once.
    pub senders: usize,
    /// P: writes at once towards one D rank.
    pub senders_per_peer: usize,
    /// P: layouts of D ranks kept.
    pub peer_layouts: usize,
    /// D: engines and echoes remembered.
    pub max_peers: usize,
    /// P: transfers known at once.
    pub max_transfers: usize,
    /// P: ended transfers remembered.
    pub max_remembered: usize,
    /// How long a drain for sleep may take.
    pub drain_ms: u64,
    /// Mode `wait`: how long requests may take to finish.
    #[serde(default = "finish")]
    pub finish_ms: u64,
    /// Mode `wait` with clearing: how long D may still pull what is held `[R03]`.
    #[serde(default = "pulls")]
    pub pulls_ms: u64,
    /// How long blocks may take to come back once they are released.
    #[serde(default = "blocks")]
    pub blocks_ms: u64,
    /// D: how long blocks stay closed to stock loads after a stock write failed.
    pub quarantine_ms: u64,
}

const fn finish() -> u64 {
    3_000
}

const fn pulls() -> u64 {
    2_000
}

const fn blocks() -> u64 {
    3_000
}

/// How long orders may take that need no time, in milliseconds.
const ORDER: u64 = 2_000;
/// How long memory may take to be mapped or filled, in milliseconds.
const MEMORY: u64 = 5_000;

impl Bounds {
    /// What an engine's lifecycle is started with.
    #[must_use]
    pub fn lifecycle(&self) -> engine::Bounds {
        let ms = Duration::from_millis;
        engine::Bounds {
            finish: ms(self.finish_ms),
            drain: ms(self.pulls_ms),
            blocks: ms(self.blocks_ms),
            release: ms(self.drain_ms),
            order: ms(ORDER),
            memory: ms(MEMORY),
            lease: ms(self.drain_ms + 2 * ORDER),
        }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            hold_ms: 20_000,
            load_ms: 8_000,
            write_ms: 3_000,
            margin_ms: 500,
            senders: 4,
            senders_per_peer: 2,
            peer_layouts: 16,
            max_peers: 64,
            max_transfers: 256,
            max_remembered: 128,
            drain_ms: 4_000,
            finish_ms: finish(),
            pulls_ms: pulls(),
            blocks_ms: blocks(),
            quarantine_ms: 2_000,
        }
    }
}
