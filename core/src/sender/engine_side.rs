//! What P's engine tells the sender.

use super::memory::Remembered;
use super::transfer::{Held, State, Transfer};
use super::{Ended, PlanCopies, SendError, Sender, SenderAction, Timer};
use crate::blocks::BlockList;
use crate::ids::{RequestId, TransferId};
use crate::time::Timestamp;
use crate::wire::FailureReason;
use std::sync::Arc;

impl<L: PlanCopies + Clone> Sender<L> {
    /// P's engine has scheduled a request that D will pull. Optional: `hold` alone is
    /// enough, but a request announced here does not expire while it runs `[P06]`.
    ///
    /// # Errors
    /// When the transfer id is in use, or the table is full.
    pub fn prefill_started(
        &mut self,
        request: RequestId,
        transfer: TransferId,
        now: Timestamp,
    ) -> Result<(), SendError> {
        if self.ended_unheard(&request, &transfer) {
            return Ok(());
        }
        self.claim(&request, &transfer)?;
        self.refuse_other_weights(&transfer);
        self.end_if_answered(&transfer);
        self.settle_input(now);
        Ok(())
    }

    /// P's engine has finished a request and leaves its blocks with the sender, until
    /// [`SenderAction::Finished`]. `blocks` are logical, per group.
    ///
    /// # Errors
    /// When the transfer id is in use, or the table is full: the blocks stay with the caller.
    pub fn hold(
        &mut self,
        request: RequestId,
        transfer: TransferId,
        blocks: Vec<BlockList>,
        end_token: Option<u32>,
        now: Timestamp,
    ) -> Result<(), SendError> {
        if self.ended_unheard(&request, &transfer) {
            let ended = self.memory.forget(&transfer).map_or(Ended::Sent, |it| it.ended);
            self.memory.remember(
                transfer.clone(),
                Remembered { ended, request: Some(request.clone()), told: true },
            );
            self.actions.push_back(SenderAction::Finished { request, transfer, ended });
            return Ok(());
        }
        let expires = now + self.config.hold_timeout;
        let entry = self.claim(&request, &transfer)?;
        let held = Held { blocks: Arc::from(blocks), end_token, since: now };
        let blocks = held.len();
        entry.state = State::Ready(held);
        entry.expires = expires;
        let over = entry.ending.filter(|_| entry.reading == 0);
        self.held += 1;
        self.held_blocks += blocks;
        if let Some(why) = over {
            // It was started under other weights [R07].
            self.finish(&transfer, Ended::Failed(why));
            return Ok(());
        }
        self.timers.set(Timer::Transfer(transfer.clone()), expires);
        self.refuse_other_weights(&transfer);
        let waiting: Vec<_> = self.transfers[&transfer].pending.keys().cloned().collect();
        for reader in waiting {
            self.enqueue(&transfer, &reader);
        }
        self.end_if_answered(&transfer);
        self.settle_input(now);
        Ok(())
    }

    /// P's engine gives a request up before it is held. Who pulls it is told at once, also
    /// later `[P05]`. Never a failure `[P13]`.
    pub fn abort(&mut self, transfer: &TransferId, now: Timestamp) {
        self.give_up(transfer, FailureReason::Aborted, now);
    }

    /// P's engine wants a held request's blocks back. They come with
    /// [`SenderAction::Finished`], once no write reads them. Never a failure `[P13]`. A
    /// release that comes before the hold is remembered, and the hold ends at once `[P05]`.
    pub fn release(&mut self, transfer: &TransferId, now: Timestamp) {
        if !self.transfers.contains_key(transfer) && self.memory.recall(transfer).is_none() {
            let ended = Ended::Failed(FailureReason::Released);
            let early = Remembered { ended, request: None, told: false };
            self.memory.remember(transfer.clone(), early);
            return;
        }
        self.give_up(transfer, FailureReason::Released, now);
    }

    /// [`Self::release`] of every held request.
    pub fn release_all(&mut self, now: Timestamp) {
        self.end_held(FailureReason::Released);
        self.settle_input(now);
    }

