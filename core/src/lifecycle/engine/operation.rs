//! What an engine can be asked, and how that ends.

use crate::ids::{RequestId, WeightVersion};
use std::time::Duration;

/// What a pause does with requests that run `[R01]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PauseMode {
    /// They end, aborted.
    Abort,
    /// They finish first; new ones wait.
    Wait,
    /// They stand still, and go on at the resume.
    Keep,
}

impl PauseMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Abort, Self::Wait, Self::Keep];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Abort => "abort",
            Self::Wait => "wait",
            Self::Keep => "keep",
        }
    }
}

/// How deep an engine sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SleepLevel {
    /// 0: it computes nothing; all memory stays.
    Compute,
    /// 1: the KV cache is given up, weights are kept elsewhere.
    Offload,
    /// 2: the KV cache and the weights are given up; new weights come after the wake.
    Discard,
}

impl SleepLevel {
    /// Every level, from 0.
    pub const ALL: [Self; 3] = [Self::Compute, Self::Offload, Self::Discard];

    /// Its number, 0 to 2.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Compute => 0,
            Self::Offload => 1,
            Self::Discard => 2,
        }
    }

    /// The level of a number.
    #[must_use]
    pub const fn of(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Compute),
            1 => Some(Self::Offload),
            2 => Some(Self::Discard),
            _ => None,
        }
    }
}

/// Memory of an engine that sleeps and wakes by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The weights.
    Weights,
    /// The KV cache.
    Kv,
}

/// Parts to wake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Parts {
    /// The weights.
    pub weights: bool,
    /// The KV cache.
    pub kv: bool,
}

impl Parts {
    /// Both.
    pub const ALL: Self = Self { weights: true, kv: true };
    /// The weights alone.
    pub const WEIGHTS: Self = Self { weights: true, kv: false };
    /// The KV cache alone.
    pub const KV: Self = Self { weights: false, kv: true };
}

/// Requests to abort.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Which {
    /// All that the engine has now.
    All,
    /// These; unknown ones are fine `[P13]`.
    These(Vec<RequestId>),
}

/// What an engine is asked. Each ends in bounded time, with one answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Stop computing `[R01]`; with `clear`, take every block back as well `[R02]`.
    Pause {
        /// What becomes of requests that run.
        mode: PauseMode,
        /// Whether every block comes back and the prefix cache is emptied.
        clear: bool,
    },
    /// Compute again; fails what is still pending, at once `[R05]`.
    Resume,
    /// Give memory up.
    Sleep {
        /// Which.
        level: SleepLevel,
        /// How requests that run are paused before.
        mode: PauseMode,
    },
    /// Take memory back, all or one part `[S05]`. With the last part the engine goes on
    /// as it did before it slept.
    Wake(Parts),
    /// Give the KV cache's memory up and keep the weights.
    ReleaseKv(PauseMode),
    /// Go over to other weights in place `[R07]`; the engine then goes on as before.
    UpdateWeights {
        /// Their version; new for new weights.
        version: WeightVersion,
        /// How requests that run are paused before.
        mode: PauseMode,
    },
    /// P stops holding finished requests' KV, D drops its loads `[R03]`.
    AbortTransfers,
    /// End requests.
    AbortRequests(Which),
    /// Empty the prefix cache.
    ResetPrefixCache {
        /// Whether running requests and transfers give their blocks back first; without,
        /// one that has blocks is in the way `[R06]`.
        running: bool,
    },
}

impl Operation {
    /// Its name, for operators and metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Pause { .. } => "pause",
            Self::Resume => "resume",
            Self::Sleep { .. } => "sleep",
            Self::Wake(_) => "wake",
            Self::ReleaseKv(_) => "release_kv",
            Self::UpdateWeights { .. } => "update_weights",
            Self::AbortTransfers => "abort_transfers",
            Self::AbortRequests(_) => "abort_requests",
            Self::ResetPrefixCache { .. } => "reset_prefix_cache",
        }
    }

    /// Whether it runs beside another one: it only sends orders and changes no state.
    pub(super) const fn is_quick(&self) -> bool {
        matches!(self, Self::AbortTransfers | Self::AbortRequests(_))
    }
}

/// How an operation ended well.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It is done, or was so already.
    Done,
    /// Of [`Operation::ResetPrefixCache`]: whether the cache is empty now; if not, what
    /// holds blocks, in words `[R06]`.
    Reset {
        /// Whether it is empty.
        done: bool,
        /// What was in the way.
        users: Vec<String>,
    },
}

/// Why an operation failed. Unless [`Self::NotUndone`] says otherwise the engine is as it
/// was before it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum OperationError {
    /// Another one runs.
    #[error(
        "the engine is busy with {operation} ({step}) since {}; wait for it, or resume to end it",
        seconds(*.since)
    )]
    Busy {
        /// The other one.
        operation: &'static str,
        /// Where it stands.
        step: &'static str,
        /// For how long it has been running.
        since: Duration,
    },
    /// A resume ended it before it was done `[R05]`.
    #[error("the engine was resumed before {operation} was done ({step}); ask again")]
    Resumed {
        /// The operation.
        operation: &'static str,
        /// Where it stood.
        step: &'static str,
    },
    /// Not possible as the engine stands.
    #[error("{operation} is not possible: {why}")]
    NotPossible {
        /// The operation.
        operation: &'static str,
        /// Why, and what to do.
        why: &'static str,
    },
    /// Something did not end in time.
    #[error(
        "{operation} gave up after {} and was taken back: {step} did not end{}; \
         end these, or allow more time",
        seconds(*.waited), listed(.users)
    )]
    TimedOut {
        /// The operation.
        operation: &'static str,
        /// What was waited for.
        step: &'static str,
        /// For how long.
        waited: Duration,
        /// What was in the way: which requests, which peer, since when.
        users: Vec<String>,
    },
    /// The engine or a rank could not do its part.
    #[error("{operation} failed and was taken back: {step}: {who}: {why}")]
    Failed {
        /// The operation.
        operation: &'static str,
        /// What was tried.
        step: &'static str,
        /// Who could not.
        who: Who,
        /// Its words.
        why: String,
    },
    /// It failed, and could not be taken back: what is missing sleeps until a wake, an update
    /// or a resume succeeds.
    #[error(
        "{cause}; but not all of it could be taken back: {why}; wake, update or resume the engine to go on"
    )]
    NotUndone {
        /// Why it failed.
        cause: String,
        /// Why it could not be taken back.
        why: String,
    },
    /// Whoever carries the operations out has stopped.
    #[error("the engine's lifecycle has stopped")]
    Stopped,
}

/// Who does a part of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Who {
    /// The engine.
    Engine,
    /// A rank's node, by its place among the engine's.
    Rank(usize),
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Engine => f.write_str("the engine"),
            Self::Rank(rank) => write!(f, "rank {rank}"),
        }
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn listed(users: &[String]) -> String {
    if users.is_empty() { String::new() } else { format!(" ({})", users.join("; ")) }
}
