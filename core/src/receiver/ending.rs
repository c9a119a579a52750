//! How loads end: exactly once, and only when nothing can land any more `[P08]`.

use super::load::{LoadFailure, LoadFailureReason, Phase};
use super::{LoadKind, Receiver, ReceiverAction, Timer};
use crate::ids::{Grant, RequestId};
use crate::time::Timestamp;
use crate::wire::DropTransfers;
use std::sync::Arc;

impl Receiver {
    /// A P rank has written its part.
    pub(super) fn rank_settled(&mut self, request: &RequestId, address: &Arc<str>, now: Timestamp) {
        let Some(load) = self.loads.get_mut(request) else { return };
        load.outstanding.remove(address);
        if load.outstanding.is_empty() && load.phase == Phase::Pulling {
            self.revoke(request, now);
        }
    }

    /// A P rank failed. The first failure is kept, later results still count.
    pub(super) fn rank_failed(
        &mut self,
        request: &RequestId,
        address: &Arc<str>,
        reason: LoadFailureReason,
        settled: bool,
        text: &str,
        now: Timestamp,
    ) {
        let stock = self.is_stock(request, address);
        let Some(load) = self.loads.get_mut(request) else { return };
        load.outstanding.remove(address);
        load.stock_unsettled |= stock && !settled;
        load.failure.get_or_insert_with(|| LoadFailure {
            reason,
            message: format!("request {request}: prefill rank {address}: {text}"),
        });
        if self.config.revoke_settles {
            self.settle_early(request, now);
        } else if load.outstanding.is_empty() && load.phase == Phase::Pulling {
            self.revoke(request, now);
        }
    }

    /// Fails a load as a whole.
    pub(super) fn fail(
        &mut self,
        request: &RequestId,
        reason: LoadFailureReason,
        message: String,
        now: Timestamp,
    ) {
        let Some(load) = self.loads.get_mut(request) else { return };
        load.failure.get_or_insert(LoadFailure { reason, message });
        self.settle_early(request, now);
    }

    /// Ends a load whose P ranks have not all answered: they are told, and the grant is
    /// revoked, which needs no answer from them `[P09, G02]`.
    pub(super) fn settle_early(&mut self, request: &RequestId, now: Timestamp) {
        let Some(load) = self.loads.get(request) else { return };
        if load.phase != Phase::Pulling {
            if load.phase != Phase::Revoking {
                self.finish(request);
            }
            return;
        }
        let engine = load.spec.engine.clone();
        let waits_for: Vec<Arc<str>> = load.outstanding.iter().cloned().collect();
        for address in &waits_for {
            let ours = self.peers.ours(&engine, address);
            let Some(load) = self.loads.get_mut(request) else { return };
            match ours {
                Some(rank) if load.spec.kind == LoadKind::Load => {
                    let drop = DropTransfers {
                        incarnation: rank.incarnation,
                        tp_rank: self.topology.tp_rank,
                        transfers: vec![(
                            request.clone(),
                            load.spec.transfer.clone(),
                            load.spec.grant,
                        )],
                    };
                    self.actions.push_back(ReceiverAction::Drop { address: address.clone(), drop });
                }
                Some(_) => {}
                None => load.stock_unsettled = true,
            }
        }
        self.leave_pulls(request);
        self.revoke(request, now);
    }

    fn revoke(&mut self, request: &RequestId, now: Timestamp) {
        let Some(load) = self.loads.get_mut(request) else { return };
        self.timers.clear(&Timer::Deadline(request.clone()));
        if load.stock_unsettled && load.has_blocks() {
            let until = now + self.config.stock_quarantine;
            self.quarantine.add(until, load.spec.blocks.clone());
        }
        if load.spec.kind == LoadKind::Release {
            self.finish(request);
            return;
        }
        load.phase = Phase::Revoking;
        self.actions.push_back(ReceiverAction::Revoke(load.spec.grant));
    }

    /// A grant has been revoked: nothing of its load can land any more.
    pub fn revoked(&mut self, grant: Grant) {
        let Some(request) = self.by_grant.get(&grant).cloned() else { return };
        if self.loads.get(&request).is_some_and(|load| load.phase == Phase::Revoking) {
            self.finish(&request);
        }
    }

    fn finish(&mut self, request: &RequestId) {
        self.leave_pulls(request);
        let Some(load) = self.loads.remove(request) else { return };
        self.by_grant.remove(&load.spec.grant);
        self.timers.clear(&Timer::Deadline(request.clone()));
        self.timers.clear(&Timer::Quarantine(request.clone()));
        if load.spec.kind == LoadKind::Load {
            let end = load.end();
            let transfer = load.spec.transfer;
            self.actions.push_back(ReceiverAction::Ended {
                request: request.clone(),
                transfer,
                end,
            });
        }
    }

    /// Nobody waits for the request's answers any more; pulls without others are closed.
    fn leave_pulls(&mut self, request: &RequestId) {
        let mut closed = Vec::new();
        for (id, pull) in &mut self.pulls {
            pull.open.retain(|open| open != request);
            if pull.open.is_empty() {
                closed.push(*id);
            }
        }
        for id in closed {
            self.pulls.remove(&id);
            self.actions.push_back(ReceiverAction::ClosePull(id));
        }
    }

    fn is_stock(&self, request: &RequestId, address: &str) -> bool {
        let Some(load) = self.loads.get(request) else { return false };
        self.peers.ours(&load.spec.engine, address).is_none()
    }
}
