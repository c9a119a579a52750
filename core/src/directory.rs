//! P's ranks as D learns them from a bootstrap server.

use crate::ids::Incarnation;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One P rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rank {
    /// Control-plane address (`tcp://host:port`).
    pub address: Arc<str>,
    /// What a kvbaton rank says of itself; `None` for a stock rank.
    pub ours: Option<OurRank>,
}

/// What only kvbaton ranks tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OurRank {
    /// Protocol revision, at least 1.
    pub revision: u32,
    /// Feature bits.
    pub features: u64,
    /// The run of the process `[P12]`.
    pub incarnation: Incarnation,
    /// Tensor- and pipeline-parallel sizes of its engine, so that a directory from which
    /// ranks are missing is not taken for a smaller engine; 0 when it did not say `[A02]`.
    pub sizes: (u32, u32),
}

/// One engine's ranks, by tensor-parallel, then pipeline-parallel rank.
pub type EngineRanks = BTreeMap<u32, BTreeMap<u32, Rank>>;
