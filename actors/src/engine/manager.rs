//! The lifecycle's actor: owns core's [`EngineLifecycle`], and turns its actions into orders
//! to the engine's port and the ranks' nodes.

use super::port::{EnginePort, RankPort};
use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::metric;
use actix::prelude::*;
use futures_channel::oneshot;
use futures_util::future::join_all;
use kvbaton_core::lifecycle::engine::{
    Bounds, Doing, EngineAction, EngineLifecycle, EngineOrder, Operation, OperationError,
    OperationId, OrderId, Outcome, RankOrder, Standing,
};
use kvbaton_core::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The actor.
pub(super) struct EngineManager {
    machine: EngineLifecycle,
    bounds: Bounds,
    clock: Clock,
    port: Arc<dyn EnginePort>,
    ranks: Vec<Arc<dyn RankPort>>,
    orders: BTreeMap<OrderId, SpawnHandle>,
    askers: BTreeMap<OperationId, Asker>,
    next_operation: u64,
    alarm: Alarm,
    /// The state's name and since when it is so.
    state: (&'static str, Timestamp),
}

struct Asker {
    operation: &'static str,
    since: Timestamp,
    reply: oneshot::Sender<Result<Outcome, OperationError>>,
}

impl EngineManager {
    pub fn new(
        machine: EngineLifecycle,
        bounds: Bounds,
        port: Arc<dyn EnginePort>,
        ranks: Vec<Arc<dyn RankPort>>,
    ) -> Self {
        let clock = Clock::start();
        let state = (machine.standing().name(), clock.now());
        metric::engine_state(state.0);
        Self {
            machine,
            bounds,
            clock,
            port,
            ranks,
            orders: BTreeMap::new(),
            askers: BTreeMap::new(),
            next_operation: 0,
            alarm: Alarm::default(),
            state,
        }
    }

    fn drain(&mut self, context: &mut Context<Self>) {
        while let Some(action) = self.machine.next_action() {
            match action {
                EngineAction::Engine(id, order) => self.order_engine(id, order, context),
                EngineAction::Rank(id, rank, order) => {
                    let told = self.ranks[rank].order(order, &self.bounds);
                    self.watch(id, told, context);
                }
                EngineAction::Forget(id) => {
                    if let Some(order) = self.orders.remove(&id) {
                        context.cancel_future(order);
                    }
                }
                EngineAction::Explain => self.explain(context),
                EngineAction::Answer(id, answer) => self.answer(id, answer),
                EngineAction::Changed => self.changed(),
            }
        }
        let (due, now) = (self.machine.next_deadline(), self.clock.now());
        self.alarm.set(due, now, context, |this, context| {
            this.alarm.rang();
            this.machine.tick(this.clock.now());
            this.drain(context);
        });
    }

    fn order_engine(&mut self, id: OrderId, order: EngineOrder, context: &mut Context<Self>) {
        tracing::debug!(?order, "told the engine");
        let told = self.port.order(order);
        self.watch(id, told, context);
    }

    fn watch(&mut self, id: OrderId, told: super::Told, context: &mut Context<Self>) {
        let ends = actix::fut::wrap_future::<_, Self>(told);
        let handle = context.spawn(ends.map(move |result, this, context| {
            this.orders.remove(&id);
            this.machine.done(id, result, this.clock.now());
            this.drain(context);
        }));
        self.orders.insert(id, handle);
    }

    fn explain(&self, context: &mut Context<Self>) {
        let engine = self.port.in_use();
        let ranks = join_all(self.ranks.iter().map(|rank| rank.in_use()));
        let users = async move {
            let mut users = engine.await;
            for (rank, of_rank) in ranks.await.into_iter().enumerate() {
                users.extend(of_rank.into_iter().map(|user| format!("rank {rank}: {user}")));
            }
            users
        };
        let users = actix::fut::wrap_future::<_, Self>(users);
        context.spawn(users.map(|users, this, context| {
            this.machine.explained(users, this.clock.now());
            this.drain(context);
        }));
    }

    fn answer(&mut self, id: OperationId, answer: Result<Outcome, OperationError>) {
        let Some(Asker { operation, since, reply }) = self.askers.remove(&id) else { return };
        let took = self.clock.now().since(since);
        metric::engine_operation(operation, &answer, took);
        match &answer {
            Ok(outcome) => tracing::info!(operation, ?outcome, ?took, "done"),
            Err(error) => tracing::warn!(operation, %error, ?took, "failed"),
        }
        let _ = reply.send(answer);
    }

    fn changed(&mut self) {
        let (name, now) = (self.machine.standing().name(), self.clock.now());
        if name != self.state.0 {
            metric::engine_state_left(self.state.0, now.since(self.state.1));
            metric::engine_state(name);
            self.state = (name, now);
        }
    }
}

impl Actor for EngineManager {
    type Context = Context<Self>;

    /// Ranks say from the start which weights they have: what is not said fits any `[R07]`.
    fn started(&mut self, context: &mut Self::Context) {
        let order = RankOrder::SetWeights(self.machine.standing().version);
        let told = join_all(self.ranks.iter().map(|rank| rank.order(order, &self.bounds)));
        context.spawn(actix::fut::wrap_future::<_, Self>(told).map(|_, _, _| ()));
    }
}

/// Asks for an operation.
#[derive(Message)]
#[rtype(result = "Result<Outcome, OperationError>")]
pub(super) struct Ask(pub Operation);

impl Handler<Ask> for EngineManager {
    type Result = ResponseFuture<Result<Outcome, OperationError>>;
    fn handle(&mut self, Ask(operation): Ask, context: &mut Self::Context) -> Self::Result {
        let (now, (reply, answer)) = (self.clock.now(), oneshot::channel());
        let id = OperationId(self.next_operation);
        self.next_operation += 1;
        self.askers.insert(id, Asker { operation: operation.name(), since: now, reply });
        self.machine.ask(id, operation, now);
        self.drain(context);
        Box::pin(async move { answer.await.unwrap_or(Err(OperationError::Stopped)) })
    }
}

/// Asks how the engine stands.
#[derive(Message)]
#[rtype(result = "Stands")]
pub(super) struct AskStanding;

/// How it stands.
#[derive(MessageResponse)]
pub(super) struct Stands {
    pub standing: Standing,
    pub state_for: Duration,
    pub doing: Option<(Doing, Duration)>,
}

impl Handler<AskStanding> for EngineManager {
    type Result = Stands;
    fn handle(&mut self, _: AskStanding, _: &mut Self::Context) -> Self::Result {
        let now = self.clock.now();
        Stands {
            standing: self.machine.standing(),
            state_for: now.since(self.state.1),
            doing: self.machine.doing().map(|it| (it, now.since(it.since))),
        }
    }
}
