//! What P's answers mean.

use super::load::{LoadFailureReason, LoadId};
use super::planted::is_echo;
use super::{Form, MAX_REPEATS, OpenPull, Receiver, ReceiverAction, Wait};
use crate::ids::{EngineId, Grant, RequestId};
use crate::planted::{self, Bug};
use crate::sender::PullId;
use crate::time::Timestamp;
use crate::wire::{FailureReason, Reply, Status};
use std::sync::Arc;

impl Receiver {
    /// Takes an answer to a pull. Answers to closed pulls change nothing.
    pub fn reply(&mut self, pull: PullId, reply: Reply, now: Timestamp) {
        let Some(open) = self.pulls.get(&pull) else { return };
        let address = open.address.clone();
        match reply.status {
            Status::LayoutMiss => {
                self.peers.forget_echo(&address);
                let endless = planted::is(Bug::MissRepeatsForEver);
                if (open.with_layout || open.repeats >= MAX_REPEATS) && !endless {
                    self.refuse(pull, &reply, now);
                } else {
                    self.repeat(pull, now, |open| open.with_layout = !endless);
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
        if current == Some(reply.layout_id) || is_echo(&reply) {
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
            if let Some(load) = self.close_request(pull, request) {
                self.rank_settled(load, &address, now);
            }
        }
        let named = reply.ok.iter().chain(&reply.failed).flatten();
        let late = self.pulls.get_mut(&pull).map_or_else(Vec::new, |open| {
            named.filter_map(|request| open.lingering.remove(request)).collect()
        });
        self.writers_answered(pull, &late, now);
        if reply.status == Status::Finish {
            let silent = "it finished without reporting a result for this request";
            for (request, _) in self.open_requests(pull) {
                self.request_failed(pull, &request, None, silent, now);
            }
            self.end_pull(pull, now);
        } else {
            self.writer_waits_on(pull, now);
            // Nobody may wait for the last answer, which may never come.
            self.close_if_empty(pull);
        }
    }

    /// P has said its last word on a pull.
    fn end_pull(&mut self, pull: PullId, now: Timestamp) -> Option<OpenPull> {
        let mut open = self.remove_pull(pull)?;
        let late: Vec<LoadId> = std::mem::take(&mut open.lingering).into_values().collect();
        self.writers_answered(pull, &late, now);
        Some(open)
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
        let Some((address, engine)) = self.peer_of(pull) else { return };
        let Some(load) = self.close_request(pull, request) else { return };
        if outcome.is_some_and(|(why, _)| why == FailureReason::UnknownIncarnation) {
            self.peers.forget_engine(&engine);
            self.peers.forget_echo(&address);
        }
        let settled = outcome.is_some_and(|(_, settled)| settled);
        let reason =
            outcome.map_or(LoadFailureReason::Refused, |(why, _)| LoadFailureReason::Prefill(why));
        self.rank_failed(load, &address, reason, settled, text, now);
    }

    /// The pull as a whole was refused.
    fn refuse(&mut self, pull: PullId, reply: &Reply, now: Timestamp) {
        let Some(open) = self.end_pull(pull, now) else { return };
        self.actions.push_back(ReceiverAction::ClosePull(pull));
        let text = reply.message.clone().unwrap_or_else(|| "it refused the pull".into());
        // Our own P refuses before it writes; of a stock P it is not known.
        let settled = reply.extension.is_some();
        for load in open.open.into_values() {
            let reason = LoadFailureReason::Refused;
            self.rank_failed(load, &open.address, reason, settled, &text, now);
        }
    }

    /// The connection of a pull broke, or could not be made: `sent` tells whether P may
    /// have read the pull.
    pub fn pull_failed(&mut self, pull: PullId, sent: bool, error: &str, now: Timestamp) {
        let Some(open) = self.remove_pull(pull) else { return };
        // Whoever answers there next may be another process.
        if !planted::is(Bug::EngineKeptWhenUnreachable) {
            self.peers.forget_engine(&open.engine);
        }
        self.peers.forget_echo(&open.address);
        for id in open.open.into_values() {
            let load = self.loads.get_mut(&id).filter(|load| load.wants_kv());
            let waiting =
                load.and_then(|load| Some((load.outstanding.get(&open.address)?.ours, load)));
            let ours = waiting.as_ref().and_then(|(ours, _)| *ours);
            if let (true, Some((None, load))) = (sent, waiting) {
                // It may have read the pull, and does not know that nobody waits.
                load.stock_lost_until = load.stock_lost_until.max(Some(open.writes_until));
            }
            if let (true, Some(rank)) = (sent, ours) {
                // It may have read the pull and hold blocks for it [P09].
                self.send_drop(id, open.address.clone(), rank);
            }
            let reason = LoadFailureReason::Unreachable;
            self.rank_failed(id, &open.address, reason, !sent, error, now);
        }
    }

    /// A grant could not be opened: the load fails before anything is written.
    pub fn grant_refused(&mut self, grant: Grant, error: &str, now: Timestamp) {
        let Some(id) = self.by_grant.get(&grant).copied() else { return };
        let text = format!("its blocks cannot be opened: {error}");
        let wait = Wait::IfRevokingDoesNotSettle;
        self.fail(id, LoadFailureReason::Unregistered, &text, wait, now);
    }

    fn repeat(&mut self, pull: PullId, now: Timestamp, change: impl FnOnce(&mut OpenPull)) {
        let Some(mut open) = self.end_pull(pull, now) else { return };
        self.actions.push_back(ReceiverAction::ClosePull(pull));
        open.repeats = open.repeats.saturating_add(1);
        change(&mut open);
        if !open.open.is_empty() {
            self.send_pull(open, now);
        }
    }

    /// Repeats a pull for somebody without grants: the rows must be open to such writers.
    fn ask_again_as_stock(&mut self, pull: PullId, now: Timestamp) {
        let Some((address, _)) = self.peer_of(pull) else { return };
        let generation = self.registered.as_ref().map(|it| it.generation).unwrap_or_default();
        for (request, id) in self.open_requests(pull) {
            let Some(load) = self.loads.get_mut(&id) else { continue };
            if let Some(waiting) = load.outstanding.get_mut(&address) {
                waiting.ours = None;
            }
            if !load.wants_kv() {
                continue;
            }
            if self.quarantine.blocks_until(&load.spec.blocks, now).is_some() {
                let text = "a stock prefill lives there now, and these blocks are not yet safe \
                            from an earlier load's stock prefill; load again";
                self.close_request(pull, &request);
                self.rank_failed(id, &address, LoadFailureReason::Refused, true, text, now);
                continue;
            }
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

    fn open_requests(&self, pull: PullId) -> Vec<(RequestId, LoadId)> {
        let open = self.pulls.get(&pull).map(|open| &open.open);
        open.into_iter().flatten().map(|(request, id)| (request.clone(), *id)).collect()
    }

    /// Takes a request out of a pull; `None` when it was not open there.
    fn close_request(&mut self, pull: PullId, request: &RequestId) -> Option<LoadId> {
        let pulled = self.pulls.get_mut(&pull)?.open.remove(request);
        let current = || self.by_request.get(request).copied();
        if planted::is(Bug::RequestIdAba) { current().or(pulled) } else { pulled }
    }

    fn peer_of(&self, pull: PullId) -> Option<(Arc<str>, EngineId)> {
        self.pulls.get(&pull).map(|open| (open.address.clone(), open.engine.clone()))
    }
}
