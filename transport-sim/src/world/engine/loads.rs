//! Holds and loads: what every rank's node is asked, and how its ends come together.

use super::host::Host;
use super::order::Hold;
use super::rows::payload;
use crate::history::{Failure, LoadFact, SendFact, What};
use kvbaton_actors::node::Load;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{RequestId, TransferId};
use kvbaton_core::receiver::LoadEnd;
use kvbaton_core::sender::Ended;

impl Host {
    pub(super) async fn hold(&mut self, hold: Hold) {
        let Hold { request, transfer, blocks, end_token } = hold;
        self.sends.start(request.clone(), self.ranks.len(), ());
        if self.was_given_up(&transfer) {
            // It was aborted between its last step and now.
            (0..self.ranks.len()).for_each(|rank| self.sent(rank, &request));
            return;
        }
        let weights = self.weights();
        for rank in 0..self.ranks.len() {
            let here = &self.ranks[rank];
            let (node, rows) = (here.node, payload(&here.local, &blocks));
            let (id, to) = (request.clone(), transfer.clone());
            // The node may give it back before it says that it took it.
            let held = What::Held { request: id.clone(), transfer: to.clone(), rows, weights };
            self.sim.note_at(node, held);
            let taken = here.port.hold(id, to, blocks.clone(), end_token as u32).await;
            if let Err(why) = taken {
                let (request, transfer, why) = (request.clone(), transfer.clone(), why.into());
                self.sim
                    .note_at(node, What::HoldRefused { request: request.clone(), transfer, why });
                self.sent(rank, &request);
            }
        }
    }

    pub(super) fn send_ended(
        &mut self,
        rank: usize,
        request: &RequestId,
        transfer: TransferId,
        ended: Ended,
    ) {
        let ended = match ended {
            Ended::Sent => SendFact::Sent,
            Ended::Failed(why) => SendFact::Failed(format!("{why:?}").into()),
        };
        let what = What::SendEnded { request: request.clone(), transfer, ended };
        self.sim.note_at(self.ranks[rank].node, what);
        self.sent(rank, request);
    }

    /// One rank's blocks are back; the scheduler gets them once all are.
    fn sent(&mut self, rank: usize, request: &RequestId) {
        if self.sends.report(request, rank, |()| ()).is_some() {
            self.model.scheduler().send_finished(request);
        }
    }

    /// What to ask for, if the request is still there.
    pub(super) fn load(
        &self,
        request: RequestId,
        transfer: TransferId,
        blocks: Vec<BlockList>,
        end_token: Option<usize>,
    ) -> Option<Load> {
        let source = self.running.get(&request)?.source.as_ref()?;
        Some(Load {
            engine: source.engine.clone(),
            bootstrap: source.bootstrap.clone(),
            end_token: end_token.map(|end| end as u32),
            request,
            transfer,
            blocks,
        })
    }

    pub(super) async fn start_loads(&mut self, loads: Vec<Load>) {
        let weights = self.weights();
        for load in &loads {
            self.loads.start(load.request.clone(), self.ranks.len(), false);
            if let Some(running) = self.running.get_mut(&load.request) {
                running.compare = true;
            }
        }
        for rank in 0..self.ranks.len() {
            let here = &self.ranks[rank];
            for load in &loads {
                let asked = What::LoadAsked {
                    request: load.request.clone(),
                    transfer: load.transfer.clone(),
                    rows: payload(&here.local, &load.blocks),
                    weights,
                };
                self.sim.note_at(here.node, asked);
            }
            let (node, taken) = (here.node, here.port.load(loads.clone()).await);
            for (load, taken) in loads.iter().zip(taken) {
                if let Err(why) = taken {
                    let (request, transfer) = (load.request.clone(), load.transfer.clone());
                    let what = What::LoadRefused { request, transfer, why: why.into() };
                    self.sim.note_at(node, what);
                    self.loaded(rank, &load.request, true).await;
                }
            }
        }
    }

    pub(super) async fn load_ended(
        &mut self,
        rank: usize,
        request: &RequestId,
        transfer: TransferId,
        end: LoadEnd,
    ) {
        let end = match end {
            LoadEnd::Loaded => LoadFact::Loaded,
            LoadEnd::Dropped => LoadFact::Dropped,
            LoadEnd::Failed(failure) => LoadFact::Failed(Failure {
                reason: format!("{:?}", failure.reason).into(),
                message: failure.message.into(),
            }),
        };
        let failed = end != LoadFact::Loaded;
        let what = What::LoadEnded { request: request.clone(), transfer, end };
        self.sim.note_at(self.ranks[rank].node, what);
        self.loaded(rank, request, failed).await;
    }

    /// One rank's load is over. When it failed, the other ranks need not go on.
    async fn loaded(&mut self, rank: usize, request: &RequestId, failed: bool) {
        let ended = self.loads.report(request, rank, |any_failed| *any_failed |= failed);
        match ended {
            Some(true) => {
                if let Some(running) = self.running.get_mut(request) {
                    running.compare = false;
                }
                self.model.scheduler().load_failed(request);
            }
            Some(false) => {
                self.model.scheduler().load_finished(request);
            }
            None if failed && self.loads.contains(request) => self.drop_load(request).await,
            None => {}
        }
    }

    pub(super) async fn drop_load(&mut self, request: &RequestId) {
        for rank in &self.ranks {
            self.sim.note_at(rank.node, What::LoadDropped { request: request.clone() });
            rank.port.drop_loads(vec![request.clone()]).await;
        }
    }
}
