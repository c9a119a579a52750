//! Which engines a world has.

use serde::{Deserialize, Serialize};

/// The engines of a world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fleet {
    /// What all of them run.
    pub model: ModelPlan,
    /// By index: an engine's index is its name everywhere.
    pub engines: Vec<EnginePlan>,
}

/// A model, small enough that a run costs nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelPlan {
    /// Attention with heads, a storage per layer.
    Dense,
    /// Latent attention, packed rows.
    Mla,
    /// Full attention, sliding window and recurrent state in turn.
    Hybrid,
}

/// Which side an engine plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// It prefills.
    Prefill,
    /// It decodes.
    Decode,
    /// It does either.
    Both,
}

impl Side {
    /// Whether it prefills for others.
    #[must_use]
    pub const fn sends(self) -> bool {
        matches!(self, Self::Prefill | Self::Both)
    }

    /// Whether it loads from others.
    #[must_use]
    pub const fn loads(self) -> bool {
        matches!(self, Self::Decode | Self::Both)
    }
}

/// Whose code its ranks run. Our protocol has had one revision so far; ranks of ours that
/// speak an older one belong here once there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Our nodes.
    Ours,
    /// vLLM 0.33's Mooncake connector: layout ids and LAYOUT_MISS, no grants, no drops.
    Stock33,
    /// vLLM 0.32's: no layout ids either.
    Stock32,
}

impl Kind {
    /// Whether it is a stock peer.
    #[must_use]
    pub const fn is_stock(self) -> bool {
        matches!(self, Self::Stock33 | Self::Stock32)
    }
}

/// One engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnginePlan {
    /// Its side.
    pub side: Side,
    /// Whose code it runs.
    pub kind: Kind,
    /// TP ranks.
    pub tp: u32,
    /// Pipeline stages.
    pub pp: u32,
    /// Blocks of each rank, the null block included.
    pub blocks: u32,
    /// Whether D computes itself what could not be loaded.
    pub recompute: bool,
    /// How much faster its clocks run than the world's, in parts per million.
    pub drift_ppm: i32,
}

impl EnginePlan {
    /// An engine of ours, unsharded.
    #[must_use]
    pub const fn new(side: Side) -> Self {
        Self { side, kind: Kind::Ours, tp: 1, pp: 1, blocks: 64, recompute: true, drift_ppm: 0 }
    }

    /// Number of ranks.
    #[must_use]
    pub const fn ranks(&self) -> u32 {
        self.tp * self.pp
    }
}
