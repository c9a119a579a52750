//! A sender alone, between an engine, a data plane and D ranks that do as they like.

mod effects;
mod inputs;
mod memory;
mod model;
mod watched;
mod weights;

pub use model::Foretold;
pub use watched::{Foretell, WatchedSender};

use crate::campaign::{Campaign, Check, Trace};
use crate::choices::Choices;
use crate::names::Names;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{Address, Bytes, Generation, Grant, Incarnation, LayoutId, WeightVersion};
use kvbaton_core::region::Copy;
use kvbaton_core::sender::{
    BlocksUntil, PlanCopies, PullId, ResolvedPull, SendWriteId, SenderAction, SenderConfig,
    WriteResult,
};
use kvbaton_core::time::Timestamp;
use kvbaton_core::wire::{DropTransfers, FailureReason, PullRequest};
use std::time::Duration;

/// The campaign.
pub const CAMPAIGN: Campaign = Campaign {
    name: "sender",
    about: "P's transfers: engine calls, pulls, drops, writes and time in any order",
    bytes: 16..1_200,
    step_bytes: 4,
    run,
};

const RUN: Incarnation = Incarnation(77);
/// Transfers and owners in play: few, so that they meet.
const TRANSFERS: usize = 5;

/// A layout of one block, or none at all that both share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Planner {
    Blocks,
    NothingShared,
}

impl PlanCopies for Planner {
    fn plan(
        &self,
        held: BlocksUntil<'_>,
        wanted: BlocksUntil<'_>,
        out: &mut Vec<Copy>,
    ) -> Result<(), String> {
        let len = |it: BlocksUntil<'_>| -> u64 { it.groups.iter().map(BlockList::len).sum() };
        let (held, wanted) = (len(held), len(wanted));
        if *self == Self::NothingShared {
            return Ok(());
        }
        if held < wanted {
            return Err(String::new());
        }
        out.push(Copy { source: Address(0), destination: Address(0), len: Bytes(wanted) });
        Ok(())
    }
}

impl Foretell for Planner {
    fn foretell(&self) -> fn(u64, u64) -> Foretold {
        match self {
            Self::Blocks => |held, wanted| {
                if held < wanted { Foretold::Differ } else { Foretold::Copies }
            },
            Self::NothingShared => |_, _| Foretold::Nothing,
        }
    }
}

struct World {
    names: Names,
    sender: WatchedSender<Planner>,
    now: Timestamp,
    next_pull: u64,
    running: Vec<SendWriteId>,
}

fn config(choices: &mut Choices<'_>) -> SenderConfig {
    SenderConfig {
        senders: 1 + choices.below(3),
        senders_per_peer: 1 + choices.below(2),
        hold_timeout: Duration::from_secs(20),
        pull_timeout: Duration::from_secs(choices.one_of(&[15, 30])),
        answer_margin: Duration::from_secs(2),
        write_timeout: Duration::from_secs(5),
        max_transfers: choices.one_of(&[2, 3, 8]),
        max_waiting: choices.one_of(&[3, 6, 64]),
        max_readers: choices.one_of(&[2, 8]),
        max_remembered: choices.one_of(&[1, 2, 3, 16]),
    }
}

fn run(choices: &mut Choices<'_>, trace: &mut Trace) -> Check {
    // Swarm: each run leaves some kinds of inputs out.
    let off = u16::from_le_bytes([choices.byte(), choices.byte()]) & 0x7f7e;
    let config = config(choices);
    trace.note(|| format!("{config:?}"));
    let mut world = World {
        names: Names::of_thread(),
        sender: WatchedSender::new(config, RUN),
        now: Timestamp(0),
        next_pull: 0,
        running: Vec::new(),
    };
    while let Some(step) = choices.step() {
        if off >> (step[0] % 16) & 1 == 0 || step[3] % 8 == 0 {
            world.apply(step, trace)?;
        }
    }
    world.heal(trace)
}

