//! D's actor: owns core's [`Receiver`] and turns its actions into pulls and grants.

use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::discovery::{Ask, Discovery};
use crate::events::{Event, EventQueue};
use crate::metric;
use crate::transport::{ControlPlane, DataPlane, GrantedRows, TransportError};
use actix::prelude::*;
use bytes::Bytes;
use futures_util::StreamExt;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::directory::EngineRanks;
use kvbaton_core::ids::{EngineId, Generation, Grant, RequestId, WeightVersion};
use kvbaton_core::layout::GrantableRows;
use kvbaton_core::receiver::{
    Form, LoadEnd, LoadError, LoadInUse, LoadSpec, LoadUse, Receiver, ReceiverAction, Registered,
};
use kvbaton_core::sender::PullId;
use kvbaton_core::time::Timestamp;
use kvbaton_core::wire::{DropTransfers, Limits, Pull, PullRequest, Reply};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long a drop message may take; nothing waits for it.
const DROP_BOUND: Duration = Duration::from_secs(5);

/// The actor.
pub struct DecodeReceiver {
    machine: Receiver,
    clock: Clock,
    control: Rc<dyn ControlPlane>,
    data: Arc<dyn DataPlane>,
    events: EventQueue,
    discovery: Option<Addr<Discovery>>,
    rows: Option<Arc<GrantableRows>>,
    limits: Limits,
    pulls: BTreeMap<PullId, SpawnHandle>,
    started: BTreeMap<RequestId, Timestamp>,
    alarm: Alarm,
}

impl DecodeReceiver {
    /// An actor around `machine`; loads are refused until [`Enter`].
    pub fn new(
        machine: Receiver,
        clock: Clock,
        control: Rc<dyn ControlPlane>,
        data: Arc<dyn DataPlane>,
        events: EventQueue,
        limits: Limits,
    ) -> Self {
        Self {
            machine,
            clock,
            control,
            data,
            events,
            discovery: None,
            rows: None,
            limits,
            pulls: BTreeMap::new(),
            started: BTreeMap::new(),
            alarm: Alarm::default(),
        }
    }

    fn drain(&mut self, context: &mut Context<Self>) {
        while let Some(action) = self.machine.next_action() {
            match action {
                ReceiverAction::Discover { bootstrap } => {
                    if let Some(discovery) = &self.discovery {
                        discovery.do_send(Ask(bootstrap));
                    }
                }
                ReceiverAction::OpenGrant { grant, generation, blocks, allow_ungranted } => {
                    self.open_grant(grant, generation, &blocks, allow_ungranted);
                }
                ReceiverAction::Pull { id, address, form, pull } => {
                    self.pull(id, &address, form, &pull, context);
                }
                ReceiverAction::ClosePull(id) => {
                    if let Some(handle) = self.pulls.remove(&id) {
                        context.cancel_future(handle);
                    }
                }
                ReceiverAction::Drop { address, drop } => self.tell_drop(&address, &drop),
                ReceiverAction::Revoke(grant) => self.revoke(grant, context),
                ReceiverAction::Ended { request, transfer, end } => {
                    let took = self.started.remove(&request);
                    metric::load_ended(&end, took.map(|since| self.clock.now().since(since)));
                    if let LoadEnd::Failed(failure) = &end {
                        tracing::warn!(%request, %transfer, reason = ?failure.reason, "{}", failure.message);
                    }
                    self.events.push(Event::LoadEnded { request, transfer, end });
                }
            }
        }
        metric::receiver(&self.machine);
        self.arm(context);
    }

    fn open_grant(
        &mut self,
        grant: Grant,
        generation: Generation,
        blocks: &[BlockList],
        allow_ungranted: bool,
    ) {
        let Some(grantable) = &self.rows else { return };
        let mut rows = Vec::new();
        grantable.granted_rows(blocks, &mut rows);
        let rows = GrantedRows { grant, generation, rows, allow_ungranted };
        if let Err(error) = self.data.open_grant(rows) {
            self.machine.grant_refused(grant, &error.to_string(), self.clock.now());
        }
    }

