//! A stock D rank: loads become pulls, one to each P rank, and end once all have settled.

use super::node::Setup;
use crate::bootstrap::SimBootstrap;
use crate::control::SimControl;
use crate::plan::Kind;
use crate::sim::names;
use futures_util::StreamExt;
use kvbaton_actors::events::{Event, EventQueue};
use kvbaton_actors::node::Load;
use kvbaton_actors::runtime;
use kvbaton_actors::transport::{Bootstrap, ControlPlane};
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{EngineId, LayoutId, RequestId, TransferId};
use kvbaton_core::receiver::{LoadEnd, LoadFailure, LoadFailureReason};
use kvbaton_core::topology::pull_targets;
use kvbaton_core::wire::{Limits, Pull, PullRequest, Reply, Status};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// How often a bootstrap server is asked.
const TRIES: u32 = 3;
/// How long it waits before it asks again.
const AGAIN: Duration = Duration::from_millis(100);

/// Control-plane addresses of an engine's ranks, by tensor-parallel, then stage.
type Ranks = BTreeMap<u32, BTreeMap<u32, String>>;

/// One rank of a stock D.
pub struct Decode {
    setup: Setup,
    events: EventQueue,
    control: SimControl,
    bootstrap: SimBootstrap,
    layout_id: LayoutId,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// Never forgotten.
    engines: BTreeMap<EngineId, Ranks>,
    /// P ranks that have echoed the layout id.
    echoed: BTreeSet<String>,
    loads: u64,
    pulls: u64,
}

/// One load, shared by the pulls to its P ranks.
struct Loading {
    request: RequestId,
    transfer: TransferId,
    blocks: Vec<BlockList>,
    /// Pulls that have not settled.
    left: Cell<usize>,
    /// The first failure; later results still count.
    failure: RefCell<Option<LoadFailure>>,
}

type Batch = BTreeMap<RequestId, Rc<Loading>>;

impl Decode {
    pub(super) fn new(
        setup: Setup,
        events: EventQueue,
        control: SimControl,
        bootstrap: SimBootstrap,
    ) -> Self {
        let layout_id = match setup.kind {
            Kind::Stock32 => LayoutId::NONE,
            _ => LayoutId::from_random(rand::random()),
        };
        Self { setup, events, control, bootstrap, layout_id, state: RefCell::default() }
    }

    /// Starts loads. One without blocks has all that it needs: P is told to release.
    pub(super) fn load(self: &Rc<Self>, loads: Vec<Load>) {
        for load in &loads {
            if load.blocks.iter().all(BlockList::is_empty) {
                let (request, transfer) = (load.request.clone(), load.transfer.clone());
                self.events.push(Event::LoadEnded { request, transfer, end: LoadEnd::Loaded });
            } else {
                self.state.borrow_mut().loads += 1;
            }
        }
        let mut engines: BTreeMap<EngineId, Vec<Load>> = BTreeMap::new();
        for load in loads {
            engines.entry(load.engine.clone()).or_default().push(load);
        }
        for (engine, loads) in engines {
            runtime::spawn_local(self.clone().start(engine, loads));
        }
    }

    /// Tells P that a request that ended before it was loaded needs nothing.
    pub(super) fn release(self: &Rc<Self>, load: Load) {
        let load = Load { blocks: Vec::new(), ..load };
        runtime::spawn_local(self.clone().start(load.engine.clone(), vec![load]));
    }

    async fn start(self: Rc<Self>, engine: EngineId, loads: Vec<Load>) {
        let bootstrap = loads[0].bootstrap.clone();
        let loading = |load: Load| Loading {
            request: load.request,
            transfer: load.transfer,
            blocks: load.blocks,
            left: Cell::new(0),
            failure: RefCell::default(),
        };
        let batch: Batch =
            loads.into_iter().map(|load| (load.request.clone(), Rc::new(loading(load)))).collect();
        if !self.state.borrow().engines.contains_key(&engine) {
            self.ask(&bootstrap).await;
        }
        let ranks = self.state.borrow().engines.get(&engine).cloned();
        let Some(ranks) = ranks else {
            let text = format!("{bootstrap} does not know engine {engine}");
            return self.fail_all(batch, LoadFailureReason::UnknownEngine, &text);
        };
        let (tp, pp) = (ranks.len() as u32, ranks[&0].len() as u32);
        let targets = match pull_targets(self.setup.local.topology, tp, pp) {
            Ok(targets) => targets,
            Err(why) => {
                return self.fail_all(batch, LoadFailureReason::Incompatible, &why.to_string());
            }
        };
        batch.values().for_each(|it| it.left.set(targets.len()));
        for (tp, pp) in targets {
            let address = ranks[&tp][&pp].clone();
            runtime::spawn_local(self.clone().pull(address, batch.clone()));
        }
    }

    /// Asks a bootstrap server, and keeps whole engines that it lists.
    async fn ask(&self, bootstrap: &str) {
        for again in 0..TRIES {
            if again > 0 {
                runtime::sleep(AGAIN * again).await;
            }
            let Ok(directory) = self.bootstrap.query(bootstrap).await else { continue };
            for entry in directory.into_values() {
                let stages = |stages: BTreeMap<u32, kvbaton_actors::transport::RankEntry>| {
                    stages.into_iter().map(|(pp, rank)| (pp, rank.address)).collect()
                };
                let ranks: Ranks =
                    entry.ranks.into_iter().map(|(tp, it)| (tp, stages(it))).collect();
                if self.is_whole(&ranks) {
                    self.state.borrow_mut().engines.insert(entry.engine_id, ranks);
                }
            }
            return;
        }
    }

