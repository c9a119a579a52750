//! The driver of one engine: carries the scheduler's actions out on its nodes, and tells the
//! scheduler how they ended.

use super::expect;
use super::gather::Gather;
use super::lifecycle::{Orders, WeightsAt};
use super::loads::Ending;
use super::order::{Hold, Input, Order, Source, Submit, Told};
use super::start::Rank;
use crate::history::{Lane, What};
use crate::memory::SimMemory;
use crate::sim::Sim;
use crate::sites;
use crate::world::model;
use futures_channel::mpsc::UnboundedSender;
use kvbaton_actors::events::Event;
use kvbaton_core::ids::{RequestId, TransferId};
use kvbaton_model_engine::{
    Action, Comparison, ModelEngine, Outcome, PrefixChain, Request, Step, Transfer,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A request that has not ended here.
pub(super) struct Running {
    pub(super) prompt: Vec<u32>,
    pub(super) source: Option<Source>,
    told: UnboundedSender<Told>,
    /// Weights when it came.
    since: u64,
    /// Whether KV was loaded for it and not yet compared.
    pub(super) compare: bool,
}

/// One engine's process.
pub struct Host {
    pub(super) sim: Arc<Sim>,
    pub(super) engine: u16,
    pub(super) ranks: Vec<Rank>,
    pub(super) model: ModelEngine<SimMemory>,
    pub(super) inbox: UnboundedSender<Input>,
    pub(super) running: BTreeMap<RequestId, Running>,
    pub(super) loads: Gather<Ending>,
    pub(super) sends: Gather<()>,
    pub(super) orders: Orders,
    /// Transfers given up before they were held.
    given_up: BTreeSet<TransferId>,
}

impl Host {
    /// A process with these ranks.
    #[must_use]
    pub fn new(
        sim: Arc<Sim>,
        engine: u16,
        ranks: Vec<Rank>,
        model: ModelEngine<SimMemory>,
        inbox: UnboundedSender<Input>,
    ) -> Self {
        Self {
            sim,
            engine,
            ranks,
            model,
            inbox,
            running: BTreeMap::new(),
            loads: Gather::default(),
            sends: Gather::default(),
            orders: Orders::default(),
            given_up: BTreeSet::new(),
        }
    }

    pub(super) fn note(&self, what: What) {
        self.sim.note(Lane::Engine(self.engine), what);
    }

    pub(super) fn weights(&mut self) -> u64 {
        self.model.scheduler().weights().version
    }

    /// Takes one input and does all that follows from it.
    pub async fn take(&mut self, input: Input) {
        match input {
            Input::Order(order) => self.order(order).await,
            Input::Event(rank, event) => self.event(rank, event).await,
            Input::StepDone(step) => {
                self.compare(&step);
                self.model.run(&step);
            }
            Input::HoldNow(hold) => self.hold(*hold).await,
            Input::Asked(asked) => self.asked(asked),
            Input::OrderNow => self.order_now(),
        }
        self.drain().await;
        self.answer_orders();
    }

    async fn order(&mut self, order: Order) {
        match order {
            Order::Submit(submit) => self.submit(submit).await,
            Order::Abort(request) => {
                self.model.abort(&request);
            }
            Order::GiveBack => {
                self.model.scheduler().preempt_all();
                self.release_all().await;
            }
            Order::SetWeights(version) => {
                for rank in &self.ranks {
                    rank.port.set_weights(version).await;
                    rank.witness.note(What::WeightsSet { version: version.0 });
                }
            }
            Order::Unregister(reply) => self.unregister(reply),
            Order::Restore(reply) => self.restore(reply),
            Order::ReleaseAll => self.release_all().await,
            Order::Inspect(reply) => self.inspect(reply).await,
        }
    }

    async fn submit(&mut self, submit: Submit) {
        let Submit { request, transfer, prompt, max_tokens, source, told } = submit;
        let since = self.weights();
        let taken = self.model.add_request(Request {
            id: request.clone(),
            prompt: prompt.clone(),
            max_tokens: if source.is_some() { max_tokens as usize } else { 1 },
            transfer: match source {
                Some(_) => Transfer::Load(transfer.clone()),
                None => Transfer::Send(transfer.clone()),
            },
        });
        if let Err(why) = taken {
            let _ = told.unbounded_send(Told::Refused(why.to_string().into()));
            return;
        }
        if source.is_none() {
            for rank in &self.ranks {
                if rank.port.started(request.clone(), transfer.clone()).await {
                    rank.witness.prefill_started(&request, &transfer);
                }
            }
        }
        let running = Running { prompt, source, told, since, compare: false };
        self.running.insert(request, running);
    }

    async fn event(&mut self, rank: usize, event: Event) {
        self.ranks[rank].witness.told(&event);
        match event {
            Event::SendEnded { request, .. } => self.sent(rank, &request),
            Event::LoadEnded { request, end, .. } => {
                self.loaded(rank, &request, Ending::from(&end)).await;
            }
        }
    }

    /// Carries out what the scheduler wants. Loads that it starts together share a pull.
    async fn drain(&mut self) {
        loop {
            let mut loads = Vec::new();
            while let Some(action) = self.model.next_action() {
                match action {
                    Action::Load { request, transfer, blocks, end_token, .. } => {
                        loads.extend(self.load(request, transfer, blocks, Some(end_token)));
                    }
                    other => self.carry_out(other).await,
                }
            }
            if loads.is_empty() {
                return;
            }
            self.start_loads(loads).await;
        }
    }

    async fn carry_out(&mut self, action: Action) {
        match action {
            Action::Compute(step) => self.compute(step),
            Action::Hold { request, transfer, blocks, end_token } => {
                let hold = Hold { request, transfer, blocks, end_token };
                if self.sim.fires(sites::HOLD_LATE, self.engine) {
                    let late = self.sim.some_ms("hold late", self.engine, 1, 500);
                    return self.send_later(late, Input::HoldNow(Box::new(hold)));
                }
                self.hold(hold).await;
            }
            Action::Release { request, transfer } => {
                let held = self.sends.contains(&request);
                if !held {
                    self.given_up.insert(transfer.clone());
                }
                for rank in &self.ranks {
                    rank.witness.release_asked(&transfer);
                    rank.port.release(transfer.clone(), held).await;
                }
            }
            Action::DropLoad { request, .. } => self.drop_load(&request).await,
            Action::ReleaseRemote { request, transfer } => {
                let load = self.load(request, transfer, Vec::new(), None);
                let Some(load) = load else { return };
                for rank in &self.ranks {
                    rank.witness.remote_release_asked(&load);
                    rank.port.release_remote(load.clone()).await;
                }
            }
            Action::Free { .. } => {}
            Action::Answer { request, outcome } => self.answer(&request, outcome),
            Action::Load { .. } => unreachable!("`drain` collects the loads"),
        }
    }

    fn answer(&mut self, request: &RequestId, outcome: Outcome) {
        let now = self.weights();
        let Some(running) = self.running.remove(request) else { return };
        let told = match outcome {
            Outcome::Tokens(tokens) => {
                let shape = self.model.scheduler().shape().clone();
                let lived = (running.since, now);
                let expected = expect::answers(&shape, &running.prompt, &tokens, lived);
                Told::Tokens { tokens, expected }
            }
            Outcome::LoadFailed => Told::LoadFailed,
            Outcome::Aborted => Told::Aborted,
        };
        // The client may have gone.
        let _ = running.told.unbounded_send(told);
    }

    /// Sends a step out: it is carried out when its time has come.
    fn compute(&mut self, step: Step) {
        assert_eq!(self.orders.weights, WeightsAt::Mapped, "it computes without weights [S05]");
        let tokens = (step.to - step.from) as u64;
        let slow = self.sim.fires(sites::COMPUTE_SLOW, self.engine);
        let more = if slow { self.sim.some_ms("compute", self.engine, 1, 300) } else { 0 };
        self.send_later(2_000_000 + tokens * 100_000 + more, Input::StepDone(Box::new(step)));
    }

    /// The first step after a load finds the whole prompt's KV in memory: that is the time
    /// to compare it.
    fn compare(&mut self, step: &Step) {
        let Some(running) = self.running.get_mut(&step.request) else { return };
        let loaded = std::mem::take(&mut running.compare);
        if !loaded || step.from != step.to || step.to < running.prompt.len() {
            return;
        }
        let prompt = running.prompt.clone();
        if step.to != prompt.len() {
            return;
        }
        let version = self.weights();
        let prefix = PrefixChain::new(model::weights(version), &prompt).hashes().to_vec();
        let whole = Step { from: 0, prefix, ..step.clone() };
        let mut found = Comparison::default();
        for (rank, here) in self.model.ranks().iter().zip(&self.ranks) {
            found.add(rank.compare(&here.memory, &whole));
        }
        let request = step.request.clone();
        let (bytes, different) = (found.bytes, found.different);
        self.note(What::Compared { request, bytes, different });
    }

    pub(super) fn send_later(&self, nanos: u64, input: Input) {
        let inbox = self.inbox.clone();
        self.sim.after(nanos, move || {
            let _ = inbox.unbounded_send(input);
        });
    }

    pub(super) fn was_given_up(&mut self, transfer: &TransferId) -> bool {
        self.given_up.remove(transfer)
    }
}
