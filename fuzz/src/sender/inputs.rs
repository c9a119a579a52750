//! What each input must do.

use super::effects::Effect;
use super::memory::Remembered;
use super::model::{Ask, Foretold, Model, OpenPull, Stage};
use kvbaton_core::ids::{Grant, RequestId, TransferId};
use kvbaton_core::sender::{Ended, Reader, ResolvedPull};
use kvbaton_core::time::Timestamp;
use kvbaton_core::wire::{FailureReason, PullRequest};
use std::time::Duration;

/// How an engine's call must be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    Yes,
    InUse,
    TooMany,
}

impl Model {
    pub fn prefill_started(&mut self, owner: &RequestId, id: &TransferId, now: Timestamp) -> Taken {
        if self.ended_unheard(owner, id) {
            return Taken::Yes;
        }
        let taken = self.claim(owner, id);
        if taken == Taken::Yes {
            self.refuse_other_weights(id);
            self.end_if_answered(id);
            self.settle(now);
        }
        taken
    }

    /// Blocks of what ended before they came go straight back `[P05]`.
    pub fn hold(&mut self, owner: &RequestId, id: &TransferId, len: u64, now: Timestamp) -> Taken {
        if self.ended_unheard(owner, id) {
            let ended = self.memory.forget(id).map_or(Ended::Sent, |it| it.ended);
            let told = Remembered { ended, owner: Some(owner.clone()), told: true };
            self.memory.remember(id, told);
            self.due.push("P05", Effect::Finished(owner.clone(), id.clone(), ended));
            return Taken::Yes;
        }
        let taken = self.claim(owner, id);
        if taken != Taken::Yes {
            return taken;
        }
        let expires = now + self.config.hold_timeout;
        if let Some(life) = self.life(id) {
            life.held = Some(len);
            life.expires = expires;
            if let Some(why) = life.ending {
                self.finish(id, Ended::Failed(why));
                return taken;
            }
        }
        self.refuse_other_weights(id);
        for at in self.asks_of(id) {
            self.enqueue(at);
        }
        self.end_if_answered(id);
        self.settle(now);
        taken
    }

    pub fn abort(&mut self, id: &TransferId, now: Timestamp) {
        self.give_up(id, FailureReason::Aborted, now);
    }

    pub fn release(&mut self, id: &TransferId, now: Timestamp) {
        if self.life(id).is_none() && self.memory.recall(id).is_none() {
            let ended = Ended::Failed(FailureReason::Released);
            self.memory.remember(id, Remembered { ended, owner: None, told: false });
            return;
        }
        self.give_up(id, FailureReason::Released, now);
    }

    fn give_up(&mut self, id: &TransferId, why: FailureReason, now: Timestamp) {
        let told = self.life(id).and_then(|life| life.ending);
        let ended = Ended::Failed(told.unwrap_or(why));
        if let Some(life) = self.life(id) {
            let owner = life.owner.clone();
            self.end(id, ended);
            if self.life(id).is_none() {
                self.memory.remember(id, Remembered { ended, owner, told: true });
            }
        } else if self.memory.recall(id).is_none_or(|it| !it.told) {
            self.memory.remember(id, Remembered { ended, owner: None, told: true });
        }
        self.settle(now);
    }

    pub fn release_all(&mut self, now: Timestamp) {
        self.end_held(FailureReason::Released);
        self.settle(now);
    }

    /// Nothing is held, and nobody waits, but for writes that have yet to end `[R03]`.
    pub fn abort_transfers(&mut self, now: Timestamp) {
        self.end_held(FailureReason::Reset);
        self.refuse_unwritten(FailureReason::Reset);
        self.settle(now);
    }

    pub fn refuse_open_pulls(&mut self, now: Timestamp) {
        self.refuse_unwritten(FailureReason::Unavailable);
        self.settle(now);
    }

    fn end_held(&mut self, why: FailureReason) {
        let mut held: Vec<TransferId> =
            self.lives.iter().filter(|it| it.held.is_some()).map(|it| it.id.clone()).collect();
        held.sort();
        for id in held {
            self.end(&id, Ended::Failed(why));
        }
    }

    fn refuse_unwritten(&mut self, why: FailureReason) {
        let mut open: Vec<(TransferId, Reader)> = self
            .asks
            .iter()
            .filter(|it| !matches!(it.stage, Stage::Writing(..)))
            .map(|it| (it.transfer.clone(), it.reader.clone()))
            .collect();
        open.sort();
        for (id, reader) in open {
            if let Some(at) = self.find(&id, &reader) {
                self.fail(at, why, true);
            }
            self.end_if_answered(&id);
        }
    }

