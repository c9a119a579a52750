//! One rank of P: its engine's blocks, its layout table, its sender and its registration.
//!
//! What lies between the machines is what the actors of a node do.

use crate::coverage::Seen;
use crate::data_plane::{Write, pieces};
use crate::memo::Output;
use crate::memory::{Plan, foreign_pull, prefill_layout};
use crate::names::{generation, incarnation, layout_id, number, prefill_request, transfer};
use crate::network::{Letter, Packet};
use crate::options::{Broken, Options};
use crate::rules::Rule;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{Generation, Grant, Incarnation, LayoutId, RequestId};
use kvbaton_core::lifecycle::{Lifecycle, Names, State};
use kvbaton_core::peer_layouts::{LayoutTable, Resolution};
use kvbaton_core::sender::{
    Ended, PullId, Reader, ResolvedPull, SendWriteId, Sender, SenderAction, SenderConfig,
    StartWrite, WriteResult,
};
use kvbaton_core::time::Timestamp;
use kvbaton_core::wire::{
    DropTransfers, FailureReason, Pull, REVISION, Reply, ReplyExtension, Status,
};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

/// Time that a drain gets `[S01]`.
pub const DRAIN: Duration = Duration::from_secs(60);

/// A P rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Prefill {
    /// Its place.
    pub rank: u8,
    /// Core's machine.
    pub sender: Sender<Plan>,
    /// Core's machine.
    pub lifecycle: Lifecycle,
    table: LayoutTable,
    run: Incarnation,
    /// Restarts of its engine before this process.
    restarts: u8,
    registration: u8,
    frozen: bool,
    now: Timestamp,
    /// Transfers whose blocks the sender has, one bit each.
    pub held: u8,
    /// Transfers whose prefill has yet to end, one bit each.
    pub running: u8,
    /// Pulls without their last answer.
    pub pulls: BTreeMap<PullId, Asked>,
}

/// A pull as it came.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Asked {
    /// D's name of it.
    pub id: PullId,
    /// Restarts of the engine that the loads are meant for.
    engine: u8,
    layout_id: LayoutId,
    generation: Option<Generation>,
    grants: Vec<Option<Grant>>,
    /// Requests without an answer.
    unanswered: Vec<RequestId>,
}

/// What a rank takes in.
#[derive(Debug, Clone, Hash)]
pub enum PrefillInput {
    /// Its engine has finished a request.
    Hold(u8),
    /// Its engine gives a request up.
    Release(u8),
    /// A pull or a drop arrives. The pull's loads name P's engine after so many restarts.
    Letter(Letter, u8),
    /// A write has ended.
    WriteDone(SendWriteId, WriteResult),
    /// Another D's layout takes our D's place `[L08]`.
    Evict,
    /// The engine asks for the registration's end.
    Sleep,
    /// The drain is over.
    Leave,
    /// Memory is registered again, elsewhere.
    Wake,
    /// The clock moves on; what is due has not been done yet.
    Advance(Timestamp),
    /// What is due is done.
    Tick,
}

/// Writes of a rank that run: how many, and the transfers that they read, one bit each.
#[derive(Debug, Clone, Copy, Default, Hash)]
pub struct Running {
    /// How many.
    pub count: u8,
    /// Transfers.
    pub read: u8,
}

impl Running {
    /// Those of `rank`.
    pub fn of(rank: u8, writes: &[Write]) -> Self {
        let mut running = Self::default();
        writes.iter().filter(|it| it.rank == rank && !it.orphan).for_each(|it| running.add(it));
        running
    }

    fn add(&mut self, write: &Write) {
        self.count += 1;
        self.read |= 1 << write.transfer;
    }
}

impl Prefill {
    /// The rank after so many restarts of its engine.
    pub fn new(rank: u8, restarts: u8, options: &Options) -> Self {
        let same = options.broken == Some(Broken::SameIncarnation);
        let run = incarnation(if same { 0 } else { restarts });
        let config = SenderConfig {
            senders: options.slots.into(),
            senders_per_peer: options.slots.into(),
            ..SenderConfig::default()
        };
        let mut rank = Self {
            rank,
            sender: Sender::new(config, run, 0),
            lifecycle: Lifecycle::default(),
            table: LayoutTable::new(NonZeroUsize::MIN, 1 << 20),
            run,
            restarts,
            registration: restarts * 4,
            frozen: false,
            now: Timestamp(0),
            held: 0,
            running: (1 << options.loads) - 1,
            pulls: BTreeMap::new(),
        };
        rank.register(options);
        rank
    }

    fn register(&mut self, options: &Options) {
        let layout = prefill_layout(self.registration, self.rank, options.ranks);
        if options.broken != Some(Broken::StalePlans) || self.table.local().is_none() {
            self.table.register(layout).expect("a layout that fits");
        }
        self.lifecycle.registered(Names {
            generation: generation(self.registration),
            layout_id: layout_id(self.registration),
        });
    }

    /// What its data plane says of itself.
    pub const fn run(&self) -> Incarnation {
        self.run
    }

