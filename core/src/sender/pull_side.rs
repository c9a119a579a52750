//! What D's pulls and drops do.

use super::pull_state::PullState;
use super::transfer::{Answer, Pending, Stage, State, Transfer};
use super::{
    Ended, OpenPull, PlanCopies, PullId, Reader, ResolvedPull, Sender, SenderAction, Timer, message,
};
use crate::ids::{Grant, LayoutId, RequestId, TransferId, WeightVersion};
use crate::planted::{self, Bug};
use crate::time::Timestamp;
use crate::wire::{
    DropTransfers, FailureReason, PullRequest, REVISION, Reply, ReplyExtension, Status,
};
use std::collections::BTreeMap;
use std::time::Duration;

impl<L: PlanCopies + Clone> Sender<L> {
    /// Takes a pull. Every request it names gets one terminal answer, and none waits for
    /// another pull `[P02]`.
    ///
    /// # Panics
    /// When the pull's id is in use.
    pub fn pull(&mut self, pull: ResolvedPull<L>, now: Timestamp) {
        assert!(!self.pulls.contains_key(&pull.id), "pull id {:?} is in use", pull.id);
        let deadline = now + self.config.answer_within(pull.timeout);
        let id = pull.id;
        let state = PullState {
            layout: pull.layout,
            reader: pull.reader.clone(),
            echo: pull.echo,
            deadline,
            open: pull.requests.len(),
            ok: Vec::new(),
            failed: Vec::new(),
            message: None,
            extended: pull.generation.is_some(),
        };
        let open = OpenPull { state, generation: pull.generation, open: BTreeMap::new() };
        self.pulls.insert(id, open);
        self.touched.insert(id);
        self.timers.set(Timer::Pull(id), deadline);
        for request in pull.requests {
            let asks = (pull.expected_readers, pull.weights);
            self.pull_request(id, &pull.reader, asks, request, now);
        }
        self.settle_input(now);
    }

    fn pull_request(
        &mut self,
        pull: PullId,
        reader: &Reader,
        (expected, weights): (u32, WeightVersion),
        request: PullRequest,
        now: Timestamp,
    ) {
        let id = request.transfer_id.clone();
        if let Err(why) = self.admit(&id, reader, now) {
            let state = &mut self.pulls.get_mut(&pull).expect("inserted by the caller").state;
            state.fail(request.request_id, why, true, message(why, &id));
            return;
        }
        let transfer = self.transfers.get_mut(&id).expect("admitted");
        transfer.expected = Some(transfer.expected.unwrap_or(0).max(expected.max(1)));
        let dropped = request.grant.is_some_and(|grant| self.memory.was_dropped(&id, grant));
        if dropped || request.groups.iter().all(|group| group.is_empty()) {
            self.answer_at_once(pull, &id, reader, request.request_id, dropped);
            return;
        }
        let unfit = self.is_of_other_weights(&self.transfers[&id], weights);
        let transfer = self.transfers.get_mut(&id).expect("admitted");
        transfer.pending.insert(
            reader.clone(),
            Pending {
                pull,
                request: request.request_id.clone(),
                grant: request.grant,
                weights,
                stage: Stage::Unready,
                dropped: false,
            },
        );
        let ready = matches!(transfer.state, State::Ready(_));
        let open = self.pulls.get_mut(&pull).expect("inserted by the caller");
        open.open.insert(id.clone(), request);
        self.waiting += 1;
        if unfit {
            let text = self.other_weights(&id, weights);
            self.fail_reader(&id, reader, FailureReason::OtherWeights, true, text);
            self.end_if_answered(&id);
        } else if ready {
            self.enqueue(&id, reader);
        }
    }

    /// Lets a reader of a ready transfer wait for a slot.
    pub(super) fn enqueue(&mut self, id: &TransferId, reader: &Reader) {
        let transfer = self.transfers.get_mut(id).expect("looked up by the caller");
        let pending = transfer.pending.get_mut(reader).expect("looked up by the caller");
        pending.stage = Stage::Queued(self.next_place);
        self.queue.insert(self.next_place, (id.clone(), reader.clone()));
        self.next_place += 1;
    }

    /// Whether the request may wait for its transfer; makes the transfer if D names it first.
    fn admit(
        &mut self,
        id: &TransferId,
        reader: &Reader,
        now: Timestamp,
    ) -> Result<(), FailureReason> {
        if let Some(transfer) = self.transfers.get(id) {
            return match transfer.ending {
                Some(why) => Err(why),
                None if transfer.knows(reader) => Err(FailureReason::AlreadyUsed),
                None if self.crowded(transfer) => Err(FailureReason::Overloaded),
                None => Ok(()),
            };
        }
        if let Some(remembered) = self.memory.recall(id) {
            return Err(match remembered.ended {
                Ended::Sent => FailureReason::AlreadyUsed,
                Ended::Failed(why) => why,
            });
        }
        let full = self.transfers.len() >= self.config.max_transfers
            || self.unconfirmed >= self.config.max_transfers.div_ceil(2)
            || self.waiting >= self.config.max_waiting;
        if full {
            return Err(FailureReason::Overloaded);
        }
        self.unconfirmed += 1;
        let expires = now + self.config.hold_timeout;
        self.transfers.insert(id.clone(), Transfer::waiting(None, expires));
        self.timers.set(Timer::Transfer(id.clone()), expires);
        Ok(())
    }

