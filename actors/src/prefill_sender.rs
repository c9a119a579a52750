//! P's actor: owns core's [`Sender`] and turns its actions into answers and writes.

use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::events::{Event, EventQueue};
use crate::layout_cache::PeerPlan;
use crate::metric;
use crate::transport::{Answer, DataPlane, PeerKind, Write, WriteId, WriteOutcome};
use actix::prelude::*;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{RequestId, TransferId, WeightVersion};
use kvbaton_core::sender::{
    PullId, ResolvedPull, SendError, SendInUse, SendUse, SendWriteId, Sender, SenderAction,
    StartWrite, WriteResult,
};
use kvbaton_core::time::Timestamp;
use kvbaton_core::wire::{DropTransfers, FailureReason, Status};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The actor.
pub struct PrefillSender {
    machine: Sender<PeerPlan>,
    clock: Clock,
    data: Arc<dyn DataPlane>,
    events: EventQueue,
    answers: BTreeMap<PullId, (Answer, Timestamp)>,
    next_pull: u64,
    /// Memory is going away or gone: no holds, no pulls `[S01]`.
    frozen: bool,
    alarm: Alarm,
    encoded: Vec<u8>,
}

impl PrefillSender {
    /// An actor around `machine`; it takes holds once [`Thaw`] says so.
    pub fn new(
        machine: Sender<PeerPlan>,
        clock: Clock,
        data: Arc<dyn DataPlane>,
        events: EventQueue,
    ) -> Self {
        Self {
            machine,
            clock,
            data,
            events,
            answers: BTreeMap::new(),
            next_pull: 0,
            frozen: true,
            alarm: Alarm::default(),
            encoded: Vec::new(),
        }
    }

    /// Names a pull, and notes where its answers go.
    fn expect_answers(&mut self, answer: Answer, since: Timestamp) -> PullId {
        let id = PullId(self.next_pull);
        self.next_pull += 1;
        self.answers.insert(id, (answer, since));
        id
    }

    fn drain(&mut self, context: &mut Context<Self>) {
        while let Some(action) = self.machine.next_action() {
            match action {
                SenderAction::Answer { pull, reply } => self.answer(pull, &reply),
                SenderAction::Write(start) => self.write(start, context),
                SenderAction::CancelWrite(write) => self.data.cancel(WriteId(write.0)),
                SenderAction::Finished { request, transfer, ended } => {
                    metric::send_ended(ended);
                    tracing::debug!(%request, %transfer, ?ended, "blocks are given back");
                    self.events.push(Event::SendEnded { request, transfer, ended });
                }
            }
        }
        metric::sender(&self.machine);
        self.arm(context);
    }

    fn answer(&mut self, pull: PullId, reply: &kvbaton_core::wire::Reply) {
        metric::answered(reply);
        tracing::debug!(
            id = pull.0, status = ?reply.status, ok = ?reply.ok, failed = ?reply.failed,
            message = reply.message, "answered"
        );
        self.encoded.clear();
        reply.encode(&mut self.encoded);
        let Some((answer, since)) = self.answers.get(&pull) else { return };
        answer(bytes::Bytes::copy_from_slice(&self.encoded));
        if reply.status != Status::Continue {
            metric::pull_time(self.clock.now().since(*since));
            self.answers.remove(&pull);
        }
    }

    fn write(&mut self, start: StartWrite<PeerPlan>, context: &mut Context<Self>) {
        let bytes: u64 = start.copies.iter().map(|copy| copy.len.0).sum();
        let started = self.clock.now();
        let span = tracing::debug_span!(
            "write", transfer = %start.transfer, session = %start.reader.session,
            copies = start.copies.len(), bytes
        );
        let kind = if start.grant.is_some() { PeerKind::Kvbaton } else { PeerKind::Mooncake };
        let outcome = span.in_scope(|| {
            self.data.write(Write {
                id: WriteId(start.write.0),
                session: start.reader.session.clone(),
                kind,
                generation: start.generation,
                grant: start.grant,
                keys: start.layout.keys.clone(),
                copies: start.copies,
                timeout: start.timeout,
            })
        });
        let peer = start.reader.session;
        context.spawn(actix::fut::wrap_future::<_, Self>(outcome).map(
            move |outcome, this, context| {
                metric::write_ended(&outcome, bytes, this.clock.now().since(started));
                span.in_scope(|| tracing::debug!(?outcome, "ended"));
                let result = match outcome {
                    WriteOutcome::Written => WriteResult::Written,
                    WriteOutcome::Rejected(why) => WriteResult::Failed {
                        settled: true,
                        message: format!("{peer} refused the write: {why}"),
                    },
                    WriteOutcome::Failed { error, settled } => {
                        WriteResult::Failed { settled, message: error.to_string() }
                    }
                };
                this.write_done(start.write, result, context);
            },
        ));
    }

