//! How loads end: exactly once, and only when nothing can land any more `[P08]`.

use super::load::{LoadFailure, LoadFailureReason, LoadId, Phase, Waiting};
use super::{LoadKind, OpenPull, Receiver, ReceiverAction, Timer, Wait};
use crate::directory::OurRank;
use crate::ids::Grant;
use crate::planted::{self, Bug};
use crate::sender::PullId;
use crate::time::Timestamp;
use crate::wire::DropTransfers;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Receiver {
    /// A P rank has written its part.
    pub(super) fn rank_settled(&mut self, id: LoadId, address: &Arc<str>, now: Timestamp) {
        let Some(load) = self.loads.get_mut(&id) else { return };
        load.outstanding.remove(address);
        if planted::is(Bug::FirstAnswerEndsLoad) {
            load.outstanding.clear();
        }
        self.revoke_if_settled(id, now);
    }

    /// A P rank failed. The first failure is kept, later results still count.
    pub(super) fn rank_failed(
        &mut self,
        id: LoadId,
        address: &Arc<str>,
        reason: LoadFailureReason,
        settled: bool,
        text: &str,
        now: Timestamp,
    ) {
        let Some(load) = self.loads.get_mut(&id) else { return };
        let stock = load.outstanding.remove(address).is_some_and(|it| it.ours.is_none());
        load.stock_unsettled |= stock && !settled;
        let text = format!("prefill rank {address}: {text}");
        self.fail(id, reason, &text, Wait::IfRevokingDoesNotSettle, now);
    }

    /// Fails a load as a whole.
    pub(super) fn fail(
        &mut self,
        id: LoadId,
        reason: LoadFailureReason,
        text: &str,
        wait: Wait,
        now: Timestamp,
    ) {
        let Some(load) = self.loads.get_mut(&id) else { return };
        load.failure.get_or_insert_with(|| LoadFailure {
            reason,
            message: format!("request {}: {text}", load.spec.request),
        });
        self.settle_early(id, wait, now);
    }

    /// Ends a load whose P ranks have not all answered. They are told; then the grant is
    /// revoked, which needs no answer from them `[P09, G02]`, or their answers are awaited
    /// where revoking alone proves nothing.
    pub(super) fn settle_early(&mut self, id: LoadId, wait: Wait, now: Timestamp) {
        if self.frees_at_failure(id, wait) {
            return self.report_early(id);
        }
        let Some(load) = self.loads.get_mut(&id) else { return };
        match load.phase {
            Phase::Pulling => {}
            Phase::Revoking => return,
            Phase::Staged | Phase::Discovering | Phase::Quarantined => return self.finish(id),
        }
        if load.wants_kv() && !std::mem::replace(&mut load.drop_sent, true) {
            let told: Vec<(Arc<str>, OurRank)> = load
                .outstanding
                .iter()
                .filter_map(|(address, it)| Some((address.clone(), it.ours?)))
                .collect();
            for (address, rank) in told {
                self.send_drop(id, address, rank);
            }
        }
        if wait == Wait::IfRevokingDoesNotSettle && !self.config.revoke_settles {
            self.revoke_if_settled(id, now);
        } else {
            self.revoke(id, now);
        }
    }

    pub(super) fn send_drop(&mut self, id: LoadId, address: Arc<str>, rank: OurRank) {
        let Some(load) = self.loads.get(&id) else { return };
        let spec = &load.spec;
        let drop = DropTransfers {
            incarnation: rank.incarnation,
            tp_rank: self.topology.tp_rank,
            transfers: vec![(spec.request.clone(), spec.transfer.clone(), spec.grant)],
        };
        self.actions.push_back(ReceiverAction::Drop { address, drop });
    }

    fn revoke_if_settled(&mut self, id: LoadId, now: Timestamp) {
        let settled = self
            .loads
            .get(&id)
            .is_some_and(|it| it.phase == Phase::Pulling && it.outstanding.is_empty());
        if settled {
            self.revoke(id, now);
        }
    }

    fn revoke(&mut self, id: LoadId, now: Timestamp) {
        let (unanswered, silent_until) = self.leave_pulls(id);
        let Some(load) = self.loads.get_mut(&id) else { return };
        if !load.wants_kv() {
            self.finish(id);
            return;
        }
        if load.stock_unsettled || !unanswered.is_empty() {
            let soon = now + self.config.stock_quarantine;
            let until = [silent_until, load.stock_lost_until]
                .into_iter()
                .flatten()
                .fold(soon, Timestamp::max);
            let blocks = load.spec.blocks.clone();
            self.quarantine.add(id, until, blocks, unanswered, now);
        }
        load.phase = Phase::Revoking;
        self.timers.clear(&Timer::Deadline(id));
        if planted::is(Bug::GrantNotRevoked) {
            return self.finish(id);
        }
        self.actions.push_back(ReceiverAction::Revoke(load.spec.grant));
    }

    /// A grant has been revoked: nothing of its load can land any more.
    pub fn revoked(&mut self, grant: Grant) {
        let Some(id) = self.by_grant.get(&grant).copied() else { return };
        if self.loads.get(&id).is_some_and(|load| load.phase == Phase::Revoking) {
            self.finish(id);
        }
    }

    /// Reports a load whose blocks nothing was asked to write, and goes on to tell P to
    /// release `[P10]`.
    pub(super) fn report_then_release(&mut self, id: LoadId) {
        self.report(id);
        if let Some(load) = self.loads.get_mut(&id) {
            load.spec.kind = LoadKind::Release;
        }
    }

    fn finish(&mut self, id: LoadId) {
        self.leave_pulls(id);
        self.report(id);
        self.timers.clear(&Timer::Deadline(id));
        self.timers.clear(&Timer::Quarantine(id));
        self.loads.remove(&id);
    }

    /// The one function that reports a load: afterwards its request id is free again.
    pub(super) fn report(&mut self, id: LoadId) {
        let Some(load) = self.loads.get(&id) else { return };
        if !load.wants_kv() || self.was_reported(id) {
            return;
        }
        let (request, transfer) = (load.spec.request.clone(), load.spec.transfer.clone());
        let end = load.end();
        self.by_grant.remove(&load.spec.grant);
        self.by_request.remove(&request);
        self.actions.push_back(ReceiverAction::Ended { request, transfer, end });
    }

    /// The load waits for no answers any more. Pulls that nobody waits for are closed; those
    /// that a stock P may still write for are kept, and returned with when the last of them
    /// is over.
    fn leave_pulls(&mut self, id: LoadId) -> (BTreeSet<PullId>, Option<Timestamp>) {
        let (mut unanswered, mut until) = (BTreeSet::new(), None);
        let Some(load) = self.loads.get_mut(&id) else { return (unanswered, until) };
        let wanted = load.wants_kv();
        let request = load.spec.request.clone();
        for (_, Waiting { pull, ours }) in std::mem::take(&mut load.outstanding) {
            let Some(open) = self.pulls.get_mut(&pull) else { continue };
            open.open.remove(&request);
            if ours.is_none() && wanted {
                open.lingering.insert(request.clone(), id);
                self.timers.set(Timer::Linger(pull), open.writes_until);
                until = until.max(Some(open.writes_until));
                unanswered.insert(pull);
            }
            self.close_if_empty(pull);
        }
        (unanswered, until)
    }

    /// Closes a pull of which no answer is waited for.
    pub(super) fn close_if_empty(&mut self, pull: PullId) {
        let open = self.pulls.get(&pull);
        if open.is_some_and(|open| open.open.is_empty() && open.lingering.is_empty()) {
            self.remove_pull(pull);
            self.actions.push_back(ReceiverAction::ClosePull(pull));
        }
    }

    pub(super) fn remove_pull(&mut self, pull: PullId) -> Option<OpenPull> {
        self.timers.clear(&Timer::Linger(pull));
        self.pulls.remove(&pull)
    }

    /// A stock P has answered some requests of a pull: it waits for the others anew.
    pub(super) fn writer_waits_on(&mut self, pull: PullId, now: Timestamp) {
        let Some(open) = self.pulls.get_mut(&pull) else { return };
        open.writes_until = now + self.config.load_timeout;
        if !open.lingering.is_empty() {
            self.timers.set(Timer::Linger(pull), open.writes_until);
        }
        for load in open.lingering.values() {
            self.quarantine.extend(*load, open.writes_until);
        }
    }

    /// A stock P has said its last word on loads that ended earlier: loads that wait for
    /// their blocks look again.
    pub(super) fn writers_answered(&mut self, pull: PullId, loads: &[LoadId], now: Timestamp) {
        let until = now + self.config.stock_quarantine;
        let mut lifted = false;
        for load in loads {
            lifted |= self.quarantine.answered(*load, pull, until);
        }
        if lifted {
            let waiting = self.loads.iter().filter(|(_, load)| load.phase == Phase::Quarantined);
            self.staged.extend(waiting.map(|(id, _)| *id));
            self.flush(now);
        }
    }
}