    /// Whether no further reader fits `[Z01]`.
    fn crowded(&self, transfer: &Transfer) -> bool {
        self.waiting >= self.config.max_waiting
            || transfer.pending.len() + transfer.answered.len() >= self.config.max_readers.max(1)
    }

    /// Answers a reader that needs nothing: it asked for no blocks `[P10]`, or its load was
    /// dropped before the pull came `[P09]`. It counts as answered, so that the transfer
    /// does not wait for it.
    fn answer_at_once(
        &mut self,
        pull: PullId,
        id: &TransferId,
        reader: &Reader,
        request: RequestId,
        dropped: bool,
    ) {
        let transfer = self.transfers.get_mut(id).expect("admitted");
        let state = &mut self.pulls.get_mut(&pull).expect("inserted by the caller").state;
        if dropped {
            let why = FailureReason::Dropped;
            transfer.answered.insert(reader.clone(), Answer::Failed(why));
            state.fail(request, why, true, message(why, id));
        } else {
            transfer.answered.insert(reader.clone(), Answer::Released);
            if !planted::is(Bug::EmptyPullUnanswered) {
                state.succeed(request);
            }
        }
        self.end_if_answered(id);
    }

    /// Answers a pull that cannot be resolved: it names another run of P `[P12]`, or its
    /// layout does not fit. Every request it names fails, and nothing was written `[P02]`.
    ///
    /// # Panics
    /// When the pull's id is in use.
    pub fn refuse_pull(
        &mut self,
        pull: PullId,
        requests: &[RequestId],
        why: FailureReason,
        text: &str,
        extended: bool,
    ) {
        assert!(!self.pulls.contains_key(&pull), "pull id {pull:?} is in use");
        let reply = Reply {
            status: Status::Finish,
            ok: None,
            failed: (!requests.is_empty()).then(|| requests.to_vec()),
            message: Some(text.to_owned()),
            layout_id: LayoutId::NONE,
            extension: extended.then(|| ReplyExtension {
                revision: REVISION,
                features: self.features,
                incarnation: self.incarnation,
                outcomes: requests.iter().map(|it| (it.clone(), why, true)).collect(),
            }),
        };
        self.actions.push_back(SenderAction::Answer { pull, reply });
    }

    /// D gave loads up `[P09]`. What waits is answered at once; what is being written is
    /// cancelled and answered when it has settled. Unknown ones are remembered, since a
    /// drop may overtake its pull. Drops meant for another run of P change nothing.
    pub fn drop_transfers(&mut self, drop: &DropTransfers, now: Timestamp) {
        if !self.is_meant(drop.incarnation) {
            return;
        }
        for (_, id, grant) in &drop.transfers {
            self.drop_one(id, *grant);
        }
        self.settle_input(now);
    }

    fn drop_one(&mut self, id: &TransferId, grant: Grant) {
        let found = self.transfers.get_mut(id).and_then(|transfer| {
            let mut pending = transfer.pending.iter_mut();
            let any = planted::is(Bug::DropHitsAnyGrant);
            pending.find(|(_, pending)| any || pending.grant == Some(grant))
        });
        let Some((reader, pending)) = found else {
            self.memory.remember_drop(id.clone(), grant);
            return;
        };
        let reader = reader.clone();
        if pending.stage.is_writing() {
            pending.dropped = true;
            self.cancel_write(id, &reader);
        } else {
            let why = FailureReason::Dropped;
            self.fail_reader(id, &reader, why, true, message(why, id));
            self.end_if_answered(id);
        }
    }

    /// Ends a transfer once every D rank has its answer `[P07]`.
    pub(super) fn end_if_answered(&mut self, id: &TransferId) {
        let Some(transfer) = self.transfers.get(id) else { return };
        if transfer.ending.is_none() && transfer.all_answered() && transfer.pending.is_empty() {
            let ended = transfer.outcome();
            self.end(id, ended);
        }
    }

    /// No write starts after a pull's deadline; those running end by themselves `[P04]`.
    pub(super) fn time_out_pull(&mut self, pull: PullId) {
        let Some(open) = self.pulls.get(&pull) else { return };
        if planted::is(Bug::WriteAfterDeadline) {
            return;
        }
        let reader = open.state.reader.clone();
        let unanswered: Vec<TransferId> = open.open.keys().cloned().collect();
        for id in unanswered {
            let writing = self
                .transfers
                .get(&id)
                .and_then(|transfer| transfer.pending.get(&reader))
                .is_some_and(|pending| pending.stage.is_writing());
            if !writing {
                let why = FailureReason::TimedOut;
                self.fail_reader(&id, &reader, why, true, message(why, &id));
                self.end_if_answered(&id);
            }
        }
    }

    pub(super) fn expire(&mut self, id: &TransferId, now: Timestamp) {
        let Some(transfer) = self.transfers.get_mut(id) else { return };
        if transfer.reading > 0 && !planted::is(Bug::ExpiryDuringWrite) {
            // Writes are bounded: look again when the running ones must have ended `[P06]`.
            transfer.expires = now + self.config.write_timeout.max(Duration::from_millis(1));
            self.timers.set(Timer::Transfer(id.clone()), transfer.expires);
            return;
        }
        self.end(id, Ended::Failed(FailureReason::Expired));
    }
}
