//! The scheduler's side of an engine's lifecycle: what each order does to its requests.
//!
//! A host answers an order whose [`Progress`] is `Waits` once [`Scheduler::is`] says so, and
//! does what is memory's itself.

use super::Scheduler;
use super::entry::{Fate, Phase};
use kvbaton_core::ids::RequestId;
use kvbaton_core::lifecycle::engine::{EngineOrder, Which};

/// Which requests may start and compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// All.
    Open,
    /// Those that have started.
    Closed,
    /// None: steps and loads that are out still end.
    Frozen,
}

/// What an order waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Until {
    /// No request runs.
    Finished,
    /// No step is out.
    Frozen,
    /// Nobody has a block.
    BlocksBack,
}

/// How far an order has come.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Progress {
    /// It is done.
    Done,
    /// It is done once this is so.
    Waits(Until),
    /// It could not be done.
    Failed(String),
    /// The host maps or unmaps memory.
    Memory,
}

impl Scheduler {
    /// Does what an order asks of requests and blocks.
    pub fn order(&mut self, order: &EngineOrder) -> Progress {
        match order {
            EngineOrder::Run => {
                self.set_gate(Gate::Open);
                Progress::Done
            }
            EngineOrder::Finish => {
                self.set_gate(Gate::Closed);
                Progress::Waits(Until::Finished)
            }
            EngineOrder::Freeze => {
                self.set_gate(Gate::Frozen);
                Progress::Waits(Until::Frozen)
            }
            EngineOrder::Abort(which) => {
                for id in self.meant(which) {
                    self.abort(&id);
                }
                Progress::Done
            }
            EngineOrder::Preempt => {
                self.preempt_all();
                Progress::Done
            }
            EngineOrder::AwaitBlocks => Progress::Waits(Until::BlocksBack),
            EngineOrder::ResetCache => match self.reset_cache() {
                true => Progress::Done,
                false => Progress::Failed(self.in_use().join("; ")),
            },
            EngineOrder::LoadWeights(version) => match self.update_weights(version.0) {
                true => Progress::Done,
                false => Progress::Failed(self.in_use().join("; ")),
            },
            EngineOrder::Unmap { .. } | EngineOrder::Map(_) => Progress::Memory,
        }
    }

    /// Requests that are meant: all, but for those that are answered and only held.
    fn meant(&self, which: &Which) -> Vec<RequestId> {
        match which {
            Which::These(ids) => ids.clone(),
            Which::All => {
                let open = self.entries.iter().filter(|(_, entry)| entry.phase != Phase::Held);
                open.map(|(id, _)| id.clone()).collect()
            }
        }
    }

    /// Whether it is so.
    #[must_use]
    pub fn is(&self, until: Until) -> bool {
        match until {
            Until::Finished => !self.entries.values().any(|entry| {
                matches!(entry.phase, Phase::Loading | Phase::Paused | Phase::Computing)
            }),
            Until::Frozen => !self.entries.values().any(|it| it.phase == Phase::Computing),
            Until::BlocksBack => self.counts().held == 0,
        }
    }

    /// Which requests have blocks, and why, in words.
    #[must_use]
    pub fn in_use(&self) -> Vec<String> {
        let words = |phase| match phase {
            Phase::Queued => None,
            Phase::Loading => Some("loads its KV"),
            Phase::Paused => Some("stands still"),
            Phase::Computing => Some("computes"),
            Phase::Held => Some("is held for its decode"),
        };
        let ends = |fate| match fate {
            Fate::GoOn => "",
            Fate::StartOver => ", and starts over then",
            Fate::Aborted => ", and is aborted",
        };
        let with_blocks = self.entries.iter().filter(|(_, it)| it.table.blocks().next().is_some());
        with_blocks
            .filter_map(|(id, it)| {
                Some(format!("request {id} {}{}", words(it.phase)?, ends(it.fate)))
            })
            .collect()
    }

    /// Forgets the prefix cache. False, and nothing changed, while anything has blocks `[R06]`.
    #[must_use]
    pub fn reset_cache(&mut self) -> bool {
        if self.pool.counts().held != 0 {
            return false;
        }
        self.pool.forget_cache();
        true
    }

    /// Lets all requests go on, those that have started, or none.
    pub fn set_gate(&mut self, gate: Gate) {
        self.gate = gate;
        if gate == Gate::Frozen {
            return;
        }
        let waiting = self.entries.iter().filter(|(_, entry)| entry.phase == Phase::Paused);
        let waiting: Vec<_> = waiting.map(|(id, _)| id.clone()).collect();
        waiting.iter().for_each(|id| self.compute(id));
        self.tick();
    }
}