    /// P's engine needs every block back: it pauses with clearing, sleeps or resets `[R03]`.
    /// As [`Self::release_all`], but D is told to recompute, and so is who waits for a request
    /// that is not held yet. Announced requests go on: nobody who was told gets their KV.
    pub fn abort_transfers(&mut self, now: Timestamp) {
        self.end_held(FailureReason::Reset);
        self.refuse_unwritten(FailureReason::Reset);
        self.settle_input(now);
    }

    /// Answers every open pull that has no write yet: the registration that its layout
    /// was prepared for is going away.
    pub fn refuse_open_pulls(&mut self, now: Timestamp) {
        self.refuse_unwritten(FailureReason::Unavailable);
        self.settle_input(now);
    }

    fn end_held(&mut self, why: FailureReason) {
        let held: Vec<TransferId> = self
            .transfers
            .iter()
            .filter(|(_, transfer)| matches!(transfer.state, State::Ready(_)))
            .map(|(id, _)| id.clone())
            .collect();
        for transfer in held {
            self.end(&transfer, Ended::Failed(why));
        }
    }

    fn refuse_unwritten(&mut self, why: FailureReason) {
        let waiting: Vec<_> = self
            .transfers
            .iter()
            .flat_map(|(id, transfer)| {
                let unstarted =
                    transfer.pending.iter().filter(|(_, pending)| !pending.stage.is_writing());
                unstarted.map(move |(reader, _)| (id.clone(), reader.clone()))
            })
            .collect();
        for (id, reader) in waiting {
            self.fail_reader(&id, &reader, why, true, super::message(why, &id));
            self.end_if_answered(&id);
        }
    }

    fn give_up(&mut self, transfer: &TransferId, why: FailureReason, now: Timestamp) {
        if let Some(entry) = self.transfers.get(transfer) {
            let why = entry.ending.unwrap_or(why); // D was told so
            // The engine knows: a later use of the id is a new transfer.
            let told = Remembered {
                ended: Ended::Failed(why),
                request: entry.request.clone(),
                told: true,
            };
            self.end(transfer, Ended::Failed(why));
            if !self.transfers.contains_key(transfer) {
                self.memory.remember(transfer.clone(), told);
            }
        } else if self.memory.recall(transfer).is_none_or(|it| !it.told) {
            let ended = Ended::Failed(why);
            self.memory.remember(transfer.clone(), Remembered { ended, request: None, told: true });
        }
        self.settle_input(now);
    }

    /// Whether the transfer ended before P's engine handed its blocks over, so that they
    /// must go straight back.
    fn ended_unheard(&mut self, request: &RequestId, transfer: &TransferId) -> bool {
        !self.transfers.contains_key(transfer)
            && self.memory.recall(transfer).is_some_and(|it| {
                !it.told && it.request.as_ref().is_none_or(|owner| owner == request)
            })
    }

    /// The transfer's entry, owned by `request` from now on. It must not be held yet.
    fn claim(&mut self, request: &RequestId, id: &TransferId) -> Result<&mut Transfer, SendError> {
        if let Some(known) = self.transfers.get(id)
            && let Some(owner) = &known.request
            && (owner != request || matches!(known.state, State::Ready(_)))
        {
            return Err(SendError::TransferInUse {
                transfer: id.clone(),
                request: request.clone(),
                owner: owner.clone(),
            });
        }
        let limit = self.config.max_transfers;
        if !self.transfers.contains_key(id) && self.transfers.len() >= limit {
            return Err(SendError::TooMany { request: request.clone(), limit });
        }
        self.memory.forget(id);
        self.timers.clear(&Timer::Transfer(id.clone()));
        let new = || Transfer::waiting(Some(request.clone()), Timestamp::NEVER);
        let entry = self.transfers.entry(id.clone()).or_insert_with(new);
        self.unconfirmed -= usize::from(entry.request.is_none());
        entry.request = Some(request.clone());
        entry.expires = Timestamp::NEVER;
        Ok(entry)
    }
}
