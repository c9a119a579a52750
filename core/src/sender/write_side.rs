//! Slots, and what a write's end means.

use super::transfer::{Answer, Stage, State};
use super::{
    BlocksUntil, Ended, PlanCopies, Reader, SendWriteId, Sender, SenderAction, StartWrite,
    WriteResult, message,
};
use crate::ids::{SessionAddress, TransferId};
use crate::planted::{self, Bug};
use crate::time::Timestamp;
use crate::wire::FailureReason;
use std::time::Duration;

impl<L: PlanCopies + Clone> Sender<L> {
    /// A write has ended; from now on nothing reads its blocks.
    pub fn write_done(&mut self, write: SendWriteId, result: WriteResult, now: Timestamp) {
        let Some((id, reader)) = self.writes.remove(&write) else { return };
        if planted::is(Bug::SlotLostOnFailure) && result != WriteResult::Written {
            self.writes.insert(write, (id.clone(), reader.clone()));
        }
        let transfer = self.transfers.get_mut(&id).expect("a running write keeps its transfer");
        transfer.reading -= 1;
        match result {
            // It ended under other weights than it began with [R07].
            WriteResult::Written if transfer.ending == Some(FailureReason::OtherWeights) => {
                let why = FailureReason::OtherWeights;
                self.fail_reader(&id, &reader, why, true, message(why, &id));
            }
            WriteResult::Written => self.reader_sent(&id, &reader),
            WriteResult::Failed { settled, message } => {
                self.write_failed(&id, &reader, settled, &message);
            }
        }
        self.finish_if_ended(&id);
        self.settle_input(now);
    }

    fn reader_sent(&mut self, id: &TransferId, reader: &Reader) {
        let transfer = self.transfers.get_mut(id).expect("looked up by the caller");
        let Some(pending) = transfer.pending.remove(reader) else { return };
        transfer.answered.insert(reader.clone(), Answer::Sent);
        self.close_request(pending.pull, id, super::PullState::succeed);
        self.end_if_answered(id);
    }

    /// A failed write ends its transfer at once `[P07]`, unless D itself dropped it: then
    /// the other D ranks go on until they drop it too.
    fn write_failed(&mut self, id: &TransferId, reader: &Reader, settled: bool, text: &str) {
        let transfer = &self.transfers[id];
        let dropped = transfer.pending.get(reader).is_some_and(|pending| pending.dropped);
        let why = match transfer.ending {
            _ if dropped => FailureReason::Dropped,
            Some(why) => why,
            None => FailureReason::WriteFailed,
        };
        let text = format!("{}: {text}", message(why, id));
        self.fail_reader(id, reader, why, settled, text);
        if self.transfers[id].ending.is_some() {
            return;
        }
        if dropped {
            self.end_if_answered(id);
        } else {
            self.end(id, Ended::Failed(FailureReason::WriteFailed));
        }
    }

    /// The last write of an ending transfer gives its blocks back.
    fn finish_if_ended(&mut self, id: &TransferId) {
        let Some(transfer) = self.transfers.get(id) else { return };
        if transfer.reading > 0 || !transfer.pending.is_empty() {
            return;
        }
        if let Some(why) = transfer.ending {
            let sent = transfer.all_answered() && transfer.outcome() == Ended::Sent;
            self.finish(id, if sent { Ended::Sent } else { Ended::Failed(why) });
        }
    }

    /// Starts writes while slots are free `[P03]`.
    pub(super) fn fill_slots(&mut self, now: Timestamp) {
        while self.writes.len() < self.config.senders.max(1) {
            let Some(place) = self.next_in_turn() else { return };
            let Some((id, reader)) = self.queue.remove(&place) else { return };
            self.start_write(&id, reader, now);
        }
    }

    /// The first in the queue whose D rank has a slot left of its own.
    fn next_in_turn(&self) -> Option<u64> {
        let most = self.config.senders_per_peer.max(1);
        let unfair = planted::is(Bug::OnePeerTakesAllSlots);
        let has_room = |session: &SessionAddress| {
            let running = self.writes.values().filter(|(_, to)| to.session == *session);
            unfair || running.count() < most
        };
        let mut queue = self.queue.iter();
        queue.find(|(_, (_, reader))| has_room(&reader.session)).map(|(place, _)| *place)
    }

    fn start_write(&mut self, id: &TransferId, reader: Reader, now: Timestamp) {
        let Some(transfer) = self.transfers.get_mut(id) else { return };
        let State::Ready(held) = &transfer.state else { return };
        let Some(pending) = transfer.pending.get_mut(&reader) else { return };
        let open = self.pulls.get(&pending.pull).expect("a pending reader keeps its pull");
        let late = planted::is(Bug::WriteAfterDeadline);
        if open.state.deadline <= now && !late {
            pending.stage = Stage::Unready; // its timer is due and answers it [P04]
            return;
        }
        let wanted = &open.open[id];
        let mut copies = Vec::new();
        let planned = open.state.layout.plan(
            BlocksUntil { groups: &held.blocks, end_token: held.end_token },
            BlocksUntil { groups: &wanted.groups, end_token: wanted.end_token },
            &mut copies,
        );
        match planned {
            Err(text) => {
                let why = FailureReason::BlocksDiffer;
                let text = format!("{}: {text}", message(why, id));
                self.fail_reader(id, &reader, why, true, text);
                self.end(id, Ended::Failed(why));
            }
            Ok(()) if copies.is_empty() => self.reader_sent(id, &reader),
            Ok(()) => {
                let write = SendWriteId(self.next_write);
                self.next_write += 1;
                pending.stage = Stage::Writing { write, since: now, cancelled: false };
                transfer.reading += 1;
                let left = open.state.deadline.since(now);
                let start = StartWrite {
                    write,
                    transfer: id.clone(),
                    reader: reader.clone(),
                    grant: wanted.grant,
                    generation: open.generation,
                    layout: open.state.layout.clone(),
                    copies,
                    timeout: self.config.write_timeout.min(if late { Duration::MAX } else { left }),
                };
                self.writes.insert(write, (id.clone(), reader));
                self.actions.push_back(SenderAction::Write(start));
            }
        }
    }
}
