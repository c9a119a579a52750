//! The driver of one engine: carries the scheduler's actions out on ranks and nodes, and
//! tells the scheduler how they ended.

use super::clock::monotonic_nanos;
use super::computing::{Computed, Computing};
use super::gather::Gather;
use super::lifecycle::End;
use super::memory::RankNode;
use super::notice::{Notice, Outcome, Source, Submit};
use super::spec::{EngineSpec, Side};
use super::transfers::{LoadFailed, Loading};
use super::weights::WeightsMemory;
use crate::mapping::Mapping;
use anyhow::{Context, Result};
use futures_channel::mpsc::UnboundedReceiver;
use futures_executor::block_on;
use kvbaton_actors::engine::{Asked, Engine, RankPort, mailbox};
use kvbaton_actors::events::Event;
use kvbaton_actors::node::NodeHandle;
use kvbaton_actors::node::registration::Memory;
use kvbaton_core::ids::{Address, BlockId, RequestId, TransferId, WeightVersion};
use kvbaton_core::receiver::LoadEnd;
use kvbaton_model_engine::{
    Action, Outcome as ModelOutcome, PrefixChain, Rank, RankLayout, RankPlace, Request, Role,
    Scheduler, SchedulerConfig, Shape, Step, Transfer, Until,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A request that has not ended.
#[derive(Debug)]
pub(super) struct Running {
    prompt: Vec<u32>,
    pub(super) source: Option<Source>,
    /// Whether its prompt's KV was loaded and not yet compared.
    uncompared: bool,
    /// Whether its prompt was computed here, or is to be loaded.
    begun: bool,
}

/// A scheduler, its ranks and their nodes, and the lifecycle of all of them.
pub struct EngineHost {
    /// Dropped before the nodes, which it gives orders to.
    pub(super) engine: Engine,
    pub(super) spec: EngineSpec,
    pub(super) scheduler: Scheduler,
    pub(super) ranks: Vec<(Rank, RankNode)>,
    /// Each rank's.
    pub(super) weights: Vec<WeightsMemory>,
    /// Ends of orders that are waited for.
    pub(super) ends: Vec<(Until, End)>,
    /// The request that was aborted last, and when.
    aborted: Option<(RequestId, u64)>,
    steps: usize,
    computing: Computing,
    /// Which group last used each block.
    pub(super) group_of: Vec<Option<u16>>,
    pub(super) requests: BTreeMap<String, Running>,
    pub(super) loads: Gather<Loading>,
    pub(super) sends: Gather<Vec<String>>,
    pub(super) notices: VecDeque<Notice>,
}

impl EngineHost {
    /// Maps memory, starts a node per rank, registers; on P also announces at `bootstrap`.
    /// What the lifecycle asks comes out of the receiver, and goes to [`Self::asked`].
    ///
    /// # Errors
    /// When the model cannot be split so, or memory, ports or the bootstrap server refuse.
    pub fn start(
        spec: EngineSpec,
        bootstrap: Option<&str>,
    ) -> Result<(Self, UnboundedReceiver<Asked>)> {
        let shape = spec.model.shape();
        let places = RankPlace::all(spec.tp, spec.pp);
        let rank = |place| {
            start_rank(&spec, &shape, place, bootstrap)
                .with_context(|| format!("tp rank {}, pp rank {}", place.tp_rank, place.pp_rank))
        };
        let ranks = places.map(rank).collect::<Result<Vec<_>>>()?;
        let scheduler = Scheduler::new(SchedulerConfig {
            shape,
            blocks: spec.blocks,
            weights: spec.weights(),
            role: match spec.side {
                Side::Prefill => Role::Prefill,
                Side::Decode => Role::Decode,
            },
            on_load_failure: spec.on_load_failure(),
        });
        let group_of = vec![None; spec.blocks as usize];
        let weights =
            ranks.iter().map(|_| WeightsMemory::new(spec.weight_bytes, spec.weight_version));
        let weights = weights.collect::<Result<Vec<_>>>()?;
        let (port, orders) = mailbox();
        let ports =
            ranks.iter().map(|(_, rank)| Arc::new(rank.node().handle()) as Arc<dyn RankPort>);
        let engine = Engine::start(spec.lifecycle(), Arc::new(port), ports.collect())?;
        let host = Self {
            engine,
            spec,
            scheduler,
            ranks,
            weights,
            ends: Vec::new(),
            aborted: None,
            steps: 0,
            computing: Computing::default(),
            group_of,
            requests: BTreeMap::new(),
            loads: Gather::default(),
            sends: Gather::default(),
            notices: VecDeque::new(),
        };
        Ok((host, orders))
    }

    /// Its nodes' handles, by rank: their events go to [`Self::event`].
    #[must_use]
    pub fn handles(&self) -> Vec<NodeHandle> {
        self.ranks.iter().map(|(_, rank)| rank.node().handle()).collect()
    }

    /// The next thing to report.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Takes a request; what becomes of it is reported.
    pub fn submit(&mut self, submit: Submit) {
        let Submit { request, transfer, prompt, max_tokens, source } = submit;
        let id = TransferId::from(transfer);
        let taken = self.scheduler.add_request(Request {
            id: RequestId::from(request.as_str()),
            prompt: prompt.clone(),
            max_tokens,
            transfer: match source {
                Some(_) => Transfer::Load(id.clone()),
                None => Transfer::Send(id.clone()),
            },
        });
        if let Err(error) = taken {
            let why = error.to_string();
            return self.notices.push_back(Notice::Refused { request, why });
        }
        if source.is_none() {
            for handle in self.handles() {
                // When this is refused, so is the hold, which reports it.
                let _ = block_on(handle.prefill_started(request.as_str().into(), id.clone()));
            }
        }
        let running = Running { prompt, begun: source.is_some(), source, uncompared: true };
        self.requests.insert(request, running);
        self.drain();
    }

    /// Ends a request; unknown ones are fine.
    pub fn abort(&mut self, request: &str) {
        let id = RequestId::from(request);
        self.aborted = Some((id.clone(), monotonic_nanos()));
        self.scheduler.abort(&id);
        self.drain();
    }

    /// Whether a step waits for [`Self::work`].
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.computing.is_empty()
    }

    /// Carries the oldest step out on one rank.
    pub fn work(&mut self) {
        let Some(done) = self.computing.advance(&mut self.ranks) else { return };
        let Computed { request, digest, compared } = done;
        if let Some(found) = compared {
            self.notices.push_back(Notice::Compared {
                request: request.as_str().into(),
                bytes: found.bytes,
                different: found.different,
                first: found.first.map(|first| first.to_string()),
            });
        }
        self.scheduler.computed(&request, digest);
        self.drain();
    }

    /// Takes an event of one rank's node, which came at `at`.
    pub fn event(&mut self, rank: usize, at: u64, event: Event) {
        match event {
            Event::SendEnded { request, ended, .. } => {
                self.send_ended(request.as_str(), rank, &format!("{ended:?}"));
            }
            Event::LoadEnded { request, end, .. } => {
                let failure = match end {
                    LoadEnd::Loaded => None,
                    LoadEnd::Failed(failure) => {
                        let is_reset = failure.reason.is_reset();
                        Some(LoadFailed { why: failure.message, is_reset })
                    }
                    LoadEnd::Dropped => Some(LoadFailed::by("dropped")),
                };
                self.load_ended(request.as_str(), rank, at, failure);
            }
        }
        self.drain();
    }

    /// Carries out what the scheduler wants. Loads that it starts together share a pull.
    pub(super) fn drain(&mut self) {
        self.carry_all_out();
        self.tell_ends();
    }

    fn carry_all_out(&mut self) {
        loop {
            let mut loads = Vec::new();
            while let Some(action) = self.scheduler.next_action() {
                match action {
                    Action::Load { request, transfer, blocks, first_token, end_token } => {
                        self.expect_load(request.as_str(), &blocks, first_token);
                        loads.extend(self.load(request, transfer, blocks, Some(end_token)));
                    }
                    other => self.carry_out(other),
                }
            }
            if loads.is_empty() {
                return;
            }
            self.start_loads(&loads);
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Compute(step) => self.compute(step),
            Action::Hold { request, transfer, blocks, end_token } => {
                self.hold(&request, &transfer, &blocks, end_token);
            }
            Action::Release { request, transfer } => {
                let held = self.sends.contains(request.as_str());
                for (_, rank) in &self.ranks {
                    match held {
                        true => rank.node().release(transfer.clone()),
                        false => rank.node().abort(transfer.clone()),
                    }
                }
            }
            Action::DropLoad { request, .. } => {
                for (_, rank) in &self.ranks {
                    rank.node().drop_loads(vec![request.clone()]);
                }
            }
            Action::ReleaseRemote { request, transfer } => {
                let Some(load) = self.load(request, transfer, Vec::new(), None) else { return };
                for (_, rank) in &self.ranks {
                    // Nothing is awaited: P's hold ends by itself if this is refused.
                    let _ = rank.node().release_remote(vec![load.clone()]);
                }
            }
            Action::Free { request, blocks } => {
                if let Some((_, at)) = self.aborted.take_if(|(id, _)| *id == request) {
                    let took = monotonic_nanos() - at;
                    let request = request.as_str().to_owned();
                    self.notices.push_back(Notice::BlocksBack { request, took });
                }
                for block in blocks {
                    // A block that no step and no load has named holds nothing.
                    if let Some(group) = self.group_of[block.0 as usize] {
                        self.poison(usize::from(group), &[block]);
                    }
                }
            }
            Action::Answer { request, outcome } => {
                let outcome = match outcome {
                    ModelOutcome::Tokens(tokens) => Outcome::Tokens(tokens),
                    ModelOutcome::LoadFailed => Outcome::LoadFailed,
                    ModelOutcome::Aborted => Outcome::Aborted,
                };
                let request = request.as_str().to_owned();
                self.requests.remove(&request);
                self.notices.push_back(Notice::Answer { request, outcome });
            }
            Action::Load { .. } => unreachable!("`drain` collects the loads"),
        }
    }

    /// Queues a step. The first one after a load finds the whole prompt's KV in memory:
    /// that is the time to compare it.
    fn compute(&mut self, step: Step) {
        for (group, blocks) in step.table.groups.iter().enumerate() {
            self.belong(group, blocks);
        }
        let now = self.scheduler.weights();
        self.steps += 1;
        self.weights.iter().for_each(|it| it.check(now.version, self.steps));
        let running = self.requests.get_mut(step.request.as_str());
        let loaded = running.and_then(|it| {
            if step.from < it.prompt.len() && std::mem::replace(&mut it.begun, true) {
                let request = step.request.as_str().to_owned();
                self.notices.push_back(Notice::Recomputed { request });
            }
            let first = std::mem::take(&mut it.uncompared);
            let whole = first && step.from == step.to && step.to == it.prompt.len();
            let prefix = || PrefixChain::new(now, &it.prompt).hashes().to_vec();
            whole.then(|| Step { from: 0, prefix: prefix(), ..step.clone() })
        });
        self.computing.push(step, loaded);
    }

    /// Notes which group's rows the blocks use, for when they are free.
    pub(super) fn belong(&mut self, group: usize, blocks: &[BlockId]) {
        for block in blocks {
            self.group_of[block.0 as usize] = u16::try_from(group).ok();
        }
    }

    /// Spoils blocks, so that a byte that never comes or is read too late shows.
    pub(super) fn poison(&mut self, group: usize, blocks: &[BlockId]) {
        for (rank, node) in &mut self.ranks {
            rank.poison(node.memory_mut(), group, blocks.iter().copied());
        }
    }
}

fn start_rank(
    spec: &EngineSpec,
    shape: &Arc<Shape>,
    place: RankPlace,
    bootstrap: Option<&str>,
) -> Result<(Rank, RankNode)> {
    // Storages keep their distances wherever the first of them starts.
    let len = RankLayout::new(shape, place, spec.blocks, Address(4096))?.range().len;
    let memory = Mapping::new(len.0 as usize)?;
    let rank = Rank::new(shape.clone(), place, spec.blocks, memory.start())?;
    let local = Memory::new(rank.layout().register(shape, place, spec.blocks)?)?;
    let weights = WeightVersion(spec.weight_version);
    let config = spec.node(place, bootstrap);
    let node = RankNode::start(config, spec.transport(), weights, local, memory)?;
    Ok((rank, node))
}