    fn write_done(&mut self, write: SendWriteId, result: WriteResult, context: &mut Context<Self>) {
        self.machine.write_done(write, result, self.clock.now());
        self.drain(context);
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

impl Actor for PrefillSender {
    type Context = Context<Self>;
}

/// A pull whose layout is resolved; `pull.id` is set here.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Pulled {
    /// The pull.
    pub pull: ResolvedPull<PeerPlan>,
    /// Where its answers go.
    pub answer: Answer,
    /// When it came.
    pub since: Timestamp,
}

impl Handler<Pulled> for PrefillSender {
    type Result = ();
    fn handle(&mut self, message: Pulled, context: &mut Self::Context) {
        let Pulled { mut pull, answer, since } = message;
        pull.id = self.expect_answers(answer, since);
        let span = tracing::debug_span!("pull", id = pull.id.0, session = %pull.reader.session);
        span.in_scope(|| {
            for wanted in &pull.requests {
                let (request, transfer) = (&wanted.request_id, &wanted.transfer_id);
                tracing::debug!(%request, %transfer, "pulled");
            }
        });
        self.machine.pull(pull, self.clock.now());
        if self.frozen {
            self.machine.refuse_open_pulls(self.clock.now());
        }
        self.drain(context);
    }
}

/// A pull that fails whole, for every request that it names.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Refused {
    /// Its requests.
    pub requests: Vec<RequestId>,
    /// Why.
    pub why: FailureReason,
    /// The same for operators.
    pub text: &'static str,
    /// Whether D is one of ours.
    pub extended: bool,
    /// Where the answer goes.
    pub answer: Answer,
    /// When it came.
    pub since: Timestamp,
}

impl Handler<Refused> for PrefillSender {
    type Result = ();
    fn handle(&mut self, refused: Refused, context: &mut Self::Context) {
        let id = self.expect_answers(refused.answer, refused.since);
        let Refused { requests, why, text, extended, .. } = refused;
        self.machine.refuse_pull(id, &requests, why, text, extended);
        self.drain(context);
    }
}

/// D dropped transfers.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Dropped(
    /// The message.
    pub DropTransfers,
);

impl Handler<Dropped> for PrefillSender {
    type Result = ();
    fn handle(&mut self, Dropped(drop): Dropped, context: &mut Self::Context) {
        self.machine.drop_transfers(&drop, self.clock.now());
        self.drain(context);
    }
}

/// What P's engine says.
#[derive(Message, Debug, Clone)]
#[rtype(result = "Result<(), HoldError>")]
pub enum FromEngine {
    /// A request that D will pull is scheduled.
    Started {
        /// P's request.
        request: RequestId,
        /// The transfer.
        transfer: TransferId,
    },
    /// A request is finished; its blocks wait for D.
    Hold {
        /// P's request.
        request: RequestId,
        /// The transfer.
        transfer: TransferId,
        /// Logical blocks per group.
        blocks: Vec<BlockList>,
        /// Tokens up to the end of the blocks.
        end_token: Option<u32>,
    },
    /// A request was aborted before it was held.
    Abort(TransferId),
    /// A held request's blocks are wanted back.
    Release(TransferId),
    /// Every held request's blocks are wanted back.
    ReleaseAll,
}

/// Why P's engine was refused. Its blocks stay with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HoldError {
    /// The machine refused.
    #[error(transparent)]
    Send(#[from] SendError),
    /// No memory.
    #[error(
        "request {0} cannot be held: KV memory is not registered; register it first, or wake the node"
    )]
    NotRegistered(RequestId),
}

