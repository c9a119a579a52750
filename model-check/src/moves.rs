//! Which steps a world can take.

use crate::decode::Load;
use crate::network::Packet;
use crate::options::Options;
use crate::step::{Loss, Node, Step};
use crate::world::World;
use kvbaton_core::lifecycle::State;

impl World {
    /// Every step that can be taken now: none once a rule is broken.
    pub(crate) fn steps(&self, options: &Options, out: &mut Vec<Step>) {
        if self.broken.is_some() {
            return;
        }
        self.ordinary(options, out);
        if out.is_empty() || self.left.deadlines > 0 {
            out.extend(self.deadlines());
        }
        self.faults(out);
    }

    /// Whether anything but faults and deadlines can happen.
    pub(crate) fn is_busy(&self, options: &Options) -> bool {
        if !self.net.is_empty() || !self.writes.is_empty() {
            return true;
        }
        let mut steps = Vec::new();
        self.ordinary(options, &mut steps);
        !steps.is_empty()
    }

    /// What happens by itself, sooner or later.
    fn ordinary(&self, options: &Options, out: &mut Vec<Step>) {
        for (rank, p) in (0u8..).zip(&self.p) {
            if p.is_awake() {
                let running = (0..options.loads).filter(|it| p.running & (1 << it) != 0);
                out.extend(running.map(|transfer| Step::Hold(rank, transfer)));
            }
            if p.may_leave(options) {
                out.push(Step::Leave(Node::Prefill(rank)));
            }
            if p.lifecycle.state() == State::Unregistered {
                out.push(Step::Wake(Node::Prefill(rank)));
            }
        }
        if self.d.is_awake() {
            let new = self.d.loads.iter().filter(|it| **it == Load::New).count() as u8;
            out.extend((1..=new).map(Step::Load));
        }
        if self.d.may_leave(options) {
            out.push(Step::Leave(Node::Decode));
        }
        if self.d.lifecycle.state() == State::Unregistered {
            out.push(Step::Wake(Node::Decode));
        }
        out.extend(self.net.distinct().map(|(at, _)| Step::Deliver(at)));
        for (at, write) in (0u8..).zip(&self.writes) {
            if write.next_copy().is_some() {
                out.push(Step::Land(at));
            }
            if !write.orphan && (write.next_copy().is_none() || write.cancelled) {
                out.push(Step::Settle(at));
            }
        }
    }

    /// Nodes with a deadline.
    pub(crate) fn deadlines(&self) -> impl Iterator<Item = Step> {
        let ranks = (0..self.p.len() as u8).filter(|rank| self.prefill_deadline(*rank).is_some());
        let decode = self.d.next_deadline().map(|_| Step::Deadline(Node::Decode));
        ranks.map(|rank| Step::Deadline(Node::Prefill(rank))).chain(decode)
    }

    /// What may happen, or not.
    fn faults(&self, out: &mut Vec<Step>) {
        let left = &self.left;
        if left.restarts > 0 {
            out.push(Step::Restart);
        }
        if left.evictions > 0 {
            out.push(Step::Evict);
        }
        if left.decode_sleeps > 0 && matches!(self.d.lifecycle.state(), State::Registered(_)) {
            out.push(Step::Sleep(Node::Decode));
        }
        if left.prefill_sleeps > 0 && matches!(self.p[0].lifecycle.state(), State::Registered(_)) {
            out.push(Step::Sleep(Node::Prefill(0)));
        }
        if left.drops > 0 {
            let running = |load: &Load| matches!(load, Load::Running { .. });
            let loads = (0u8..).zip(&self.d.loads).filter(|(_, load)| running(load));
            out.extend(loads.map(|(load, _)| Step::Drop(load)));
        }
        if left.releases > 0 {
            let known = self.p.iter().fold(0, |known, p| known | p.running | p.held);
            out.extend((0..8).filter(|it| known & (1 << it) != 0).map(Step::Release));
        }
        for (at, packet) in self.net.distinct().filter(|(_, packet)| packet.travels()) {
            if left.losses > 0 {
                out.push(Step::Lose(at, Loss::Silent));
                if !matches!(packet, Packet::Drop { .. }) {
                    out.push(Step::Lose(at, Loss::Told));
                }
                if matches!(packet, Packet::Pull { .. }) {
                    out.push(Step::Lose(at, Loss::ToldButArrives));
                }
            }
            let doubled = !matches!(packet, Packet::Ask | Packet::Pull { copy: 1, .. });
            if left.duplicates > 0 && doubled {
                out.push(Step::Duplicate(at));
            }
        }
        if left.write_failures > 0 {
            let running = (0u8..).zip(&self.writes).filter(|(_, write)| !write.orphan);
            out.extend(running.map(|(at, _)| Step::FailWrite(at)));
        }
    }
}