impl World {
    fn apply(&mut self, [what, which, whose, how]: [u8; 4], trace: &mut Trace) -> Check {
        let (which, whose) = (usize::from(which), usize::from(whose));
        let id = self.names.transfers[which % TRANSFERS].clone();
        // Mostly the transfer's own request, sometimes another one.
        let other = usize::from(how % 8 == 0);
        let owner = self.names.owners[which % TRANSFERS + other].clone();
        let now = self.now;
        match what % 16 {
            0 => {
                trace.step(|| format!("engine: {owner} starts as {id}"));
                self.sender.prefill_started(&owner, &id, now)?;
            }
            1..=3 => {
                let len = 1 + u32::from(how / 64);
                trace.step(|| format!("engine: {owner} holds {len} blocks as {id}"));
                let blocks = vec![BlockList::run(10, len)];
                self.sender.hold(&owner, &id, blocks, None, now)?;
            }
            4 => {
                trace.step(|| format!("engine: aborts {id}"));
                self.sender.abort(&id, now)?;
            }
            5 => {
                trace.step(|| format!("engine: releases {id}"));
                self.sender.release(&id, now)?;
            }
            6 if how % 4 == 0 => {
                trace.step(|| "engine: releases all".into());
                self.sender.release_all(now)?;
            }
            6 if how % 4 == 1 => {
                trace.step(|| "engine: refuses open pulls".into());
                self.sender.refuse_open_pulls(now)?;
            }
            6 if how % 4 == 2 => {
                trace.step(|| "engine: aborts transfers".into());
                self.sender.abort_transfers(now)?;
            }
            6 => {
                let version = WeightVersion(which as u64 % 3);
                trace.step(|| format!("engine: runs weights {version}"));
                self.sender.set_weights(version, now)?;
            }
            7..=9 => self.pull(which, whose, how, trace)?,
            10 => self.drop_load(which, whose, how, trace)?,
            11..=13 => self.end_write(which, how, trace)?,
            14 => {
                let by = Duration::from_millis(u64::from(how) * 20);
                self.advance(self.now + by, which % 4 != 0, trace)?;
            }
            15 if how % 8 == 0 => {
                self.advance(self.now + Duration::from_secs(60), which % 4 != 0, trace)?;
            }
            15 if how % 8 == 1 => self.refuse_pull(which, how, trace)?,
            15 if how % 8 < 5 => {
                // The tick is late: other inputs come first.
                self.now = now + Duration::from_millis(u64::from(which as u8) * 100);
                trace.note(|| format!("time: {}", self.now));
            }
            _ => {}
        }
        self.take_actions();
        Ok(())
    }

    /// One of the D ranks pulls one to three transfers.
    fn pull(&mut self, which: usize, whose: usize, how: u8, trace: &mut Trace) -> Check {
        let at = whose % self.names.readers.len();
        let count = 1 + (whose / 16) % 3;
        let stock = how % 8 == 7;
        let request = |k: usize| {
            let number = (which + k * (1 + whose / 64)) % TRANSFERS;
            let len = u32::from(how / 16 + k as u8) % 4;
            PullRequest {
                request_id: self.names.requests[(number + k * 3) % 8].clone(),
                transfer_id: self.names.transfers[number].clone(),
                groups: if len == 0 { Vec::new() } else { vec![BlockList::run(100, len)] },
                grant: (!stock && len > 0).then_some(grant(number, at)),
                end_token: None,
            }
        };
        let requests: Vec<PullRequest> =
            if how == 0 { Vec::new() } else { (0..count).map(request).collect() };
        let id = PullId(self.next_pull);
        self.next_pull += 1;
        let pull = ResolvedPull {
            id,
            reader: self.names.readers[at].clone(),
            expected_readers: 1 + u32::from(how % 2),
            layout: if how % 32 == 9 { Planner::NothingShared } else { Planner::Blocks },
            echo: LayoutId(9),
            generation: (!stock).then_some(Generation(7)),
            timeout: Duration::from_secs([0, 1, 10, 40][which / 64 % 4]),
            weights: WeightVersion(if stock { 0 } else { u64::from(how / 8) * 5 % 3 }),
            requests,
        };
        trace.step(|| {
            let asked: Vec<String> = pull
                .requests
                .iter()
                .map(|it| {
                    let blocks: u64 = it.groups.iter().map(BlockList::len).sum();
                    format!("{blocks} blocks of {} as {}", it.transfer_id, it.request_id)
                })
                .collect();
            format!(
                "pull {}: reader {}/{} of {} wants {} of weights {} within {:?}",
                id.0,
                pull.reader.session.port,
                pull.reader.tp_rank,
                pull.expected_readers,
                asked.join(", "),
                pull.weights,
                pull.timeout,
            )
        });
        self.sender.pull(pull, self.now)
    }

