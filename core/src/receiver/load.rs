//! One load as D knows it.

use crate::blocks::BlockList;
use crate::directory::OurRank;
use crate::ids::{EngineId, Grant, RequestId, TransferId};
use crate::sender::PullId;
use crate::time::Timestamp;
use crate::wire::FailureReason;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What D's engine asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LoadSpec {
    /// D's request; one load at a time.
    pub request: RequestId,
    /// The transfer, as the router named it.
    pub transfer: TransferId,
    /// P's engine.
    pub engine: EngineId,
    /// Where P's ranks are listed (`http://host:port`).
    pub bootstrap: Arc<str>,
    /// Logical blocks per group, in token order. No block at all with [`LoadKind::Load`]
    /// is a full prefix hit: it completes at once, and P is told to release `[P10]`.
    pub blocks: Vec<BlockList>,
    /// Tokens of the request up to the end of `blocks`, if known `[A06]`.
    pub end_token: Option<u32>,
    /// A random number that names this load's right to write `[G01]`.
    pub grant: Grant,
    /// Whether D waits for it.
    pub kind: LoadKind,
}

/// Whether D waits for KV, or only tells P to release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LoadKind {
    /// KV is wanted; the end is reported exactly once.
    Load,
    /// The request ended before it was loaded: P is told, nothing is reported `[P10]`.
    Release,
}

/// How a load ended. Its blocks are the engine's again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LoadEnd {
    /// Every byte is there.
    Loaded,
    /// It failed; parts of it may have landed.
    Failed(LoadFailure),
    /// D's engine dropped it; parts of it may have landed.
    Dropped,
}

/// Why a load failed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LoadFailure {
    /// For machines.
    pub reason: LoadFailureReason,
    /// For operators: what happened, to whom, what to do.
    pub message: String,
}

/// Why a load failed, for machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LoadFailureReason {
    /// The bootstrap server does not know the engine, or cannot be asked.
    UnknownEngine,
    /// P and D do not fit each other.
    Incompatible,
    /// P said why.
    Prefill(FailureReason),
    /// P refused the pull as a whole, or a stock P gave no reason.
    Refused,
    /// The connection to P broke, or P cannot be reached.
    Unreachable,
    /// Nothing was heard in time.
    TimedOut,
    /// D's memory was unregistered, or the grant could not be opened.
    Unregistered,
    /// D's engine gave its loads up for a reset `[R03]`.
    Reset,
    /// D's weights were updated while it ran `[R07]`.
    WeightsUpdated,
}

impl LoadFailureReason {
    /// Whether a reset of either engine cut the load short: it is to be recomputed with 0
    /// computed tokens, whatever the failure policy `[R04]`. So it is for resets and weight
    /// updates of either side, for a P whose memory is not registered (it sleeps, or stops:
    /// D cannot tell), and for D's own memory going away. A P that died, aborted, released or
    /// expired the request, or did not answer, is a failure like any other.
    #[must_use]
    pub const fn is_reset(self) -> bool {
        match self {
            Self::Reset | Self::WeightsUpdated | Self::Unregistered => true,
            Self::Prefill(why) => matches!(
                why,
                FailureReason::Reset | FailureReason::OtherWeights | FailureReason::Unavailable
            ),
            Self::UnknownEngine
            | Self::Incompatible
            | Self::Refused
            | Self::Unreachable
            | Self::TimedOut => false,
        }
    }
}

/// Names one load within a receiver. Request ids come back; these never do, so nothing
/// that belongs to an earlier load of a request can touch a later one `[P11]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LoadId(pub u64);

/// A P rank that has not settled for a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Waiting {
    /// The pull that it has yet to answer.
    pub pull: PullId,
    /// What it said of itself when it was pulled from; `None` for a stock rank.
    pub ours: Option<OurRank>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Load {
    pub spec: LoadSpec,
    pub deadline: Timestamp,
    /// P ranks that have not settled, by address; empty until the pulls are sent.
    pub outstanding: BTreeMap<Arc<str>, Waiting>,
    pub phase: Phase,
    /// The bootstrap server had been asked before this load began to wait for its answer,
    /// which may therefore be older than what the load is about.
    pub asked_late: bool,
    /// P ranks were asked to drop it.
    pub drop_sent: bool,
    /// The first failure; it is never overwritten `[P08]`.
    pub failure: Option<LoadFailure>,
    pub dropped: bool,
    /// A stock P may still write although it answered.
    pub stock_unsettled: bool,
    /// Until when a stock P whose connection broke may begin to write.
    pub stock_lost_until: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// Accepted, not yet part of a pull.
    Staged,
    /// Waits for the bootstrap server.
    Discovering,
    /// Waits until a stock writer of its blocks has surely ended.
    Quarantined,
    /// Pulls are out; the grant is open.
    Pulling,
    /// The grant is being revoked; then the load ends.
    Revoking,
}

impl Load {
    pub fn new(spec: LoadSpec, deadline: Timestamp) -> Self {
        Self {
            spec,
            deadline,
            outstanding: BTreeMap::new(),
            phase: Phase::Staged,
            asked_late: false,
            drop_sent: false,
            failure: None,
            dropped: false,
            stock_unsettled: false,
            stock_lost_until: None,
        }
    }

    /// Whether KV is wanted, rather than P told to release.
    pub fn wants_kv(&self) -> bool {
        self.spec.kind == LoadKind::Load
    }

    pub fn has_blocks(&self) -> bool {
        self.spec.blocks.iter().any(|group| !group.is_empty())
    }

    pub fn end(&self) -> LoadEnd {
        match (&self.failure, self.dropped) {
            (_, true) => LoadEnd::Dropped,
            (Some(failure), _) => LoadEnd::Failed(failure.clone()),
            (None, false) => LoadEnd::Loaded,
        }
    }
}
