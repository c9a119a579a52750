//! What D's pulls and drops do.

use super::pull_state::PullState;
use super::transfer::{Pending, State, Transfer};
use super::{
    Ended, OpenPull, PlanCopies, PullId, Reader, ResolvedPull, Sender, SenderAction, Timer, message,
};
use crate::ids::TransferId;
use crate::time::Timestamp;
use crate::wire::{DropTransfers, FailureReason, PullRequest};
use std::collections::BTreeMap;

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
            self.pull_request(id, &pull.reader, pull.expected_readers, request, now);
        }
        self.settle_input(now);
    }

    fn pull_request(
        &mut self,
        pull: PullId,
        reader: &Reader,
        expected: u32,
        request: PullRequest,
        now: Timestamp,
    ) {
        let id = request.transfer_id.clone();
        if let Err(why) = self.admit(&id, reader, &request, now) {
            let state = &mut self.pulls.get_mut(&pull).expect("inserted by the caller").state;
            state.fail(request.request_id, why, true, message(why, &id));
            return;
        }
        let transfer = self.transfers.get_mut(&id).expect("admitted");
        transfer.expected = Some(transfer.expected.unwrap_or(0).max(expected.max(1)));
        if request.groups.iter().all(|group| group.is_empty()) {
            self.release_by_reader(pull, &id, reader, request);
            return;
        }
        transfer.pending.insert(
            reader.clone(),
            Pending {
                pull,
                request: request.request_id.clone(),
                grant: request.grant,
                write: None,
            },
        );
        let ready = matches!(transfer.state, State::Ready(_));
        let open = self.pulls.get_mut(&pull).expect("inserted by the caller");
        open.open.insert(id.clone(), request);
        if ready {
            self.queue.push_back((id, reader.clone()));
        }
    }

    /// Whether the request may wait for its transfer; makes the transfer if D names it first.
    fn admit(
        &mut self,
        id: &TransferId,
        reader: &Reader,
        request: &PullRequest,
        now: Timestamp,
    ) -> Result<(), FailureReason> {
        if request.grant.is_some_and(|grant| self.memory.was_dropped(id, grant)) {
            return Err(FailureReason::Dropped);
        }
        if let Some(transfer) = self.transfers.get(id) {
            if let Some(why) = transfer.ending {
                return Err(why);
            }
            let taken =
                transfer.pending.contains_key(reader) || transfer.answered.contains_key(reader);
            return if taken { Err(FailureReason::AlreadyUsed) } else { Ok(()) };
        }
        if let Some(remembered) = self.memory.recall(id) {
            return Err(match remembered.ended {
                Ended::Sent => FailureReason::AlreadyUsed,
                Ended::Failed(why) => why,
            });
        }
        if self.transfers.len() >= self.config.max_transfers {
            return Err(FailureReason::Overloaded);
        }
        let expires = now + self.config.hold_timeout;
        self.transfers.insert(id.clone(), Transfer::waiting(None, expires));
        self.timers.set(Timer::Transfer(id.clone()), expires);
        Ok(())
    }

    /// A pull without blocks: this reader needs nothing `[P10]`.
    fn release_by_reader(
        &mut self,
        pull: PullId,
        id: &TransferId,
        reader: &Reader,
        request: PullRequest,
    ) {
        let transfer = self.transfers.get_mut(id).expect("admitted");
        transfer.answered.insert(reader.clone(), false);
        let open = self.pulls.get_mut(&pull).expect("inserted by the caller");
        open.state.succeed(request.request_id);
        let everyone = transfer.all_answered();
        if everyone {
            let sent = transfer.answered.values().any(|sent| *sent);
            let ended = if sent { Ended::Sent } else { Ended::Failed(FailureReason::Released) };
            self.end(id, ended);
        }
    }

    /// D gave loads up `[P09]`. What waits is answered at once; what is being written is
    /// cancelled and answered when it has settled. Unknown ones are remembered, since a
    /// drop may overtake its pull.
    pub fn drop_transfers(&mut self, drop: &DropTransfers, now: Timestamp) {
        for (_, id, grant) in &drop.transfers {
            let reader = self.transfers.get(id).and_then(|transfer| {
                let mut pending = transfer.pending.iter();
                pending.find(|(_, pending)| pending.grant == Some(*grant))
            });
            match reader.map(|(reader, pending)| (reader.clone(), pending.write)) {
                Some((_, Some(write))) => {
                    self.memory.remember_drop(id.clone(), *grant);
                    self.actions.push_back(SenderAction::CancelWrite(write));
                }
                Some((reader, None)) => {
                    let why = FailureReason::Dropped;
                    self.fail_reader(id, &reader, why, true, message(why, id));
                    self.end_if_answered(id);
                }
                None => self.memory.remember_drop(id.clone(), *grant),
            }
        }
        self.settle_input(now);
    }

    /// Ends a transfer once every D rank has its answer.
    pub(super) fn end_if_answered(&mut self, id: &TransferId) {
        let Some(transfer) = self.transfers.get(id) else { return };
        if !transfer.all_answered() || !transfer.pending.is_empty() {
            return;
        }
        let ended = if transfer.all_sent() {
            Ended::Sent
        } else if transfer.answered.values().any(|sent| *sent) {
            Ended::Failed(FailureReason::WriteFailed)
        } else {
            Ended::Failed(FailureReason::Dropped)
        };
        self.end(id, ended);
    }

    /// No write starts after a pull's deadline; those running end by themselves `[P04]`.
    pub(super) fn time_out_pull(&mut self, pull: PullId) {
        let Some(open) = self.pulls.get(&pull) else { return };
        let reader = open.state.reader.clone();
        let unanswered: Vec<TransferId> = open.open.keys().cloned().collect();
        for id in unanswered {
            let writing = self
                .transfers
                .get(&id)
                .and_then(|transfer| transfer.pending.get(&reader))
                .is_some_and(|pending| pending.write.is_some());
            if !writing {
                let why = FailureReason::TimedOut;
                self.fail_reader(&id, &reader, why, true, message(why, &id));
                self.end_if_answered(&id);
            }
        }
    }

    pub(super) fn expire(&mut self, id: &TransferId, now: Timestamp) {
        let Some(transfer) = self.transfers.get_mut(id) else { return };
        if transfer.reading > 0 {
            // Writes are bounded: look again when the running ones must have ended `[P06]`.
            transfer.expires = now + self.config.write_timeout;
            self.timers.set(Timer::Transfer(id.clone()), transfer.expires);
            return;
        }
        self.end(id, Ended::Failed(FailureReason::Expired));
    }
}