    fn pull(
        &mut self,
        id: PullId,
        address: &str,
        form: Form,
        pull: &Pull,
        context: &mut Context<Self>,
    ) {
        let mut message = Vec::with_capacity(512);
        match form {
            Form::Stock => pull.encode_stock(&mut message),
            Form::Compact => pull.encode_compact(&mut message),
        }
        metric::pull_sent(pull.layout.is_some(), message.len());
        let named = |name: fn(&PullRequest) -> &str| {
            pull.requests.iter().map(name).collect::<Vec<_>>().join(",")
        };
        let span = tracing::debug_span!(
            "pull", %address, bytes = message.len(), layout = pull.layout.is_some(),
            requests = named(|it| it.request_id.as_str()),
            transfers = named(|it| it.transfer_id.as_str()),
        );
        span.in_scope(|| tracing::debug!("sent"));
        let answers = self.control.request(address, Bytes::from(message));
        let peer: Arc<str> = address.into();
        let ended =
            futures_util::stream::once(std::future::ready(Err(TransportError::Disconnected {
                peer: address.into(),
                reason: "no answer follows".into(),
            })));
        let handled = actix::fut::wrap_stream::<_, Self>(answers.chain(ended))
            .map(move |answer, this, context| {
                span.in_scope(|| this.answered(id, &peer, answer));
                this.drain(context);
                // After the last answer the connection is of no use: P may have few left.
                if !this.machine.is_open(id)
                    && let Some(handle) = this.pulls.remove(&id)
                {
                    context.cancel_future(handle);
                }
            })
            .finish();
        let handle = context.spawn(handled);
        self.pulls.insert(id, handle);
    }

    fn answered(&mut self, id: PullId, peer: &str, answer: Result<Bytes, TransportError>) {
        let now = self.clock.now();
        let reply = match answer {
            Ok(bytes) => Reply::decode(&bytes, &self.limits).map_err(|error| {
                format!("{peer} sent an answer that cannot be read ({error}); is it a prefill?")
            }),
            Err(error) => {
                let sent = !matches!(
                    error,
                    TransportError::Unreachable { .. }
                        | TransportError::AddressNotAllowed { .. }
                        | TransportError::NotAuthentic { .. }
                );
                return self.machine.pull_failed(id, sent, &error.to_string(), now);
            }
        };
        match reply {
            Ok(reply) => {
                metric::reply(&reply);
                tracing::debug!(status = ?reply.status, ok = ?reply.ok, failed = ?reply.failed, "answered");
                self.machine.reply(id, reply, now);
            }
            Err(error) => self.machine.pull_failed(id, true, &error, now),
        }
    }

    fn tell_drop(&mut self, address: &str, drop: &DropTransfers) {
        let mut message = Vec::with_capacity(256);
        drop.encode(&mut message);
        let mut answers = self.control.request(address, Bytes::from(message));
        crate::runtime::spawn_local(async move {
            // The answer only tells that P has read it; a dead P is fine too.
            let _ = crate::runtime::timeout(DROP_BOUND, answers.next()).await;
        });
    }

    fn revoke(&mut self, grant: Grant, context: &mut Context<Self>) {
        let revoked = self.data.revoke(grant);
        let done = actix::fut::wrap_future::<_, Self>(revoked).map(move |found, this, context| {
            metric::revoked(found.was_live);
            this.machine.revoked(grant);
            this.drain(context);
        });
        context.spawn(done);
    }

    /// Rings at the machine's next deadline.
    fn arm(&mut self, context: &mut Context<Self>) {
        let (due, now) = (self.machine.next_deadline(), self.clock.now());
        self.alarm.set(due, now, context, |this, context| {
            this.alarm.rang();
            this.machine.tick(this.clock.now());
            this.drain(context);
        });
    }
}

impl Actor for DecodeReceiver {
    type Context = Context<Self>;
}

/// Whom to ask about P's ranks.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Connect(
    /// The actor that asks bootstrap servers.
    pub Addr<Discovery>,
);

impl Handler<Connect> for DecodeReceiver {
    type Result = ();
    fn handle(&mut self, Connect(discovery): Connect, _: &mut Self::Context) {
        self.discovery = Some(discovery);
    }
}

/// A bootstrap server answered.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Discovered {
    /// The server.
    pub bootstrap: Arc<str>,
    /// Its engines, or why it could not be asked.
    pub answer: Result<Vec<(EngineId, EngineRanks)>, String>,
}

impl Handler<Discovered> for DecodeReceiver {
    type Result = ();
    fn handle(&mut self, message: Discovered, context: &mut Self::Context) {
        self.machine.discovered(&message.bootstrap, message.answer, self.clock.now());
        self.drain(context);
    }
}

/// Loads to start together: those of one engine share a pull.
#[derive(Message)]
#[rtype(result = "Vec<Result<(), LoadError>>")]
pub struct StartLoads(
    /// What to load.
    pub Vec<LoadSpec>,
);

impl Handler<StartLoads> for DecodeReceiver {
    type Result = Vec<Result<(), LoadError>>;
    fn handle(
        &mut self,
        StartLoads(specs): StartLoads,
        context: &mut Self::Context,
    ) -> Self::Result {
        let now = self.clock.now();
        let mut results = Vec::with_capacity(specs.len());
        for spec in specs {
            let request = spec.request.clone();
            let taken = self.machine.load(spec, now);
            if taken.is_ok() {
                self.started.insert(request, now);
            }
            results.push(taken);
        }
        self.machine.flush(now);
        self.drain(context);
        results
    }
}