    /// Whether no rank is missing: a real D would not know.
    fn is_whole(&self, ranks: &Ranks) -> bool {
        let mut addresses = ranks.values().flat_map(BTreeMap::values);
        let Some(engine) = addresses.next().and_then(|it| names::engine_of(it)) else {
            return false;
        };
        let plan = &self.setup.sim.plan.fleet.engines[usize::from(engine)];
        ranks.len() as u32 == plan.tp && ranks.values().all(|it| it.len() as u32 == plan.pp)
    }

    async fn pull(self: Rc<Self>, address: String, batch: Batch) {
        self.state.borrow_mut().pulls += 1;
        let left = self.exchange(&address, batch).await;
        if let Some((left, reason, text)) = left {
            self.fail_all(left, reason, &format!("prefill rank {address}: {text}"));
        }
        self.state.borrow_mut().pulls -= 1;
    }

    /// Pulls from one P rank. Gives back what it said nothing good about, and why.
    async fn exchange(
        &self,
        address: &str,
        mut batch: Batch,
    ) -> Option<(Batch, LoadFailureReason, String)> {
        let known = self.state.borrow().echoed.contains(address);
        let mut with_layout = self.layout_id.is_none() || !known;
        let refused = |batch, text: &str| Some((batch, LoadFailureReason::Refused, text.into()));
        'again: loop {
            let mut bytes = Vec::new();
            self.message(&batch, with_layout).encode_stock(&mut bytes);
            let mut answers = self.control.request(address, bytes.into());
            loop {
                // ZeroMQ does not tell that a connection is gone.
                let answered = async {
                    match answers.next().await {
                        Some(Ok(answer)) => answer,
                        _ => futures_util::future::pending().await,
                    }
                };
                let Ok(answer) = runtime::timeout(self.setup.load_patience(), answered).await
                else {
                    return Some((batch, LoadFailureReason::TimedOut, "no answer".into()));
                };
                let Ok(reply) = Reply::decode(&answer, &Limits::default()) else {
                    return refused(batch, "an answer that cannot be read");
                };
                let text = reply.message.as_deref().unwrap_or("no reason given");
                match reply.status {
                    Status::LayoutMiss if self.setup.kind == Kind::Stock33 => {
                        self.state.borrow_mut().echoed.remove(address);
                        if with_layout {
                            return refused(batch, text);
                        }
                        with_layout = true;
                        continue 'again;
                    }
                    Status::LayoutMiss | Status::Error => return refused(batch, text),
                    Status::Finish | Status::Continue => {}
                }
                if !self.layout_id.is_none() && reply.layout_id == self.layout_id {
                    self.state.borrow_mut().echoed.insert(address.into());
                }
                self.settle(&reply, &mut batch);
                if reply.status == Status::Finish {
                    return refused(batch, "it finished without a result");
                }
            }
        }
    }

    fn message(&self, batch: &Batch, with_layout: bool) -> Pull {
        let requests = batch.values().map(|it| PullRequest {
            request_id: it.request.clone(),
            transfer_id: it.transfer.clone(),
            groups: it.blocks.clone(),
            grant: None,
            end_token: None,
        });
        let topology = self.setup.local.topology;
        Pull {
            session: self.setup.session(),
            tp_size: topology.tp_size,
            tp_rank: topology.tp_rank,
            pp_size: topology.pp_size,
            layout_id: self.layout_id,
            layout: with_layout.then(|| super::node::columns(&self.setup.local)),
            requests: requests.collect(),
            extension: None,
        }
    }

    fn settle(&self, reply: &Reply, batch: &mut Batch) {
        let text = reply.message.as_deref().unwrap_or("no reason given");
        for request in reply.failed.iter().flatten() {
            if let Some(load) = batch.remove(request) {
                self.fail(&load, LoadFailureReason::Refused, text);
            }
        }
        for request in reply.ok.iter().flatten() {
            if let Some(load) = batch.remove(request) {
                self.complete(&load);
            }
        }
    }

    fn fail_all(&self, batch: Batch, reason: LoadFailureReason, text: &str) {
        batch.values().for_each(|load| self.fail(load, reason, text));
    }

    fn fail(&self, load: &Loading, reason: LoadFailureReason, text: &str) {
        let message = format!("request {}: {text}", load.request);
        load.failure.borrow_mut().get_or_insert(LoadFailure { reason, message });
        self.complete(load);
    }

    /// One P rank has settled for a load, or none could be asked.
    fn complete(&self, load: &Loading) {
        load.left.set(load.left.get().saturating_sub(1));
        if load.left.get() > 0 || load.blocks.iter().all(BlockList::is_empty) {
            return;
        }
        self.state.borrow_mut().loads -= 1;
        let end = match load.failure.take() {
            Some(failure) => LoadEnd::Failed(failure),
            None => LoadEnd::Loaded,
        };
        let (request, transfer) = (load.request.clone(), load.transfer.clone());
        self.events.push(Event::LoadEnded { request, transfer, end });
    }

    /// (loads, pulls).
    pub(super) fn counts(&self) -> [u64; 2] {
        let state = self.state.borrow();
        [state.loads, state.pulls]
    }
}
