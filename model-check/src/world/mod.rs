//! A world: one P engine, one D, and what is between them.

mod faults;
mod rest;

use crate::coverage::{Coverage, Seen};
use crate::data_plane::Write;
use crate::decode::{Decode, DecodeInput, Load};
use crate::memo::{Memo, Output, Shared};
use crate::network::{Bag, Letter, Packet};
use crate::options::{Broken, Fault, Faults, Options};
use crate::prefill::{Prefill, PrefillInput, Running};
use crate::print::wide;
use crate::rules::Rule;
use crate::step::{Node, Step};
use kvbaton_core::sender::{SendWriteId, WriteResult};

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

    /// A fingerprint of everything but what [`Self::rest`] says, and, in reduced worlds, of
    /// what nothing will read again.
    pub(crate) fn print(&self, options: &Options) -> u128 {
        if !options.reduced {
            return wide(&(&self.p, &self.d, &self.net, &self.writes, self.restarts));
        }
        let may_pull = self.d.view(u32::MAX, |d| d.may_pull().into()) as u16;
        let may_pull = may_pull.to_le_bytes();
        let mut named = 0;
        let mut ranks = [0; 2];
        for ((rank, p), may) in (0u8..).zip(&self.p).zip(may_pull) {
            let pulled = self.net.pulled(rank);
            named |= pulled;
            let ahead = pulled | may;
            ranks[usize::from(rank)] = p.view(ahead.into(), |p| p.lasting(ahead));
        }
        let d = self.d.view(named.into(), |d| d.lasting(named, options));
        let mut writes = self.writes.clone();
        let mut places = [0; 2];
        for write in writes.iter_mut().filter(|it| !it.orphan) {
            let place = &mut places[usize::from(write.rank)];
            write.id = SendWriteId(*place);
            *place += 1;
        }
        wide(&(ranks, d, self.net.lasting(), writes, self.restarts))
    }

    /// What more may happen to the world than to others that are equal otherwise: faults that
    /// are left, and that the loss of a message does not excuse a wait.
    pub(crate) fn rest(&self, options: &Options) -> u32 {
        self.left.bits(options.faults) << 1 | u32::from(self.calm)
    }

    /// The steps that can be taken now; the last is to be taken first, so that what happens by
    /// itself comes before faults.
    pub(crate) fn next(&self, options: &Options) -> Vec<Step> {
        let mut steps = Vec::new();
        self.steps(options, &mut steps);
        steps.reverse();
        steps
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

    pub(crate) fn describe_write(&self, at: u8) -> String {
        let write = &self.writes[usize::from(at)];
        let late = if write.orphan { ", late" } else { "" };
        format!("P{}'s write {} of t{}{late}", write.rank, write.id.0, write.transfer)
    }
}