    pub fn pull<L>(
        &mut self,
        pull: &ResolvedPull<L>,
        foretold: fn(u64, u64) -> Foretold,
        now: Timestamp,
    ) {
        self.pulls.push(OpenPull {
            id: pull.id,
            deadline: now + self.answer_within(pull.timeout),
            late: false,
            open: pull.requests.len(),
            echo: pull.echo,
            generation: pull.generation,
        });
        for request in &pull.requests {
            self.pull_one(pull, request, foretold, now);
        }
        self.settle(now);
    }

    /// P answers before D gives up `[P04]`.
    fn answer_within(&self, timeout: Duration) -> Duration {
        if timeout.is_zero() {
            return self.config.pull_timeout;
        }
        let margin = self.config.answer_margin.min(timeout / 4);
        self.config.pull_timeout.min(timeout - margin)
    }

    fn pull_one<L>(
        &mut self,
        pull: &ResolvedPull<L>,
        request: &PullRequest,
        foretold: fn(u64, u64) -> Foretold,
        now: Timestamp,
    ) {
        let (id, name) = (&request.transfer_id, request.request_id.clone());
        if let Err(why) = self.admit(id, &pull.reader, now) {
            self.answer(pull.id, Effect::Failed(pull.id, name, why, true));
            return;
        }
        let dropped = request.grant.is_some_and(|grant| self.memory.was_dropped(id, grant));
        let wanted: u64 = request.groups.iter().map(|group| group.len()).sum();
        let Some(life) = self.life(id) else { return };
        life.expected = Some(life.expected.unwrap_or(0).max(pull.expected_readers.max(1)));
        if dropped || wanted == 0 {
            let how = if dropped { Err(FailureReason::Dropped) } else { Ok(false) };
            life.answered.push((pull.reader.clone(), how));
            let effect = match how {
                Err(why) => Effect::Failed(pull.id, name, why, true),
                Ok(_) => Effect::Ok(pull.id, name),
            };
            self.answer(pull.id, effect);
            self.end_if_answered(id);
            return;
        }
        let (ready, named) = (life.held.is_some(), life.owner.is_some());
        self.asks.push(Ask {
            pull: pull.id,
            name,
            transfer: id.clone(),
            reader: pull.reader.clone(),
            grant: request.grant,
            wanted,
            weights: pull.weights,
            foretold,
            stage: Stage::Unready,
            dropped: false,
        });
        let at = self.asks.len() - 1;
        if named && !self.fits(pull.weights) {
            self.fail(at, FailureReason::OtherWeights, true);
            self.end_if_answered(id);
        } else if ready {
            self.enqueue(at);
        }
    }

    fn admit(
        &mut self,
        id: &TransferId,
        reader: &Reader,
        now: Timestamp,
    ) -> Result<(), FailureReason> {
        let (most, most_readers) = (self.config.max_waiting, self.config.max_readers.max(1));
        let waiting = self.asks.len();
        let asked = self.asks.iter().filter(|it| it.transfer == *id).count();
        let asks = self.find(id, reader).is_some();
        if let Some(life) = self.life(id) {
            return match life.ending {
                Some(why) => Err(why),
                None if asks || life.knows(reader) => Err(FailureReason::AlreadyUsed),
                None if waiting >= most || asked + life.answered.len() >= most_readers => {
                    Err(FailureReason::Overloaded)
                }
                None => Ok(()),
            };
        }
        if let Some(remembered) = self.memory.recall(id) {
            return Err(match remembered.ended {
                Ended::Sent => FailureReason::AlreadyUsed,
                Ended::Failed(why) => why,
            });
        }
        let unconfirmed = self.lives.iter().filter(|it| it.owner.is_none()).count();
        let (transfers, limit) = (self.lives.len(), self.config.max_transfers);
        if transfers >= limit || unconfirmed >= limit.div_ceil(2) || waiting >= most {
            return Err(FailureReason::Overloaded);
        }
        self.new_life(id, None, now + self.config.hold_timeout);
        Ok(())
    }

    pub fn drop_one(&mut self, id: &TransferId, grant: Grant) {
        let mut asks = self.asks_of(id).into_iter();
        let Some(at) = asks.find(|at| self.asks[*at].grant == Some(grant)) else {
            self.memory.remember_drop(id, grant);
            return;
        };
        if let Stage::Writing(..) = self.asks[at].stage {
            self.asks[at].dropped = true;
            self.cancel(at);
        } else {
            self.fail(at, FailureReason::Dropped, true);
            self.end_if_answered(id);
        }
    }

