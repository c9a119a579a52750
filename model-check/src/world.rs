//! A world: one P engine, one D, and what is between them.

use crate::coverage::{Coverage, Seen};
use crate::data_plane::Write;
use crate::decode::{Decode, DecodeInput, Load};
use crate::memo::{Memo, Output, Shared};
use crate::network::{Bag, Letter, Packet};
use crate::options::{Broken, Fault, Faults, Options};
use crate::prefill::{Prefill, PrefillInput, Running};
use crate::rules::Rule;
use crate::step::{Loss, Node, Step};
use kvbaton_core::lifecycle::State;
use kvbaton_core::sender::{PullId, WriteResult};

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub(crate) p: Vec<Shared<Prefill>>,
    pub(crate) d: Shared<Decode>,
    pub(crate) net: Bag,
    /// Sorted: their order says nothing.
    pub(crate) writes: Vec<Write>,
    pub(crate) restarts: u8,
    pub(crate) left: Faults,
    /// No message was lost and no deadline came.
    pub(crate) calm: bool,
    /// The first rule that was broken.
    pub broken: Option<Rule>,
}

/// What is known of worlds of one size.
#[derive(Debug, Default)]
pub struct Tables {
    pub(crate) seen: Coverage,
    pub(crate) prefill: Memo<Prefill>,
    pub(crate) decode: Memo<Decode>,
}

impl Tables {
    /// What was reached.
    #[must_use]
    pub fn seen(&self) -> &Coverage {
        &self.seen
    }

    /// States and steps of a P rank, then of D, that were worked out.
    #[must_use]
    pub fn sizes(&self) -> [(usize, usize); 2] {
        [self.prefill.sizes(), self.decode.sizes()]
    }
}

/// What a step needs to know beside the world.
pub(crate) type Around<'a> = (&'a Options, &'a Tables);

