//! What the engine and its ranks are told to do.

use super::operation::{OperationError, Outcome, Part, Which, Who};
use crate::ids::WeightVersion;

/// Names one question to an engine; the caller makes it, unique per engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u64);

/// Names one order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderId(pub u64);

/// What the engine is told. Each is answered once, with [`super::EngineLifecycle::done`]; one
/// that fails has changed nothing, but for [`Self::LoadWeights`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineOrder {
    /// Take and start requests, compute. Undoes the next two.
    Run,
    /// Start no new request; those that were started go on. Done once none is running.
    Finish,
    /// Start nothing and compute nothing. Done once no step is out.
    Freeze,
    /// End these requests. Done once they are answered; blocks that a step or a transfer
    /// may touch come back later.
    Abort(Which),
    /// Running requests give their blocks up and start over with 0 computed tokens at the
    /// resume; loads are dropped `[R04]`. Done at once.
    Preempt,
    /// Done once every block is back: no request, step or transfer has one.
    AwaitBlocks,
    /// Forget the prefix cache. Fails while anything has blocks `[R06]`.
    ResetCache,
    /// Give memory up. The addresses stay the engine's.
    Unmap {
        /// Which.
        part: Part,
        /// Whether what it holds is kept elsewhere for [`Self::Map`].
        keep: bool,
    },
    /// Map new pages at the same addresses; fill them with what was kept. Idempotent.
    Map(Part),
    /// Load weights in place.
    LoadWeights(WeightVersion),
}

/// What every rank's node is told. Each is answered once, as above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RankOrder {
    /// Done once no held request waits for D.
    AwaitHolds,
    /// Give held requests back, drop loads `[R03]`. Done at once; blocks come back as they do.
    AbortTransfers,
    /// First phase of a release: drain, take nothing new `[S01, S06]`.
    Prepare,
    /// Second phase: unregister. Done once nothing can land.
    Commit,
    /// Take the first phase back. Never fails.
    Cancel,
    /// Register again `[S02]`; takes a first phase back too.
    Restore,
    /// Holds and loads are of these weights from now on `[R07]`.
    SetWeights(WeightVersion),
}

/// What the caller must do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EngineAction {
    /// Tell the engine.
    Engine(OrderId, EngineOrder),
    /// Tell a rank.
    Rank(OrderId, usize, RankOrder),
    /// Nobody waits for this order any more: its end is of no interest.
    Forget(OrderId),
    /// Ask engine and ranks what has blocks or runs, then call
    /// [`super::EngineLifecycle::explained`].
    Explain,
    /// Answer a question.
    Answer(OperationId, Result<Outcome, OperationError>),
    /// The state changed; for metrics and logs.
    Changed,
}

/// Something that can be waited for: one step of an operation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Step {
    Engine(EngineOrder),
    Ranks(RankOrder),
}

impl Step {
    /// In words, for operators.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Engine(order) => match order {
                EngineOrder::Run => "letting requests run",
                EngineOrder::Finish => "finishing running requests",
                EngineOrder::Freeze => "stopping to compute",
                EngineOrder::Abort(_) => "aborting requests",
                EngineOrder::Preempt => "preempting running requests",
                EngineOrder::AwaitBlocks => "waiting for every block",
                EngineOrder::ResetCache => "emptying the prefix cache",
                EngineOrder::Unmap { part: Part::Kv, .. } => "unmapping the KV cache",
                EngineOrder::Unmap { part: Part::Weights, .. } => "giving the weights up",
                EngineOrder::Map(Part::Kv) => "mapping the KV cache",
                EngineOrder::Map(Part::Weights) => "bringing the weights back",
                EngineOrder::LoadWeights(_) => "loading weights",
            },
            Self::Ranks(order) => match order {
                RankOrder::AwaitHolds => "letting held requests be pulled",
                RankOrder::AbortTransfers => "aborting transfers",
                RankOrder::Prepare => "preparing the release of memory",
                RankOrder::Commit => "unregistering memory",
                RankOrder::Cancel => "taking the release back",
                RankOrder::Restore => "registering memory",
                RankOrder::SetWeights(_) => "telling the weight version",
            },
        }
    }

    /// Whether its end must be known before anything else may be done: it changes memory.
    pub const fn must_end(&self) -> bool {
        matches!(
            self,
            Self::Engine(
                EngineOrder::Unmap { .. } | EngineOrder::Map(_) | EngineOrder::LoadWeights(_)
            ) | Self::Ranks(RankOrder::Commit | RankOrder::Restore | RankOrder::SetWeights(_))
        )
    }

    /// Whether an operation that has come so far goes on to its end, resume or not.
    pub const fn is_past_return(&self) -> bool {
        matches!(
            self,
            Self::Engine(
                EngineOrder::Unmap { .. } | EngineOrder::Map(_) | EngineOrder::LoadWeights(_)
            ) | Self::Ranks(RankOrder::Restore | RankOrder::SetWeights(_))
        )
    }

    /// Whether it must not be tried after `failed` did not work.
    pub const fn needs(&self, failed: &Self) -> bool {
        let unmaps = matches!(self, Self::Engine(EngineOrder::Unmap { part: Part::Kv, .. }));
        match failed {
            Self::Engine(EngineOrder::Map(Part::Kv)) => {
                matches!(self, Self::Ranks(RankOrder::Restore))
            }
            Self::Ranks(RankOrder::Prepare) => {
                unmaps || matches!(self, Self::Ranks(RankOrder::Commit))
            }
            Self::Ranks(RankOrder::Commit) => unmaps,
            _ => false,
        }
    }

    /// Whether requests run after it.
    pub const fn runs(&self) -> bool {
        matches!(self, Self::Engine(EngineOrder::Run))
    }

    /// Who has a part in it.
    pub fn who(&self, ranks: usize) -> Vec<Who> {
        match self {
            Self::Engine(_) => vec![Who::Engine],
            Self::Ranks(_) => (0..ranks).map(Who::Rank).collect(),
        }
    }
}
