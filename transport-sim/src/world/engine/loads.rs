//! Holds and loads: what every rank's node is asked, and how its ends come together.

use super::host::Host;
use super::order::Hold;
use kvbaton_actors::node::Load;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{RequestId, TransferId};
use kvbaton_core::planted::{self, Bug};
use kvbaton_core::receiver::LoadEnd;

/// How a load ended, over its ranks: the worst counts, and no reset is a failure `[R04]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ending {
    Loaded,
    Failed,
    CutShort,
}

impl From<&LoadEnd> for Ending {
    fn from(end: &LoadEnd) -> Self {
        match end {
            LoadEnd::Loaded => Self::Loaded,
            LoadEnd::Failed(failure)
                if failure.reason.is_reset() && !planted::is(Bug::ResetFailsLoads) =>
            {
                Self::CutShort
            }
            LoadEnd::Failed(_) | LoadEnd::Dropped => Self::Failed,
        }
    }
}

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
            let (id, to) = (request.clone(), transfer.clone());
            // The node may give it back before it says that it took it.
            here.witness.held(&request, &transfer, &blocks, weights);
            let taken = here.port.hold(id, to, blocks.clone(), end_token as u32).await;
            if let Err(why) = taken {
                here.witness.hold_refused(&request, &transfer, &why);
                self.sent(rank, &request);
            }
        }
    }

    /// One rank's blocks are back; the scheduler gets them once all are.
    pub(super) fn sent(&mut self, rank: usize, request: &RequestId) {
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
            self.loads.start(load.request.clone(), self.ranks.len(), Ending::Loaded);
            if let Some(running) = self.running.get_mut(&load.request) {
                running.compare = true;
            }
        }
        for rank in 0..self.ranks.len() {
            let here = &self.ranks[rank];
            for load in &loads {
                here.witness.load_asked(load, weights);
            }
            let taken = here.port.load(loads.clone()).await;
            for (load, taken) in loads.iter().zip(taken) {
                if let Err(why) = taken {
                    self.ranks[rank].witness.load_refused(load, &why);
                    self.loaded(rank, &load.request, Ending::Failed).await;
                }
            }
        }
    }

    /// One rank's load is over. When it failed, the other ranks need not go on.
    pub(super) async fn loaded(&mut self, rank: usize, request: &RequestId, end: Ending) {
        let ended = self.loads.report(request, rank, |worst| *worst = end.max(*worst));
        let failed = end != Ending::Loaded;
        let Some(ended) = ended else {
            if failed && self.loads.contains(request) {
                self.drop_load(request).await;
            }
            return;
        };
        if ended != Ending::Loaded
            && let Some(running) = self.running.get_mut(request)
        {
            running.compare = false;
        }
        let scheduler = self.model.scheduler();
        match ended {
            Ending::Loaded => scheduler.load_finished(request),
            Ending::Failed => scheduler.load_failed(request),
            Ending::CutShort => scheduler.load_cut_short(request),
        };
    }

    pub(super) async fn drop_load(&mut self, request: &RequestId) {
        for rank in &self.ranks {
            rank.witness.load_dropped(request);
            rank.port.drop_loads(vec![request.clone()]).await;
        }
    }
}