impl World {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        let rank = |rank| Shared::new(Prefill::new(rank, 0, options));
        Self {
            p: (0..options.ranks).map(rank).collect(),
            d: Shared::new(Decode::new(options)),
            net: Bag::default(),
            writes: Vec::new(),
            restarts: 0,
            left: options.faults,
            calm: true,
            broken: None,
        }
    }

    /// The step happens, and whatever the machines then ask for at once.
    pub(crate) fn apply(&mut self, step: Step, around: Around<'_>) {
        match step {
            Step::Hold(rank, transfer) => {
                self.on_prefill(rank, PrefillInput::Hold(transfer), around);
            }
            Step::Load(many) => {
                let new = |load: &u8| self.d.loads[usize::from(*load)] == Load::New;
                let loads = (0..around.0.loads).filter(new).take(many.into()).collect();
                self.on_decode(DecodeInput::Load(loads, self.restarts), around);
            }
            Step::Drop(load) => {
                self.left.take(Fault::Drop);
                self.on_decode(DecodeInput::Drop(load), around);
            }
            Step::Release(transfer) => {
                self.left.take(Fault::Release);
                for rank in 0..around.0.ranks {
                    self.on_prefill(rank, PrefillInput::Release(transfer), around);
                }
            }
            Step::Evict => {
                self.left.take(Fault::Evict);
                self.on_prefill(0, PrefillInput::Evict, around);
            }
            Step::Restart => self.restart(around.0),
            Step::Sleep(node) => self.sleep(node, around),
            Step::Leave(Node::Decode) => self.on_decode(DecodeInput::Leave, around),
            Step::Leave(Node::Prefill(rank)) => {
                self.on_prefill(rank, PrefillInput::Leave, around);
            }
            Step::Wake(Node::Decode) => self.on_decode(DecodeInput::Wake, around),
            Step::Wake(Node::Prefill(rank)) => self.on_prefill(rank, PrefillInput::Wake, around),
            Step::Deliver(at) => {
                let letter = self.net.take(at);
                self.arrive(letter, around);
            }
            Step::Lose(at, how) => self.lose(at, how, around),
            Step::Duplicate(at) => {
                self.left.take(Fault::Duplicate);
                let letter = self.net.take(at);
                self.net.push(letter.again());
                self.arrive(letter, around);
            }
            Step::Land(at) => self.land(at, around),
            Step::Settle(at) => {
                let write = self.writes.remove(at.into());
                let result = if write.next_copy().is_none() {
                    WriteResult::Written
                } else {
                    WriteResult::Failed { settled: true, message: String::new() }
                };
                self.end_write(&write, result, around);
            }
            Step::FailWrite(at) => {
                self.left.take(Fault::FailWrite);
                self.give_up(at, around);
            }
            Step::Deadline(node) => self.deadline(node, around),
        }
        self.writes.sort_unstable();
        if around.0.late_at_once {
            self.deliver_late(around);
        }
        if self.broken.is_none() {
            self.check_rest(around);
        }
    }

    fn on_prefill(&mut self, rank: u8, input: PrefillInput, (options, tables): Around<'_>) {
        let p = &mut self.p[usize::from(rank)];
        let running = Running::of(rank, &self.writes);
        let outcome =
            tables.prefill.step(p, (input, running), |p, input, out| p.take(input, options, out));
        *p = outcome.next.clone();
        let output = &outcome.output;
        self.writes.extend_from_slice(&output.started);
        for id in &output.cancelled {
            let mine = |it: &&mut Write| it.rank == rank && !it.orphan && it.id == *id;
            let mut running = self.writes.iter_mut().filter(mine);
            running.next().expect("cancels what runs").cancelled = true;
        }
        self.take(output, &tables.seen);
    }

    fn on_decode(&mut self, input: DecodeInput, around: Around<'_>) {
        self.bytes_on_decode(input, around);
    }

    /// Whether D's data plane took the bytes, for [`DecodeInput::Land`].
    fn bytes_on_decode(&mut self, input: DecodeInput, (options, tables): Around<'_>) -> bool {
        let take = |d: &mut Decode, input, out: &mut Output| d.take(input, options, out);
        let outcome = tables.decode.step(&self.d, input, take);
        self.d = outcome.next.clone();
        self.take(&outcome.output, &tables.seen);
        outcome.output.taken
    }

    fn take(&mut self, output: &Output, seen: &Coverage) {
        output.letters.iter().for_each(|letter| self.net.push(letter.clone()));
        output.seen.iter().for_each(|what| seen.saw(*what));
        self.broken = self.broken.or(output.broken);
    }

    fn arrive(&mut self, letter: Letter, around: Around<'_>) {
        match &*letter {
            Packet::Pull { rank, pull, .. } => {
                let first = pull.requests.first();
                let engine = first.map_or(0, |it| self.d.engine_of(it.request_id.as_str()));
                let rank = *rank;
                self.on_prefill(rank, PrefillInput::Letter(letter, engine), around);
            }
            Packet::Drop { rank, .. } => {
                let rank = *rank;
                self.on_prefill(rank, PrefillInput::Letter(letter, 0), around);
            }
            Packet::Ask => {
                let processes = self.p.iter().map(|p| p.run()).collect();
                self.on_decode(DecodeInput::Discovered(self.restarts, processes), around);
            }
            Packet::Reply { rank: 0, .. } if around.0.broken == Some(Broken::DeafNetwork) => {}
            Packet::Reply { .. } | Packet::Revoked(_) | Packet::Broken(_) => {
                self.on_decode(DecodeInput::Letter(letter), around);
            }
        }
    }

    /// Letters that come too late arrive at once, and must change nothing: when they arrive
    /// makes no difference then.
    fn deliver_late(&mut self, around: Around<'_>) {
        while let Some(at) = self.net.position(|letter| self.is_late(letter)) {
            let (p, d) = (self.p.clone(), self.d.clone());
            let letter = self.net.take(at);
            self.arrive(letter, around);
            if (&p, &d) != (&self.p, &self.d) {
                self.broken = self.broken.or(Some(Rule::Late));
                return;
            }
        }
    }

    /// Whether whoever gets the letter has done with what it is about: for good, since
    /// neither pull ids nor incarnations come back.
    fn is_late(&self, packet: &Packet) -> bool {
        let is_closed = |id: &PullId| !self.d.receiver.is_open(*id);
        let is_gone = |rank: &u8, meant| !self.p[usize::from(*rank)].sender.is_meant(meant);
        match packet {
            Packet::Reply { id, .. } | Packet::Broken(id) => is_closed(id),
            Packet::Drop { rank, drop } => is_gone(rank, drop.incarnation),
            Packet::Pull { rank, id, pull, .. } => {
                let meant = pull.extension.as_ref().map(|it| it.incarnation);
                is_closed(id) && is_gone(rank, meant.unwrap_or_default())
            }
            Packet::Ask | Packet::Revoked(_) => false,
        }
    }

    fn lose(&mut self, at: u8, how: Loss, around: Around<'_>) {
        self.left.take(Fault::Lose);
        self.calm = false;
        let letter = self.net.take(at);
        let told = match (&*letter, how) {
            (_, Loss::Silent) => None,
            (Packet::Pull { id, .. }, _) => {
                Some(DecodeInput::PullFailed(*id, how == Loss::ToldButArrives))
            }
            (Packet::Reply { id, .. }, _) => Some(DecodeInput::PullFailed(*id, true)),
            (Packet::Ask, _) => Some(DecodeInput::NotDiscovered),
            (Packet::Drop { .. } | Packet::Revoked(_) | Packet::Broken(_), _) => None,
        };
        if how == Loss::ToldButArrives {
            self.net.push(letter);
        }
        if let Some(told) = told {
            self.on_decode(told, around);
        }
    }

    fn land(&mut self, at: u8, around: Around<'_>) {
        let write = &mut self.writes[usize::from(at)];
        let Some(copy) = write.next_copy() else { return };
        write.landed += 1;
        let write = write.clone();
        let taken = self.bytes_on_decode(DecodeInput::Land(write.clone(), copy), around);
        if !taken {
            around.1.seen.saw(Seen::Refused);
            self.writes.remove(at.into());
            if !write.orphan {
                let refused = WriteResult::Failed { settled: true, message: String::new() };
                self.end_write(&write, refused, around);
            }
        } else if write.orphan {
            around.1.seen.saw(Seen::LateButAllowed);
            if write.next_copy().is_none() {
                self.writes.remove(at.into());
            }
        }
    }

    fn end_write(&mut self, write: &Write, result: WriteResult, around: Around<'_>) {
        self.on_prefill(write.rank, PrefillInput::WriteDone(write.id, result), around);
    }

    /// P does not wait for the write any more; what has not landed still may.
    fn give_up(&mut self, at: u8, around: Around<'_>) {
        let mut write = self.writes.remove(at.into());
        if write.next_copy().is_some() {
            write.orphan = true;
            self.writes.push(write.clone());
        }
        let failed = WriteResult::Failed { settled: false, message: String::new() };
        self.end_write(&write, failed, around);
    }

    fn restart(&mut self, options: &Options) {
        self.left.take(Fault::Restart);
        self.restarts += 1;
        for rank in 0..options.ranks {
            let fresh = Shared::new(Prefill::new(rank, self.restarts, options));
            let gone = std::mem::replace(&mut self.p[usize::from(rank)], fresh);
            for asked in gone.pulls.values() {
                self.net.push(Letter::new(Packet::Broken(asked.id)));
            }
        }
        self.writes.retain(|write| write.next_copy().is_some());
        self.writes.iter_mut().for_each(|write| write.orphan = true);
    }

    fn sleep(&mut self, node: Node, around: Around<'_>) {
        match node {
            Node::Decode => {
                self.left.take(Fault::DecodeSleep);
                self.on_decode(DecodeInput::Sleep, around);
            }
            Node::Prefill(rank) => {
                self.left.take(Fault::PrefillSleep);
                self.on_prefill(rank, PrefillInput::Sleep, around);
            }
        }
    }

    fn deadline(&mut self, node: Node, around: Around<'_>) {
        if self.is_busy(around.0) {
            self.left.take(Fault::Deadline);
        }
        self.calm = false;
        match node {
            Node::Decode => {
                let Some(now) = self.d.next_deadline() else { return };
                self.on_decode(DecodeInput::Tick(now), around);
            }
            Node::Prefill(rank) => {
                let Some(now) = self.prefill_deadline(rank) else { return };
                self.on_prefill(rank, PrefillInput::Advance(now), around);
                let due = |it: &Write| it.rank == rank && !it.orphan && it.until <= now;
                while let Some(at) = self.writes.iter().position(due) {
                    self.give_up(at as u8, around);
                }
                self.on_prefill(rank, PrefillInput::Tick, around);
            }
        }
    }

    pub(crate) fn prefill_deadline(&self, rank: u8) -> Option<kvbaton_core::time::Timestamp> {
        let mine = self.writes.iter().filter(|it| it.rank == rank && !it.orphan);
        self.p[usize::from(rank)].next_deadline(mine)
    }

    /// When nothing but deadlines is left, everything must have ended, unless a message was
    /// lost; when not even they are, nothing may be left at all.
    fn check_rest(&mut self, (options, tables): Around<'_>) {
        if self.is_busy(options) {
            return;
        }
        let ended = self.d.loads.iter().all(|load| matches!(load, Load::Ended { .. }));
        let answered = self.p.iter().all(|p| p.pulls.is_empty() && p.sender.open_pulls() == 0);
        if self.calm && !(ended && answered) {
            self.broken = Some(Rule::Progress);
        } else if self.deadlines().next().is_none() {
            tables.seen.saw(Seen::Rest);
            let clean = self.p.iter().all(|p| self.prefill_is_clean(p)) && self.decode_is_clean();
            if !(ended && answered && clean) {
                self.broken = Some(Rule::Rest);
            }
        }
    }

    fn prefill_is_clean(&self, p: &Prefill) -> bool {
        let s = &p.sender;
        let counts = [s.transfers(), s.waiting(), s.queued(), s.writes(), s.held()];
        counts == [0; 5] && p.held == 0 && matches!(p.lifecycle.state(), State::Registered(_))
    }

    fn decode_is_clean(&self) -> bool {
        let d = &self.d;
        let counts = [d.receiver.loads(), d.receiver.open_pulls(), d.open.len()];
        counts == [0; 3] && matches!(d.lifecycle.state(), State::Registered(_))
    }

    pub(crate) fn describe_write(&self, at: u8) -> String {
        let write = &self.writes[usize::from(at)];
        let late = if write.orphan { ", late" } else { "" };
        format!("P{}'s write {} of t{}{late}", write.rank, write.id.0, write.transfer)
    }
}