impl Handler<FromEngine> for PrefillSender {
    type Result = Result<(), HoldError>;
    fn handle(&mut self, message: FromEngine, context: &mut Self::Context) -> Self::Result {
        let now = self.clock.now();
        let result = match message {
            FromEngine::Hold { request, .. } | FromEngine::Started { request, .. }
                if self.frozen =>
            {
                return Err(HoldError::NotRegistered(request));
            }
            FromEngine::Started { request, transfer } => {
                self.machine.prefill_started(request, transfer, now)
            }
            FromEngine::Hold { request, transfer, blocks, end_token } => {
                self.machine.hold(request, transfer, blocks, end_token, now)
            }
            FromEngine::Abort(transfer) => {
                self.machine.abort(&transfer, now);
                Ok(())
            }
            FromEngine::Release(transfer) => {
                self.machine.release(&transfer, now);
                Ok(())
            }
            FromEngine::ReleaseAll => {
                self.machine.release_all(now);
                Ok(())
            }
        };
        self.drain(context);
        Ok(result?)
    }
}

/// P's engine needs every block back: D is told to recompute `[R03]`.
#[derive(Message, Debug, Clone, Copy)]
#[rtype(result = "()")]
pub struct AbortTransfers;

impl Handler<AbortTransfers> for PrefillSender {
    type Result = ();
    fn handle(&mut self, _: AbortTransfers, context: &mut Self::Context) {
        self.machine.abort_transfers(self.clock.now());
        self.drain(context);
    }
}

/// P's engine runs other weights from now on `[R07]`.
#[derive(Message, Debug, Clone, Copy)]
#[rtype(result = "()")]
pub struct SetWeights(
    /// The version; 0 when the engine does not say.
    pub WeightVersion,
);

impl Handler<SetWeights> for PrefillSender {
    type Result = ();
    fn handle(&mut self, SetWeights(version): SetWeights, context: &mut Self::Context) {
        self.machine.set_weights(version, self.clock.now());
        self.drain(context);
    }
}

/// Stops taking holds and pulls if nothing uses local memory; else says what does `[S01]`.
#[derive(Message)]
#[rtype(result = "Result<(), Vec<String>>")]
pub struct Freeze;

impl Handler<Freeze> for PrefillSender {
    type Result = Result<(), Vec<String>>;
    fn handle(&mut self, _: Freeze, context: &mut Self::Context) -> Self::Result {
        let now = self.clock.now();
        self.machine.tick(now); // what has expired does not count
        let users: Vec<String> = self.machine.in_use().map(|it| words(it, now)).collect();
        if !users.is_empty() {
            self.drain(context);
            return Err(users);
        }
        self.frozen = true;
        self.machine.refuse_open_pulls(now);
        self.drain(context);
        Ok(())
    }
}

/// Asks what uses local memory, in words.
#[derive(Message)]
#[rtype(result = "Vec<String>")]
pub struct AskInUse;

impl Handler<AskInUse> for PrefillSender {
    type Result = Vec<String>;
    fn handle(&mut self, _: AskInUse, _: &mut Self::Context) -> Self::Result {
        let now = self.clock.now();
        self.machine.in_use().map(|it| words(it, now)).collect()
    }
}

/// Who uses memory, for what, for how long.
fn words(of: SendInUse<'_>, now: Timestamp) -> String {
    let SendInUse { transfer, request, state, since } = of;
    let who = match request {
        Some(request) => format!("request {request} (transfer {transfer})"),
        None => format!("transfer {transfer}"),
    };
    let took = now.since(since).as_secs_f64();
    match state {
        SendUse::WaitsForD => format!("{who} waits for D, for {took:.1} s so far"),
        SendUse::WrittenTo(session) => {
            format!("{who} is being written to {session}, for {took:.1} s so far")
        }
    }
}

/// Takes holds and pulls again.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Thaw;

impl Handler<Thaw> for PrefillSender {
    type Result = ();
    fn handle(&mut self, _: Thaw, _: &mut Self::Context) {
        self.frozen = false;
    }
}

/// How P's side stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SenderStatus {
    /// Requests held for D.
    pub held: usize,
    /// Transfers known.
    pub transfers: usize,
    /// Writes in flight.
    pub writes: usize,
    /// Pulls without a terminal answer.
    pub open_pulls: usize,
}

/// Asks how P's side stands.
#[derive(Message)]
#[rtype(result = "SenderStatus")]
pub struct AskSender;

impl Handler<AskSender> for PrefillSender {
    type Result = MessageResult<AskSender>;
    fn handle(&mut self, _: AskSender, _: &mut Self::Context) -> Self::Result {
        MessageResult(SenderStatus {
            held: self.machine.held(),
            transfers: self.machine.transfers(),
            writes: self.machine.writes(),
            open_pulls: self.machine.open_pulls(),
        })
    }
}