    fn refuse_pull(&mut self, which: usize, how: u8, trace: &mut Trace) -> Check {
        let id = PullId(self.next_pull);
        self.next_pull += 1;
        let names = self.names.requests[..usize::from(how) / 16 % 3].to_vec();
        trace.step(|| format!("pull {}: refused for {} requests", id.0, names.len()));
        let why = FailureReason::UnknownIncarnation;
        self.sender.refuse_pull(id, &names, why, which.is_multiple_of(2), self.now)
    }

    fn drop_load(&mut self, which: usize, whose: usize, how: u8, trace: &mut Trace) -> Check {
        let (number, at) = (which % TRANSFERS, whose % self.names.readers.len());
        let drop = DropTransfers {
            incarnation: [RUN, RUN, Incarnation(0), Incarnation(5)][usize::from(how % 4)],
            tp_rank: self.names.readers[at].tp_rank,
            transfers: vec![(
                self.names.requests[number].clone(),
                self.names.transfers[number].clone(),
                grant(number, at),
            )],
        };
        let run = drop.incarnation;
        trace.step(|| format!("reader {at} drops t{number}, meant for run {}", run.0));
        self.sender.drop_transfers(&drop, self.now)
    }

    fn end_write(&mut self, which: usize, how: u8, trace: &mut Trace) -> Check {
        if self.running.is_empty() {
            return Ok(());
        }
        let write = self.running.swap_remove(which % self.running.len());
        let result = match how % 8 {
            0 => WriteResult::Failed { settled: false, message: String::new() },
            1 => WriteResult::Failed { settled: true, message: String::new() },
            _ => WriteResult::Written,
        };
        trace.step(|| format!("write {}: {result:?}", write.0));
        self.sender.write_done(write, result, self.now)
    }

    /// Lets time pass: tick by tick as it is due, or late and all at once.
    fn advance(&mut self, until: Timestamp, punctual: bool, trace: &mut Trace) -> Check {
        if punctual {
            while let Some(due) = self.sender.machine().next_deadline().filter(|it| *it <= until) {
                self.now = self.now.max(due);
                trace.step(|| format!("time: {}, tick", self.now));
                self.sender.tick(self.now)?;
                self.take_actions();
            }
            self.now = until;
        } else {
            self.now = until;
            trace.step(|| format!("time: {until}, tick"));
            self.sender.tick(until)?;
        }
        Ok(())
    }

    fn take_actions(&mut self) {
        for action in self.sender.actions.drain(..) {
            if let SenderAction::Write(start) = action {
                self.running.push(start.write);
            }
        }
    }

    /// The engine gives up what it only announced, writes end, time passes: nothing may be
    /// left `[P06, F13]`.
    fn heal(&mut self, trace: &mut Trace) -> Check {
        for number in 0..TRANSFERS {
            let id = self.names.transfers[number].clone();
            if self.sender.is_owned(&id) && !self.sender.is_held(&id) {
                trace.step(|| format!("engine: aborts {id}"));
                self.sender.abort(&id, self.now)?;
                self.take_actions();
            }
        }
        for _ in 0..3 {
            while !self.running.is_empty() {
                self.end_write(0, 2, trace)?;
                self.take_actions();
            }
            self.advance(self.now + Duration::from_secs(100), true, trace)?;
        }
        self.sender.is_at_rest()
    }
}

/// The grant of a reader's load.
fn grant(transfer: usize, reader: usize) -> Grant {
    Grant((transfer * 16 + reader + 1) as u64)
}
