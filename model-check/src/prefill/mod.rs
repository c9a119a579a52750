//! One rank of P: its engine's blocks, its layout table, its sender and its registration.
//!
//! What lies between the machines is what the actors of a node do.

mod asked;
mod lasting;
mod pulled;

use crate::data_plane::Write;
use crate::memo::Output;
use crate::memory::{Plan, foreign_pull, prefill_layout};
use crate::names::{generation, incarnation, layout_id, prefill_request, transfer};
use crate::network::{Letter, Packet};
use crate::options::{Broken, Options};
use crate::rules::Rule;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{Generation, Grant, Incarnation, LayoutId, RequestId};
use kvbaton_core::lifecycle::{Lifecycle, Names, State};
use kvbaton_core::peer_layouts::LayoutTable;
use kvbaton_core::sender::{PullId, SendWriteId, Sender, SenderConfig, WriteResult};
use kvbaton_core::time::Timestamp;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
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
            max_remembered: crate::memory::REMEMBERED,
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

    /// Whether a drain is over.
    pub fn may_leave(&self, options: &Options) -> bool {
        let impatient = options.broken == Some(Broken::ImpatientDrain);
        matches!(self.lifecycle.state(), State::Draining { .. })
            && (impatient || self.sender.in_use().next().is_none())
    }

    fn leave(&mut self, options: &Options, running: Running, out: &mut Output) {
        self.frozen = true;
        self.sender.refuse_open_pulls(self.now);
        let released = self.lifecycle.drained(self.now);
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
}
