//! What the sender asks for, and whether it may.

use super::{Prefill, Running};
use crate::coverage::Seen;
use crate::data_plane::{Write, pieces};
use crate::memo::Output;
use crate::memory::Plan;
use crate::names::number;
use crate::network::Packet;
use crate::options::Options;
use crate::rules::Rule;
use kvbaton_core::sender::{Ended, PullId, SenderAction, StartWrite};
use kvbaton_core::wire::{FailureReason, Reply, Status};
use std::sync::Arc;

impl Prefill {
    /// Carries out what the sender asks for.
    pub(super) fn drain(&mut self, running: &mut Running, options: &Options, out: &mut Output) {
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