/// D's engine does not want these loads any more.
#[derive(Message)]
#[rtype(result = "()")]
pub struct DropLoads(
    /// D's requests.
    pub Vec<RequestId>,
);

impl Handler<DropLoads> for DecodeReceiver {
    type Result = ();
    fn handle(&mut self, DropLoads(requests): DropLoads, context: &mut Self::Context) {
        let now = self.clock.now();
        for request in &requests {
            self.machine.drop_load(request, now);
        }
        self.drain(context);
    }
}

/// Memory is registered: loads are taken from now on.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Enter {
    /// What pulls say of it.
    pub registered: Registered,
    /// Rows that loads can open.
    pub rows: Arc<GrantableRows>,
}

impl Handler<Enter> for DecodeReceiver {
    type Result = ();
    fn handle(&mut self, message: Enter, _: &mut Self::Context) {
        self.machine.register(message.registered);
        self.rows = Some(message.rows);
    }
}

/// D's engine needs every block back: loads fail as reset, and P is asked to drop them `[R03]`.
#[derive(Message, Debug, Clone, Copy)]
#[rtype(result = "()")]
pub struct AbortTransfers;

impl Handler<AbortTransfers> for DecodeReceiver {
    type Result = ();
    fn handle(&mut self, _: AbortTransfers, context: &mut Self::Context) {
        self.machine.abort_transfers(self.clock.now());
        self.drain(context);
    }
}

/// D's engine runs other weights from now on: what loads fails `[R07]`.
#[derive(Message, Debug, Clone, Copy)]
#[rtype(result = "()")]
pub struct SetWeights(
    /// The version; 0 when the engine does not say.
    pub WeightVersion,
);

impl Handler<SetWeights> for DecodeReceiver {
    type Result = ();
    fn handle(&mut self, SetWeights(version): SetWeights, context: &mut Self::Context) {
        self.machine.set_weights(version, self.clock.now());
        self.drain(context);
    }
}

/// Stops taking loads if none runs; else says which do `[S01]`.
#[derive(Message)]
#[rtype(result = "Result<(), Vec<String>>")]
pub struct Leave;

impl Handler<Leave> for DecodeReceiver {
    type Result = Result<(), Vec<String>>;
    fn handle(&mut self, _: Leave, context: &mut Self::Context) -> Self::Result {
        let now = self.clock.now();
        let users: Vec<String> = self.machine.in_use().map(|it| words(&it, now)).collect();
        if !users.is_empty() {
            return Err(users);
        }
        self.machine.unregister(now);
        self.rows = None;
        self.drain(context);
        Ok(())
    }
}

/// Asks what uses local memory, in words.
#[derive(Message)]
#[rtype(result = "Vec<String>")]
pub struct AskInUse;

impl Handler<AskInUse> for DecodeReceiver {
    type Result = Vec<String>;
    fn handle(&mut self, _: AskInUse, _: &mut Self::Context) -> Self::Result {
        let now = self.clock.now();
        self.machine.in_use().map(|it| words(&it, now)).collect()
    }
}

/// Which load uses memory, what it waits for, for how long.
fn words(of: &LoadInUse<'_>, now: Timestamp) -> String {
    let LoadInUse { request, transfer, engine, .. } = of;
    let took = now.since(of.since).as_secs_f64();
    let waits_for = match of.state {
        LoadUse::Flush => "to be sent".to_owned(),
        LoadUse::Bootstrap => "bootstrap server".to_owned(),
        LoadUse::EarlierWriter => "an earlier stock writer of its blocks".to_owned(),
        LoadUse::Prefill => of.outstanding.join(", "),
        LoadUse::Revoke => "its grant is being revoked".to_owned(),
    };
    format!(
        "request {request} loads transfer {transfer} from engine {engine} ({waits_for}), \
         for {took:.1} s so far"
    )
}

/// How D's side stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceiverStatus {
    /// Loads that have not ended.
    pub loads: usize,
    /// Pulls without their last answer.
    pub open_pulls: usize,
}

/// Asks how D's side stands.
#[derive(Message)]
#[rtype(result = "ReceiverStatus")]
pub struct AskReceiver;

impl Handler<AskReceiver> for DecodeReceiver {
    type Result = MessageResult<AskReceiver>;
    fn handle(&mut self, _: AskReceiver, _: &mut Self::Context) -> Self::Result {
        MessageResult(ReceiverStatus {
            loads: self.machine.loads(),
            open_pulls: self.machine.open_pulls(),
        })
    }
}
