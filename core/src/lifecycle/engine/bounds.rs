//! How long each part of an operation may take.

use super::order::{EngineOrder, RankOrder, Step};
use std::time::Duration;

/// Bounds of operations. Every operation ends within the sum of its steps', and as much
/// again where it has to be undone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// In mode `wait`: for requests that run to finish. Default 60 s.
    pub finish: Duration,
    /// In mode `wait`: for D to pull what is held, before it is released `[R03]`. 0 releases
    /// at once. Default 10 s.
    pub drain: Duration,
    /// For every block to come back once it is released. Default 30 s.
    pub blocks: Duration,
    /// For a rank to see that nothing touches its memory `[S01]`. Default 10 s.
    pub release: Duration,
    /// For anything else that only sends orders. Default 30 s.
    pub order: Duration,
    /// For memory to be mapped, unmapped or filled. Default 300 s.
    pub memory: Duration,
    /// Longer than any operation's second phase can take to begin: when a rank's prepared
    /// release ends by itself because nobody committed it. Default 60 s.
    pub lease: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            finish: Duration::from_secs(60),
            drain: Duration::from_secs(10),
            blocks: Duration::from_secs(30),
            release: Duration::from_secs(10),
            order: Duration::from_secs(30),
            memory: Duration::from_secs(300),
            lease: Duration::from_secs(60),
        }
    }
}

impl Bounds {
    /// Whether the numbers make sense.
    ///
    /// # Errors
    /// A sentence that names the value and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        for (name, value) in [
            ("finish", self.finish),
            ("blocks", self.blocks),
            ("release", self.release),
            ("order", self.order),
            ("memory", self.memory),
        ] {
            if value.is_zero() {
                return Err(format!("the lifecycle's bound `{name}` must be above zero"));
            }
        }
        if self.lease <= self.release {
            return Err(format!(
                "the lifecycle's `lease` ({:?}) must be above `release` ({:?}): a rank that is \
                 prepared first waits for the others",
                self.lease, self.release
            ));
        }
        Ok(())
    }

    pub(super) fn of(&self, step: &Step) -> Duration {
        match step {
            Step::Engine(EngineOrder::Finish) => self.finish,
            Step::Engine(EngineOrder::AwaitBlocks) => self.blocks,
            Step::Engine(
                EngineOrder::Unmap { .. } | EngineOrder::Map(_) | EngineOrder::LoadWeights(_),
            ) => self.memory,
            Step::Engine(_) => self.order,
            Step::Ranks(RankOrder::AwaitHolds) => self.drain,
            // A rank gives up by itself, and says why; this is for one that is gone.
            Step::Ranks(RankOrder::Prepare) => self.release + self.order,
            Step::Ranks(_) => self.order,
        }
    }

    /// Whether a step that ran out of time is over rather than failed.
    pub(super) const fn may_run_out(step: &Step) -> bool {
        matches!(step, Step::Ranks(RankOrder::AwaitHolds))
    }
}
