//! What must hold when little or nothing is left to happen, and what comes too late.

use super::{Around, World};
use crate::coverage::Seen;
use crate::decode::Load;
use crate::network::Packet;
use crate::prefill::Prefill;
use crate::rules::Rule;
use kvbaton_core::lifecycle::State;
use kvbaton_core::sender::PullId;

impl World {
    /// Letters that come too late arrive at once, and must change nothing: when they arrive
    /// makes no difference then.
    pub(super) fn deliver_late(&mut self, around: Around<'_>) {
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

    /// When nothing but deadlines is left, everything must have ended, unless a message was
    /// lost; when not even they are, nothing may be left at all.
    pub(super) fn check_rest(&mut self, (options, tables): Around<'_>) {
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
}