    /// Whether its engine may hand blocks over.
    pub const fn is_awake(&self) -> bool {
        matches!(self.lifecycle.state(), State::Registered(_) | State::Draining { .. })
    }

    /// Takes an input, and carries out what the sender then asks for.
    pub fn take(
        &mut self,
        (input, mut running): (PrefillInput, Running),
        options: &Options,
        out: &mut Output,
    ) {
        match input {
            PrefillInput::Hold(number) => self.hold(number, options),
            PrefillInput::Release(number) => self.sender.release(&transfer(number), self.now),
            PrefillInput::Letter(letter, engine) => match &*letter {
                Packet::Pull { copy, id, pull, .. } => {
                    self.pull((*copy, *id, engine), pull.clone(), options, out);
                }
                Packet::Drop { drop, .. } => self.drop_transfers(drop, out),
                other => unreachable!("P gets no {other:?}"),
            },
            PrefillInput::WriteDone(write, result) => {
                self.sender.write_done(write, result, self.now);
            }
            PrefillInput::Evict => drop(self.table.resolve(&foreign_pull(options.ranks))),
            PrefillInput::Sleep => {
                let asked = self.lifecycle.unregister(DRAIN, self.now);
                asked.expect("it is registered");
            }
            PrefillInput::Leave => self.leave(options, running, out),
            PrefillInput::Wake => {
                self.lifecycle.restore().expect("it is unregistered");
                self.registration += 1;
                self.register(options);
                self.frozen = false;
            }
            PrefillInput::Advance(now) => self.now = self.now.max(now),
            PrefillInput::Tick => {
                self.lifecycle.give_up(self.now);
                self.sender.tick(self.now);
            }
        }
        self.drain(&mut running, options, out);
    }

    fn hold(&mut self, number: u8, options: &Options) {
        self.running &= !(1 << number);
        let first = u32::from(number * options.blocks);
        let blocks = vec![BlockList::run(first, options.blocks.into())];
        let (request, id) = (prefill_request(number), transfer(number));
        if self.sender.hold(request, id, blocks, None, self.now).is_ok() {
            self.held |= 1 << number;
        }
    }

    /// A pull arrives; its loads name P's engine after `engine` restarts.
    fn pull(
        &mut self,
        (copy, id, engine): (u8, PullId, u8),
        pull: Pull,
        options: &Options,
        out: &mut Output,
    ) {
        let own = PullId(id.0 * 2 + u64::from(copy));
        let extension = pull.extension.as_ref();
        let meant = extension.map(|it| it.incarnation).unwrap_or_default();
        let names: Vec<RequestId> = pull.requests.iter().map(|it| it.request_id.clone()).collect();
        let asked = Asked {
            id,
            engine,
            layout_id: pull.layout_id,
            generation: extension.map(|it| it.generation),
            grants: pull.requests.iter().map(|it| it.grant).collect(),
            unanswered: names.clone(),
        };
        self.pulls.insert(own, asked);
        let refused = if !self.sender.is_meant(meant) {
            out.saw(Seen::OldIncarnation);
            Some(FailureReason::UnknownIncarnation)
        } else if self.table.local().is_none() {
            out.saw(Seen::Asleep);
            Some(FailureReason::Unavailable)
        } else {
            None
        };
        if let Some(why) = refused {
            return self.sender.refuse_pull(own, &names, why, "", true);
        }
        let mut resolution = self.table.resolve(&pull);
        if options.broken == Some(Broken::MissWithLayout) && pull.layout.is_some() {
            resolution = Resolution::Miss;
        }
        match resolution {
            Resolution::Ready { layout, echo } => {
                if pull.layout.is_none() {
                    out.saw(Seen::LayoutLess);
                }
                out.require(Rule::L03, echo == pull.layout_id);
                let resolved = ResolvedPull {
                    id: own,
                    reader: Reader { session: pull.session, tp_rank: pull.tp_rank },
                    expected_readers: 1,
                    layout: Plan(layout),
                    echo,
                    generation: pull.extension.as_ref().map(|it| it.generation),
                    timeout: pull.extension.as_ref().map(|it| it.timeout).unwrap_or_default(),
                    requests: pull.requests,
                };
                self.sender.pull(resolved, self.now);
                if self.frozen {
                    self.sender.refuse_open_pulls(self.now);
                }
            }
            Resolution::Miss => {
                out.saw(Seen::LayoutMiss);
                out.require(Rule::L06, pull.layout.is_none() && !pull.layout_id.is_none());
                self.answer_whole(own, Status::LayoutMiss, out);
            }
            Resolution::Incompatible(_) => self.answer_whole(own, Status::Error, out),
        }
    }

    fn answer_whole(&mut self, own: PullId, status: Status, out: &mut Output) {
        let Some(asked) = self.pulls.remove(&own) else { return };
        let reply = Reply {
            status,
            ok: None,
            failed: None,
            message: None,
            layout_id: LayoutId::NONE,
            extension: Some(ReplyExtension {
                revision: REVISION,
                incarnation: self.run,
                ..ReplyExtension::default()
            }),
        };
        out.send(Packet::Reply { rank: self.rank, id: asked.id, reply });
    }

