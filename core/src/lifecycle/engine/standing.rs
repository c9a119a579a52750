//! How an engine stands between operations.

use super::operation::PauseMode;
use crate::ids::WeightVersion;

/// Whether the engine computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compute {
    /// It does.
    Running,
    /// It does not, since a pause of this mode.
    Paused(PauseMode),
}

/// Where the weights are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WeightsAt {
    /// In place.
    Mapped,
    /// Kept elsewhere (sleep level 1).
    Offloaded,
    /// Nowhere (sleep level 2).
    Discarded,
    /// Mapped after they were discarded: nothing runs before they are updated.
    Blank,
}

/// How an engine stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Standing {
    /// Whether it computes.
    pub compute: Compute,
    /// Its weights.
    pub weights: WeightsAt,
    /// Whether the KV cache is mapped and registered.
    pub kv: bool,
    /// The weights' version.
    pub version: WeightVersion,
    /// It sleeps, at whatever level; whether it runs again with the last part that wakes.
    pub asleep: Option<bool>,
}

impl Standing {
    /// An engine that has just started.
    #[must_use]
    pub const fn new(version: WeightVersion) -> Self {
        Self {
            compute: Compute::Running,
            weights: WeightsAt::Mapped,
            kv: true,
            version,
            asleep: None,
        }
    }

    /// Whether all memory is there to compute with.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.kv && matches!(self.weights, WeightsAt::Mapped)
    }

    /// Its name, for operators and metrics; one of [`Self::NAMES`].
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match (self.kv, self.weights, self.compute, self.asleep) {
            (true, WeightsAt::Mapped, Compute::Running, _) => "running",
            (true, WeightsAt::Mapped, _, Some(_)) => "asleep_0",
            (true, WeightsAt::Mapped, Compute::Paused(PauseMode::Abort), None) => "paused_abort",
            (true, WeightsAt::Mapped, Compute::Paused(PauseMode::Wait), None) => "paused_wait",
            (true, WeightsAt::Mapped, Compute::Paused(PauseMode::Keep), None) => "paused_keep",
            (false, WeightsAt::Mapped, ..) => "weights_awake",
            (true, WeightsAt::Offloaded | WeightsAt::Discarded, ..) => "kv_awake",
            (false, WeightsAt::Offloaded, ..) => "asleep_1",
            (false, WeightsAt::Discarded, ..) => "asleep_2",
            (_, WeightsAt::Blank, ..) => "weights_blank",
        }
    }

    /// Every name.
    pub const NAMES: [&'static str; 10] = [
        "running",
        "paused_abort",
        "paused_wait",
        "paused_keep",
        "asleep_0",
        "asleep_1",
        "asleep_2",
        "weights_awake",
        "kv_awake",
        "weights_blank",
    ];
}