    /// A write of `ask` has ended: `settled` is `None` when it was written.
    pub fn write_done(&mut self, at: usize, settled: Option<bool>, now: Timestamp) {
        let (id, dropped) = (self.asks[at].transfer.clone(), self.asks[at].dropped);
        let ending = self.life(&id).and_then(|it| it.ending);
        match settled {
            // Written, but of weights that P does not run any more `[R07]`.
            None if ending == Some(FailureReason::OtherWeights) => {
                self.fail(at, FailureReason::OtherWeights, true);
            }
            None => {
                self.succeed(at);
                self.end_if_answered(&id);
            }
            Some(settled) => {
                let why = match ending {
                    _ if dropped => FailureReason::Dropped,
                    Some(why) => why,
                    None => FailureReason::WriteFailed,
                };
                self.fail(at, why, settled);
                match ending {
                    Some(_) => {}
                    None if dropped => self.end_if_answered(&id),
                    None => self.end(&id, Ended::Failed(why)),
                }
            }
        }
        if self.asks.iter().all(|it| it.transfer != id)
            && let Some(life) = self.life(&id)
            && let Some(why) = life.ending
        {
            let sent = life.all_answered() && life.outcome() == Ended::Sent;
            self.finish(&id, if sent { Ended::Sent } else { Ended::Failed(why) });
        }
        self.settle(now);
    }

    /// Everything that is due by `now`, earliest first, transfers before pulls.
    pub fn tick(&mut self, now: Timestamp) {
        while let Some(at) = self.next_deadline().filter(|at| *at <= now) {
            let expired = self.lives.iter().filter(|it| it.expires == at).map(|it| &it.id).min();
            if let Some(id) = expired.cloned() {
                self.expire(&id, now);
                continue;
            }
            let late = self.pulls.iter_mut().filter(|it| !it.late && it.deadline == at);
            if let Some(pull) = late.min_by_key(|it| it.id) {
                pull.late = true;
                let id = pull.id;
                self.time_out(id);
            }
        }
        self.settle(now);
    }

    /// Never while a write reads: then again when it must have ended `[P06]`.
    fn expire(&mut self, id: &TransferId, now: Timestamp) {
        if self.is_read(id) {
            let again = now + self.config.write_timeout.max(Duration::from_millis(1));
            if let Some(life) = self.life(id) {
                life.expires = again;
            }
            return;
        }
        self.end(id, Ended::Failed(FailureReason::Expired));
    }

    /// No answer comes later than this, except about a write that runs `[P04]`.
    fn time_out(&mut self, pull: kvbaton_core::sender::PullId) {
        let mut open: Vec<(TransferId, Reader)> = self
            .asks
            .iter()
            .filter(|it| it.pull == pull && !matches!(it.stage, Stage::Writing(..)))
            .map(|it| (it.transfer.clone(), it.reader.clone()))
            .collect();
        open.sort();
        for (id, reader) in open {
            if let Some(at) = self.find(&id, &reader) {
                self.fail(at, FailureReason::TimedOut, true);
                self.end_if_answered(&id);
            }
        }
    }

    fn find(&self, id: &TransferId, reader: &Reader) -> Option<usize> {
        self.asks.iter().position(|it| it.transfer == *id && it.reader == *reader)
    }

    /// Whether the transfer ended before P's engine handed its blocks over.
    fn ended_unheard(&mut self, owner: &RequestId, id: &TransferId) -> bool {
        self.life(id).is_none()
            && self
                .memory
                .recall(id)
                .is_some_and(|it| !it.told && it.owner.as_ref().is_none_or(|of| of == owner))
    }

    /// One transfer serves one request `[P11]`.
    fn claim(&mut self, owner: &RequestId, id: &TransferId) -> Taken {
        let limit = self.config.max_transfers;
        let known = self.lives.len();
        let Some(life) = self.life(id) else {
            if known >= limit {
                return Taken::TooMany;
            }
            self.memory.forget(id);
            self.new_life(id, Some(owner.clone()), Timestamp::NEVER);
            return Taken::Yes;
        };
        if life.owner.as_ref().is_some_and(|of| of != owner || life.held.is_some()) {
            return Taken::InUse;
        }
        life.owner = Some(owner.clone());
        life.expires = Timestamp::NEVER;
        self.memory.forget(id);
        Taken::Yes
    }
}
