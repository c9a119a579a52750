//! What P's answers mean.

use super::load::LoadFailureReason;
use super::{Form, MAX_REPEATS, OpenPull, Receiver, ReceiverAction};
use crate::ids::RequestId;
use crate::sender::PullId;
use crate::time::Timestamp;
use crate::wire::{FailureReason, Reply, Status};

impl Receiver {
    /// Takes an answer to a pull. Answers to closed pulls change nothing.
    pub fn reply(&mut self, pull: PullId, reply: Reply, now: Timestamp) {
        let Some(open) = self.pulls.get(&pull) else { return };
        let address = open.address.clone();
        match reply.status {
            Status::LayoutMiss => {
                self.peers.forget_echo(&address);
                if open.with_layout || open.repeats >= MAX_REPEATS {
                    self.refuse(pull, &reply, now);
                } else {
                    self.repeat(pull, now, |open| open.with_layout = true);
                }
            }
            Status::Error if open.form == Form::Compact && reply.extension.is_none() => {
                // Somebody who does not know our form lives there now.
                let engine = open.engine.clone();
                self.peers.forget_engine(&engine);
                self.peers.forget_echo(&address);
                if open.repeats >= MAX_REPEATS {
                    self.refuse(pull, &reply, now);
                } else {
                    self.ask_again_as_stock(pull, now);
                }
            }
            Status::Error => self.refuse(pull, &reply, now),
            Status::Continue | Status::Finish => self.take_results(pull, reply, now),
        }
    }

    fn take_results(&mut self, pull: PullId, reply: Reply, now: Timestamp) {
        let Some(open) = self.pulls.get(&pull) else { return };
        let address = open.address.clone();
        let current = self.registered.as_ref().map(|it| it.layout_id);
        if current == Some(reply.layout_id) {
            self.peers.echo(address.clone()); // [L04, L10]
        }
        let text = reply.message.clone().unwrap_or_else(|| "no reason given".into());
        for request in reply.failed.iter().flatten() {
            let outcome = reply.extension.as_ref().and_then(|it| {
                it.outcomes.iter().find(|(id, ..)| id == request).map(|(_, why, ok)| (*why, *ok))
            });
            self.request_failed(pull, request, outcome, &text, now);
        }
        for request in reply.ok.iter().flatten() {
            if self.close_request(pull, request) {
                self.rank_settled(request, &address, now);
            }
        }
        if reply.status == Status::Finish {
            let silent = "it finished without reporting a result for this request";
            for request in self.open_requests(pull) {
                self.request_failed(pull, &request, None, silent, now);
            }
            self.pulls.remove(&pull);
        }
    }

    /// One request failed at one P rank. `outcome` is what our own P says of it.
    fn request_failed(
        &mut self,
        pull: PullId,
        request: &RequestId,
        outcome: Option<(FailureReason, bool)>,
        text: &str,
        now: Timestamp,
    ) {
        let Some(address) = self.address_of(pull) else { return };
        if outcome.is_some_and(|(why, _)| why == FailureReason::UnknownIncarnation) {
            let engine = self.pulls[&pull].engine.clone();
            self.peers.forget_engine(&engine);
            self.peers.forget_echo(&address);
        }
        if !self.close_request(pull, request) {
            return;
        }
        let settled = outcome.is_some_and(|(_, settled)| settled);
        let reason =
            outcome.map_or(LoadFailureReason::Refused, |(why, _)| LoadFailureReason::Prefill(why));
        self.rank_failed(request, &address, reason, settled, text, now);
    }

    /// The pull as a whole was refused.
    fn refuse(&mut self, pull: PullId, reply: &Reply, now: Timestamp) {
        let Some(open) = self.pulls.remove(&pull) else { return };
        self.actions.push_back(ReceiverAction::ClosePull(pull));
        let text = reply.message.clone().unwrap_or_else(|| "it refused the pull".into());
        // Our own P refuses before it writes; of a stock P it is not known.
        let settled = reply.extension.is_some();
        for request in open.open {
            let reason = LoadFailureReason::Refused;
            self.rank_failed(&request, &open.address, reason, settled, &text, now);
        }
    }

    /// The connection of a pull broke, or could not be made: `sent` tells whether P may
    /// have read the pull.
    pub fn pull_failed(&mut self, pull: PullId, sent: bool, error: &str, now: Timestamp) {
        let Some(open) = self.pulls.remove(&pull) else { return };
        // Whoever answers there next may be another process.
        self.peers.forget_engine(&open.engine);
        self.peers.forget_echo(&open.address);
        for request in open.open {
            let reason = LoadFailureReason::Unreachable;
            self.rank_failed(&request, &open.address, reason, !sent, error, now);
        }
    }

    /// A grant could not be opened: the load fails before anything is written.
    pub fn grant_refused(&mut self, grant: crate::ids::Grant, error: &str, now: Timestamp) {
        let Some(request) = self.by_grant.get(&grant).cloned() else { return };
        let message = format!("request {request}: its blocks cannot be opened: {error}");
        self.fail(&request, LoadFailureReason::Unregistered, message, now);
    }

    fn repeat(&mut self, pull: PullId, now: Timestamp, change: impl FnOnce(&mut OpenPull)) {
        let Some(mut open) = self.pulls.remove(&pull) else { return };
        self.actions.push_back(ReceiverAction::ClosePull(pull));
        open.repeats += 1;
        change(&mut open);
        if !open.open.is_empty() {
            self.send_pull(open, now);
        }
    }

    /// Repeats a pull for somebody without grants: the rows must be open to such writers.
    fn ask_again_as_stock(&mut self, pull: PullId, now: Timestamp) {
        let requests = self.open_requests(pull);
        for request in requests {
            let Some(load) = self.loads.get(&request) else { continue };
            if load.spec.kind != super::LoadKind::Load {
                continue;
            }
            let generation = self.registered.as_ref().map(|it| it.generation).unwrap_or_default();
            self.actions.push_back(ReceiverAction::OpenGrant {
                grant: load.spec.grant,
                generation,
                blocks: load.spec.blocks.clone(),
                allow_ungranted: true,
            });
        }
        self.repeat(pull, now, |open| {
            open.form = Form::Stock;
            open.with_layout = true;
        });
    }

    fn open_requests(&self, pull: PullId) -> Vec<RequestId> {
        self.pulls.get(&pull).map(|open| open.open.clone()).unwrap_or_default()
    }

    /// Takes a request out of a pull; false when it was not open there.
    fn close_request(&mut self, pull: PullId, request: &RequestId) -> bool {
        let Some(open) = self.pulls.get_mut(&pull) else { return false };
        let before = open.open.len();
        open.open.retain(|id| id != request);
        open.open.len() < before
    }
}
