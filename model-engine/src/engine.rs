//! One engine with all its ranks in one process.

use crate::action::{Action, Step};
use crate::memory::KvMemory;
use crate::model::{Digest, RankDigest, Weights};
use crate::rank::Rank;
use crate::rank_layout::{PlaceError, RankLayout, RankPlace};
use crate::request::{AddError, OnLoadFailure, Request, Role};
use crate::scheduler::{Scheduler, SchedulerConfig};
use crate::shape::Shape;
use kvbaton_core::ids::{Address, BlockId, RequestId};
use std::sync::Arc;

/// What an engine is made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// The model.
    pub shape: Arc<Shape>,
    /// TP ranks.
    pub tp_size: u32,
    /// Pipeline stages.
    pub pp_size: u32,
    /// Blocks of each rank, the null block included.
    pub blocks: u32,
    /// The weights at the start.
    pub weights: Weights,
    /// What the engine is for.
    pub role: Role,
    /// What becomes of a request whose load failed.
    pub on_load_failure: OnLoadFailure,
    /// Whether blocks are spoilt before a load and once they are free, so that a byte which
    /// never came, or is read after its time, changes an answer for certain.
    pub poison: bool,
}

/// A [`Scheduler`], its [`Rank`]s, and their memories. It does a step's work only when it is
/// told to ([`run`](Self::run)), so that a driver decides how long steps take.
#[derive(Debug, Clone)]
pub struct ModelEngine<M> {
    scheduler: Scheduler,
    ranks: Vec<Rank>,
    memories: Vec<M>,
    poison: bool,
}

impl<M: KvMemory> ModelEngine<M> {
    /// An engine whose rank `i`, in the order of [`RankPlace::all`], has its tensors at
    /// `bases[i]`; `memory` makes the memory for each.
    ///
    /// # Errors
    /// When the model cannot be split so.
    ///
    /// # Panics
    /// When there are not as many bases as ranks.
    pub fn new(
        config: EngineConfig,
        bases: &[Address],
        memory: impl FnMut(&RankLayout) -> M,
    ) -> Result<Self, PlaceError> {
        let EngineConfig { shape, blocks, .. } = &config;
        assert_eq!(bases.len() as u64, u64::from(config.tp_size) * u64::from(config.pp_size));
        let ranks: Vec<Rank> = RankPlace::all(config.tp_size, config.pp_size)
            .zip(bases)
            .map(|(place, &base)| Rank::new(shape.clone(), place, *blocks, base))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            memories: ranks.iter().map(Rank::layout).map(memory).collect(),
            ranks,
            poison: config.poison,
            scheduler: Scheduler::new(SchedulerConfig {
                shape: config.shape,
                blocks: config.blocks,
                weights: config.weights,
                role: config.role,
                on_load_failure: config.on_load_failure,
            }),
        })
    }

    /// See [`Scheduler::add_request`].
    ///
    /// # Errors
    /// When it can never run here.
    pub fn add_request(&mut self, request: Request) -> Result<(), AddError> {
        self.scheduler.add_request(request)
    }

    /// The scheduler, for all other inputs and for what it knows.
    pub const fn scheduler(&mut self) -> &mut Scheduler {
        &mut self.scheduler
    }

    /// The next action for the driver. It gives [`Action::Compute`] back to
    /// [`run`](Self::run) once the step's time has come, and does the others itself.
    pub fn next_action(&mut self) -> Option<Action> {
        let action = self.scheduler.next_action()?;
        if self.poison {
            match &action {
                Action::Load { blocks, .. } => {
                    for (group, blocks) in blocks.iter().enumerate() {
                        self.poison(
                            group,
                            &blocks.iter().filter(|id| id.0 != 0).collect::<Vec<_>>(),
                        );
                    }
                }
                Action::Free { blocks, .. } => {
                    (0..self.scheduler.shape().groups.len())
                        .for_each(|group| self.poison(group, blocks));
                }
                _ => {}
            }
        }
        Some(action)
    }

    /// Like [`next_action`](Self::next_action), but runs every step on the spot.
    pub fn run_to_next_action(&mut self) -> Option<Action> {
        loop {
            match self.next_action()? {
                Action::Compute(step) => self.run(&step),
                action => return Some(action),
            }
        }
    }

    /// Carries a step out on every rank and tells the scheduler what they read.
    pub fn run(&mut self, step: &Step) {
        let ranks = self.ranks.iter().zip(&mut self.memories);
        let digests: Vec<RankDigest> = ranks.map(|(rank, memory)| rank.run(memory, step)).collect();
        self.scheduler.computed(&step.request, Digest::combine(&digests));
    }

    fn poison(&mut self, group: usize, blocks: &[BlockId]) {
        for (rank, memory) in self.ranks.iter().zip(&mut self.memories) {
            rank.poison(memory, group, blocks.iter().copied());
        }
    }

    /// The ranks, in the order of [`RankPlace::all`].
    #[must_use]
    pub fn ranks(&self) -> &[Rank] {
        &self.ranks
    }

    /// Their memories, in the same order.
    pub fn memories(&mut self) -> &mut [M] {
        &mut self.memories
    }

    /// Ends a request; see [`Scheduler::abort`].
    pub fn abort(&mut self, id: &RequestId) -> bool {
        self.scheduler.abort(id)
    }
}
