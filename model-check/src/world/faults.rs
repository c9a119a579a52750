//! What may go wrong.

use super::{Around, World};
use crate::data_plane::Write;
use crate::decode::DecodeInput;
use crate::memo::Shared;
use crate::network::{Letter, Packet};
use crate::options::{Fault, Options};
use crate::prefill::{Prefill, PrefillInput};
use crate::step::{Loss, Node};
use kvbaton_core::sender::WriteResult;
use kvbaton_core::time::Timestamp;

impl World {
    pub(super) fn lose(&mut self, at: u8, how: Loss, around: Around<'_>) {
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

    /// P does not wait for the write any more; what has not landed still may.
    pub(super) fn give_up(&mut self, at: u8, around: Around<'_>) {
        let write = self.writes.remove(at.into());
        if write.next_copy().is_some() {
            self.writes.push(write.clone().given_up());
        }
        let failed = WriteResult::Failed { settled: false, message: String::new() };
        self.end_write(&write, failed, around);
    }

    pub(super) fn restart(&mut self, options: &Options) {
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
        for write in &mut self.writes {
            *write = write.clone().given_up();
        }
    }

    pub(super) fn sleep(&mut self, node: Node, around: Around<'_>) {
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

    pub(super) fn deadline(&mut self, node: Node, around: Around<'_>) {
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

    pub(crate) fn prefill_deadline(&self, rank: u8) -> Option<Timestamp> {
        let mine = self.writes.iter().filter(|it| it.rank == rank && !it.orphan);
        self.p[usize::from(rank)].next_deadline(mine)
    }
}
