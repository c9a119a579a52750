//! What was asked of a receiver and what was seen of it, load by load.

use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{
    EngineId, Generation, Grant, Incarnation, LayoutId, RequestId, TransferId, WeightVersion,
};
use kvbaton_core::receiver::{Form, LoadFailureReason};
use kvbaton_core::sender::PullId;
use kvbaton_core::time::Timestamp;
use std::sync::Arc;

/// A load that has not been reported.
#[derive(Debug, Clone)]
pub(super) struct Load {
    pub request: RequestId,
    pub transfer: TransferId,
    pub engine: EngineId,
    pub grant: Grant,
    pub blocks: Vec<BlockList>,
    pub deadline: Timestamp,
    /// P ranks that were pulled from.
    pub ranks: Vec<Rank>,
    /// Its grant is open; whether stock writers may use it.
    pub opened: Option<bool>,
    pub revoking: bool,
    pub revoked: bool,
    pub dropped: bool,
    /// The first failure `[P08]`.
    pub cause: Option<LoadFailureReason>,
    /// It must end without waiting for P.
    pub at_once: bool,
    pub drop_sent: bool,
    /// A stock P failed it, or may have, without saying that it settled.
    pub unsettled: bool,
    /// Until when a stock P whose connection broke may begin to write `[P09]`.
    pub lost_until: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rank {
    pub address: Arc<str>,
    pub pull: PullId,
    /// The run that is meant; `None` for a stock rank.
    pub ours: Option<Incarnation>,
    pub state: RankState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RankState {
    Waiting,
    Ok,
    Failed,
}

/// A pull without its last answer.
#[derive(Debug, Clone)]
pub(super) struct OpenPull {
    pub id: PullId,
    pub address: Arc<str>,
    pub form: Form,
    pub with_layout: bool,
    pub repeats: u8,
    /// Requests without an answer; the grant is `None` for a release.
    pub open: Vec<(RequestId, Option<Grant>)>,
    /// A stock P that says nothing more begins no write after this.
    pub writes_until: Timestamp,
}

/// Blocks that a stock P may still write to `[G03]`.
#[derive(Debug, Clone)]
pub(super) struct Closed {
    pub request: RequestId,
    pub blocks: Vec<BlockList>,
    pub until: Timestamp,
    pub unanswered: Vec<PullId>,
}

/// A pull that must be sent again, now `[L05]`.
#[derive(Debug, Clone)]
pub(super) struct Repeat {
    pub address: Arc<str>,
    pub form: Form,
    pub repeats: u8,
    pub open: Vec<(RequestId, Option<Grant>)>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Book {
    pub registered: Option<(LayoutId, Generation)>,
    pub weights: WeightVersion,
    pub loads: Vec<Load>,
    pub pulls: Vec<OpenPull>,
    pub closed: Vec<Closed>,
    /// Addresses that echoed the current layout id `[L04]`.
    pub echoed: Vec<Arc<str>>,
    /// Addresses that may or may not be taken to hold the layout.
    pub unsure: Vec<Arc<str>>,
    pub asking: Vec<Arc<str>>,
    /// Engines as they were last learned: their ranks' addresses.
    pub learned: Vec<(EngineId, Vec<Arc<str>>)>,
    /// Drops that are due: address, run, grant `[P09]`.
    pub drops: Vec<(Arc<str>, Incarnation, Grant)>,
    pub repeat: Option<Repeat>,
    /// Loads whose pulls went out with this input.
    pub fresh: Vec<Grant>,
}

impl Load {
    pub fn waits(&self) -> bool {
        self.ranks.iter().any(|it| it.state == RankState::Waiting)
    }

    pub fn is_over(&self) -> bool {
        self.dropped || self.cause.is_some()
    }
}

impl Book {
    pub fn by_grant(&mut self, grant: Grant) -> Option<&mut Load> {
        self.loads.iter_mut().find(|it| it.grant == grant)
    }

    pub fn by_request(&mut self, request: &RequestId) -> Option<&mut Load> {
        self.loads.iter_mut().find(|it| it.request == *request)
    }

    pub fn forget_echo(&mut self, address: &Arc<str>) {
        self.echoed.retain(|it| it != address);
        self.unsure.retain(|it| it != address);
    }

    pub fn forget_echoes(&mut self) {
        self.echoed.clear();
        self.unsure.clear();
    }

    /// Until when blocks are closed to stock writers.
    pub fn closed_until(&self, blocks: &[BlockList], now: Timestamp) -> Option<Timestamp> {
        let closed = self.closed.iter().filter(|it| it.until > now && overlap(&it.blocks, blocks));
        closed.map(|it| it.until).max()
    }

    /// A load fails or is dropped while its pulls are out: P is told, and it does not wait
    /// where revoking settles, or `now_or_never`.
    pub fn end_early(&mut self, grant: Grant, at_once: bool) {
        let Some(load) = self.loads.iter_mut().find(|it| it.grant == grant) else { return };
        if load.revoking {
            return;
        }
        load.at_once |= at_once || load.opened.is_none();
        if load.opened.is_none() || std::mem::replace(&mut load.drop_sent, true) {
            return;
        }
        for rank in load.ranks.iter().filter(|it| it.state == RankState::Waiting) {
            if let Some(run) = rank.ours {
                self.drops.push((rank.address.clone(), run, grant));
            }
        }
    }

    /// One P rank failed a load.
    pub fn rank_failed(
        &mut self,
        grant: Grant,
        address: &Arc<str>,
        reason: LoadFailureReason,
        settled: bool,
        revoke_settles: bool,
    ) {
        let Some(load) = self.by_grant(grant) else { return };
        if let Some(rank) = load.ranks.iter_mut().find(|it| it.address == *address)
            && rank.state == RankState::Waiting
        {
            rank.state = RankState::Failed;
            load.unsettled |= rank.ours.is_none() && !settled;
        }
        load.cause.get_or_insert(reason);
        self.end_early(grant, revoke_settles);
    }

    pub fn rank_ok(&mut self, grant: Grant, address: &Arc<str>) {
        let Some(load) = self.by_grant(grant) else { return };
        if let Some(rank) = load.ranks.iter_mut().find(|it| it.address == *address) {
            rank.state = RankState::Ok;
        }
    }

    /// A stock P has said its last word on ended loads of a pull; `None` means all.
    pub fn writers_answered(
        &mut self,
        pull: PullId,
        names: Option<&[&RequestId]>,
        until: Timestamp,
    ) {
        for closed in &mut self.closed {
            if names.is_some_and(|names| !names.contains(&&closed.request)) {
                continue;
            }
            let before = closed.unanswered.len();
            closed.unanswered.retain(|it| *it != pull);
            if closed.unanswered.is_empty() && before > 0 {
                closed.until = closed.until.min(until);
            }
        }
    }

    /// A stock P has answered some of a pull, and waits for the others anew `[P09]`.
    pub fn writer_waits_on(&mut self, pull: PullId, until: Timestamp) {
        for open in self.pulls.iter_mut().filter(|it| it.id == pull) {
            open.writes_until = until;
        }
        for closed in self.closed.iter_mut().filter(|it| it.unanswered.contains(&pull)) {
            closed.until = closed.until.max(until);
        }
    }

    /// The load's grant is being revoked: it waits for nobody any more.
    pub fn leave(&mut self, grant: Grant, now: Timestamp, quarantine: std::time::Duration) {
        let Some(load) = self.loads.iter_mut().find(|it| it.grant == grant) else { return };
        load.revoking = true;
        let waiting = load.ranks.iter().filter(|it| it.state == RankState::Waiting);
        let unanswered: Vec<PullId> = waiting
            .filter(|it| it.ours.is_none() && self.pulls.iter().any(|pull| pull.id == it.pull))
            .map(|it| it.pull)
            .collect();
        for pull in &mut self.pulls {
            pull.open.retain(|(_, of)| *of != Some(grant));
        }
        if load.unsettled || !unanswered.is_empty() {
            let silent = self.pulls.iter().filter(|pull| unanswered.contains(&pull.id));
            let silent = silent.map(|pull| pull.writes_until).max();
            let until = [silent, load.lost_until].into_iter().flatten();
            let until = until.fold(now + quarantine, Timestamp::max);
            self.closed.push(Closed {
                request: load.request.clone(),
                blocks: load.blocks.clone(),
                until,
                unanswered,
            });
        }
    }
}

/// Whether the lists of any group share a block.
pub(super) fn overlap(left: &[BlockList], right: &[BlockList]) -> bool {
    left.iter().zip(right).any(|(left, right)| {
        left.runs().iter().any(|ours| {
            let mut theirs = right.runs().iter();
            theirs
                .any(|it| u64::from(it.start.0) < ours.end() && u64::from(ours.start.0) < it.end())
        })
    })
}