    fn drop_transfers(&mut self, drop: &DropTransfers, out: &mut Output) {
        let pulled =
            |grant: &Grant| self.pulls.values().any(|it| it.grants.contains(&Some(*grant)));
        if drop.transfers.iter().any(|(_, _, grant)| !pulled(grant)) {
            out.saw(Seen::EarlyDrop);
        }
        self.sender.drop_transfers(drop, self.now);
    }

    /// Whether a drain is over.
    pub fn may_leave(&self, options: &Options) -> bool {
        let impatient = options.broken == Some(Broken::ImpatientDrain);
        matches!(self.lifecycle.state(), State::Draining { .. })
            && (impatient || self.sender.in_use().next().is_none())
    }

    fn leave(&mut self, options: &Options, running: Running, out: &mut Output) {
        self.frozen = true;
        self.sender.refuse_open_pulls(self.now);
        let released = self.lifecycle.drained();
        out.require(Rule::S01, released.is_some() && self.held == 0 && running.count == 0);
        if options.broken != Some(Broken::StalePlans) {
            self.table.unregister();
        }
        self.lifecycle.released();
    }

    /// The next deadline of its machines and of `writes`, its own.
    pub fn next_deadline<'a>(&self, writes: impl Iterator<Item = &'a Write>) -> Option<Timestamp> {
        let writes = writes.map(|write| write.until);
        let machines = [self.sender.next_deadline(), self.lifecycle.next_deadline()];
        machines.into_iter().flatten().chain(writes).min()
    }

    /// Carries out what the sender asks for.
    fn drain(&mut self, running: &mut Running, options: &Options, out: &mut Output) {
        while let Some(action) = self.sender.next_action() {
            match action {
                SenderAction::Answer { pull, reply } => self.answer(pull, reply, out),
                SenderAction::Write(start) => self.start(start, running, options, out),
                SenderAction::CancelWrite(write) => {
                    out.saw(Seen::Cancelled);
                    out.cancelled.push(write);
                }
                SenderAction::Finished { transfer, ended, .. } => {
                    if ended == Ended::Failed(FailureReason::Expired) {
                        out.saw(Seen::Expired);
                    }
                    let bit = 1 << number(transfer.as_str());
                    out.require(Rule::P01, self.held & bit != 0 && running.read & bit == 0);
                    self.held &= !bit;
                }
            }
        }
        out.require(Rule::P03, running.count <= options.slots);
    }

    fn answer(&mut self, pull: PullId, mut reply: Reply, out: &mut Output) {
        let Some(asked) = self.pulls.get_mut(&pull) else {
            return out.require(Rule::P02, false);
        };
        for name in reply.ok.iter().chain(&reply.failed).flatten() {
            let at = asked.unanswered.iter().position(|it| it == name);
            out.require(Rule::P02, at.is_some());
            if let Some(at) = at {
                asked.unanswered.remove(at);
            }
        }
        let last = reply.status == Status::Finish;
        out.require(Rule::P02, last == asked.unanswered.is_empty());
        out.require(Rule::P12, asked.engine == self.restarts || reply.ok.is_none());
        let echoed = reply.layout_id;
        out.require(Rule::L03, echoed.is_none() || echoed == asked.layout_id);
        let outcomes = reply.extension.iter().flat_map(|it| &it.outcomes);
        if outcomes.into_iter().any(|(_, why, _)| *why == FailureReason::TimedOut) {
            out.saw(Seen::TimedOut);
        }
        reply.message = None;
        out.send(Packet::Reply { rank: self.rank, id: asked.id, reply });
        if last {
            self.pulls.remove(&pull);
        }
    }

    fn start(
        &mut self,
        start: StartWrite<Plan>,
        running: &mut Running,
        options: &Options,
        out: &mut Output,
    ) {
        let number = number(start.transfer.as_str());
        out.require(Rule::P01, self.held & (1 << number) != 0);
        let asked = self.pulls.values().find(|it| it.grants.contains(&start.grant));
        out.require(Rule::P12, asked.is_some_and(|it| it.engine == self.restarts));
        let generation = asked.and_then(|it| it.generation);
        out.require(Rule::L09, generation == start.generation);
        for piece in start.copies.iter().flat_map(|copy| pieces(*copy, options.ranks)) {
            let theirs = generation == Some(crate::names::generation(piece.target.0));
            let ours = piece.source.0 == self.registration && self.is_awake();
            out.require(Rule::L09, ours && theirs && piece.target.2 == self.rank);
        }
        let write = Write {
            rank: self.rank,
            id: start.write,
            transfer: number,
            grant: start.grant,
            generation: start.generation,
            copies: Arc::from(start.copies),
            landed: 0,
            until: self.now + start.timeout,
            cancelled: false,
            orphan: false,
        };
        running.add(&write);
        out.started.push(write);
    }
}
