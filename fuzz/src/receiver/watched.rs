//! A receiver beside its book: every input goes to both.

use super::book::{Book, Load, RankState, Repeat, overlap};
use crate::campaign::Check;
use crate::ensure;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::directory::EngineRanks;
use kvbaton_core::ids::{EngineId, Grant, RequestId, WeightVersion};
use kvbaton_core::receiver::{
    Form, LoadError, LoadFailureReason, LoadKind, LoadSpec, Receiver, ReceiverAction,
    ReceiverConfig, Registered,
};
use kvbaton_core::sender::PullId;
use kvbaton_core::time::Timestamp;
use kvbaton_core::topology::Topology;
use kvbaton_core::wire::{FailureReason, Reply, Status};

/// Repeats of one pull: with the layout, in stock form.
const MOST_REPEATS: u8 = 2;

/// The two, and what the receiver wants done: the caller takes it from `actions`.
#[derive(Debug, Clone)]
pub struct WatchedReceiver {
    pub(super) machine: Receiver,
    pub(super) book: Book,
    pub(super) config: ReceiverConfig,
    /// Whether D pairs with every rank of P.
    pub(super) all_ranks: bool,
    /// The input is a bootstrap server's answer.
    pub(super) discovering: bool,
    /// What the last inputs asked for, in order.
    pub actions: Vec<ReceiverAction>,
}

impl WatchedReceiver {
    /// A receiver of the rank at `topology`.
    pub fn new(config: ReceiverConfig, topology: Topology) -> Self {
        Self {
            machine: Receiver::new(config.clone(), topology),
            book: Book::default(),
            config,
            all_ranks: topology == Topology::SINGLE,
            discovering: false,
            actions: Vec::new(),
        }
    }

    /// The receiver, to be looked at.
    pub fn machine(&self) -> &Receiver {
        &self.machine
    }

    /// The open pulls' names.
    pub fn open_pulls(&self) -> impl ExactSizeIterator<Item = PullId> + '_ {
        self.book.pulls.iter().map(|it| it.id)
    }

    /// What a pull still has open.
    pub fn open_requests(&self, pull: PullId) -> Vec<RequestId> {
        let open = self.book.pulls.iter().find(|it| it.id == pull);
        open.into_iter().flat_map(|it| &it.open).map(|(name, _)| name.clone()).collect()
    }

    /// Grants that are being revoked, and the others that are not over.
    pub fn grants(&self) -> impl Iterator<Item = (Grant, bool)> + '_ {
        self.book.loads.iter().map(|it| (it.grant, it.revoking && !it.revoked))
    }

    /// Whether a grant is open, and to whom.
    pub fn rows(&self, grant: Grant) -> Option<bool> {
        self.book.loads.iter().find(|it| it.grant == grant && !it.revoked)?.opened
    }

    /// Whether a load that has not ended has one of the blocks.
    pub fn uses(&self, blocks: &BlockList) -> bool {
        self.book.loads.iter().any(|load| overlap(&load.blocks, std::slice::from_ref(blocks)))
    }

    pub fn register(&mut self, registered: Registered) {
        self.book.registered = Some((registered.layout_id, registered.generation));
        self.book.forget_echoes();
        self.machine.register(registered);
    }

    pub fn unregister(&mut self, now: Timestamp) -> Check {
        let grants: Vec<Grant> = self.book.loads.iter().map(|it| it.grant).collect();
        for grant in grants {
            self.fail(grant, LoadFailureReason::Unregistered, true);
        }
        self.machine.unregister(now);
        self.book.forget_echoes();
        let done = self.compare(now);
        self.book.registered = None;
        done
    }

    pub fn abort_transfers(&mut self, now: Timestamp) -> Check {
        self.cut_all_short(LoadFailureReason::Reset);
        self.machine.abort_transfers(now);
        self.compare(now)
    }

    pub fn set_weights(&mut self, version: WeightVersion, now: Timestamp) -> Check {
        if self.book.weights != version {
            self.book.weights = version;
            self.cut_all_short(LoadFailureReason::WeightsUpdated);
        }
        self.machine.set_weights(version, now);
        self.compare(now)
    }

    /// Before anything else: what its engine runs.
    pub fn start_with(&mut self, version: WeightVersion) {
        self.book.weights = version;
        self.machine.set_weights(version, Timestamp(0));
    }

    fn cut_all_short(&mut self, reason: LoadFailureReason) {
        let grants: Vec<Grant> = self.book.loads.iter().map(|it| it.grant).collect();
        for grant in grants {
            self.fail(grant, reason, self.config.revoke_settles);
        }
    }

    pub fn load(&mut self, spec: LoadSpec, now: Timestamp) -> Check<bool> {
        let (request, wanted) = (spec.request.clone(), spec.kind == LoadKind::Load);
        let loading = wanted && self.book.by_request(&request).is_some();
        let full = self.machine.loads() >= self.config.max_loads;
        let load = Load {
            request: request.clone(),
            transfer: spec.transfer.clone(),
            engine: spec.engine.clone(),
            grant: spec.grant,
            blocks: spec.blocks.clone(),
            deadline: now + self.config.load_timeout,
            ranks: Vec::new(),
            opened: None,
            revoking: false,
            revoked: false,
            dropped: false,
            cause: None,
            at_once: spec.blocks.iter().all(|group| group.is_empty()),
            drop_sent: false,
            unsettled: false,
            lost_until: None,
        };
        match self.machine.load(spec, now) {
            Err(LoadError::AlreadyLoading { .. }) => {
                ensure!(loading, "P11", "{request} is refused, though it does not load");
            }
            Err(LoadError::NotRegistered { .. }) => {
                ensure!(self.book.registered.is_none(), "P11", "{request}: not registered?");
            }
            Err(LoadError::TooMany { .. }) => ensure!(full, "Z01", "{request}: not too many"),
            Ok(()) => {
                ensure!(!loading, "P11", "{request} loads twice");
                ensure!(!full, "Z01", "{request} is one too many");
                ensure!(self.book.registered.is_some(), "P11", "{request} loads into nothing");
                if wanted {
                    self.book.loads.push(load);
                }
                self.compare(now)?;
                return Ok(true);
            }
        }
        self.compare(now)?;
        Ok(false)
    }

    pub fn flush(&mut self, now: Timestamp) -> Check {
        self.machine.flush(now);
        self.compare(now)
    }

    pub fn drop_load(&mut self, request: &RequestId, now: Timestamp) -> Check {
        let revoke_settles = self.config.revoke_settles;
        self.machine.drop_load(request, now);
        if let Some(load) = self.book.by_request(request).filter(|it| !it.revoking) {
            load.dropped = true;
            let grant = load.grant;
            self.book.end_early(grant, revoke_settles);
        }
        self.compare(now)
    }

    pub fn tick(&mut self, now: Timestamp) -> Check {
        let due: Vec<Grant> = self
            .book
            .loads
            .iter()
            .filter(|it| !it.revoking && it.deadline <= now)
            .map(|it| it.grant)
            .collect();
        for grant in due {
            self.fail(grant, LoadFailureReason::TimedOut, true);
        }
        if self.machine.next_deadline().is_some_and(|due| due <= now) {
            // A load that waited for discovery in vain: the next one asks again.
            self.book.asking.clear();
        }
        self.machine.tick(now);
        self.compare(now)
    }

    pub fn discovered(
        &mut self,
        bootstrap: &str,
        answer: Result<Vec<(EngineId, EngineRanks)>, String>,
        now: Timestamp,
    ) -> Check {
        self.book.asking.retain(|it| &**it != bootstrap);
        for (engine, ranks) in answer.iter().flatten() {
            let addresses = ranks.values().flat_map(|stages| stages.values());
            let mut addresses: Vec<_> = addresses.map(|rank| rank.address.clone()).collect();
            addresses.sort();
            self.book.learned.retain(|(known, _)| known != engine);
            self.book.learned.push((engine.clone(), addresses));
        }
        self.discovering = true;
        self.machine.discovered(bootstrap, answer, now);
        let done = self.compare(now);
        self.discovering = false;
        done
    }

    pub fn grant_refused(&mut self, grant: Grant, now: Timestamp) -> Check {
        self.fail(grant, LoadFailureReason::Unregistered, self.config.revoke_settles);
        self.machine.grant_refused(grant, "refused", now);
        self.compare(now)
    }

    pub fn revoked(&mut self, grant: Grant, now: Timestamp) -> Check {
        if let Some(load) = self.book.by_grant(grant).filter(|it| it.revoking) {
            load.revoked = true;
        }
        self.machine.revoked(grant);
        self.compare(now)
    }

    fn fail(&mut self, grant: Grant, reason: LoadFailureReason, at_once: bool) {
        if let Some(load) = self.book.by_grant(grant) {
            load.cause.get_or_insert(reason);
            self.book.end_early(grant, at_once);
        }
    }

    /// The connection of a pull broke: those who were not told must be `[P09]`.
    pub fn pull_failed(&mut self, pull: PullId, sent: bool, now: Timestamp) -> Check {
        if let Some(at) = self.book.pulls.iter().position(|it| it.id == pull) {
            let open = self.book.pulls.remove(at);
            self.book.forget_echo(&open.address);
            for grant in open.open.iter().filter_map(|(_, grant)| *grant) {
                let load = self.book.by_grant(grant);
                let rank = load.and_then(|it| {
                    it.ranks.iter().find(|it| it.address == open.address && waits(it.state))
                });
                let ours = rank.map(|it| it.ours);
                if let (true, Some(Some(run))) = (sent, ours) {
                    self.book.drops.push((open.address.clone(), run, grant));
                }
                if let (true, Some(None), Some(load)) = (sent, ours, self.book.by_grant(grant)) {
                    load.lost_until = load.lost_until.max(Some(open.writes_until));
                }
                let reason = LoadFailureReason::Unreachable;
                let settles = self.config.revoke_settles;
                self.book.rank_failed(grant, &open.address, reason, !sent, settles);
            }
        }
        self.machine.pull_failed(pull, sent, "broken", now);
        self.compare(now)
    }

    pub fn reply(&mut self, pull: PullId, reply: Reply, now: Timestamp) -> Check {
        if let Some(at) = self.book.pulls.iter().position(|it| it.id == pull) {
            let open = &self.book.pulls[at];
            let (compact, bare) = (open.form == Form::Compact, reply.extension.is_none());
            match reply.status {
                Status::LayoutMiss => {
                    let repeats = !open.with_layout && open.repeats < MOST_REPEATS;
                    self.take_miss(at, repeats, &reply, now);
                }
                Status::Error if compact && bare => self.take_strange(at, &reply, now),
                Status::Error => self.take_refusal(at, &reply, now),
                Status::Continue | Status::Finish => self.take_results(at, &reply, now),
            }
        }
        self.machine.reply(pull, reply, now);
        self.compare(now)
    }

    /// Once, and with the layout `[L05]`.
    fn take_miss(&mut self, at: usize, repeats: bool, reply: &Reply, now: Timestamp) {
        let address = self.book.pulls[at].address.clone();
        self.book.forget_echo(&address);
        if !repeats {
            return self.take_refusal(at, reply, now);
        }
        let open = self.book.pulls.remove(at);
        self.book.writers_answered(open.id, None, now + self.config.stock_quarantine);
        self.book.repeat = Some(Repeat {
            address: open.address,
            form: open.form,
            repeats: open.repeats + 1,
            open: open.open,
        });
    }

    /// Somebody who does not know our form lives there now: once more, in stock form.
    fn take_strange(&mut self, at: usize, reply: &Reply, now: Timestamp) {
        let address = self.book.pulls[at].address.clone();
        self.book.forget_echo(&address);
        if self.book.pulls[at].repeats >= MOST_REPEATS {
            return self.take_refusal(at, reply, now);
        }
        let open = self.book.pulls.remove(at);
        let mut again = Vec::new();
        for (name, grant) in open.open {
            let load = grant.and_then(|grant| self.book.by_grant(grant));
            let blocks = load.map(|load| {
                let of = load.ranks.iter_mut().filter(|it| it.address == address);
                of.for_each(|rank| rank.ours = None);
                load.blocks.clone()
            });
            let closed = blocks.is_some_and(|it| self.book.closed_until(&it, now).is_some());
            if let (true, Some(grant)) = (closed, grant) {
                let settles = self.config.revoke_settles;
                let reason = LoadFailureReason::Refused;
                self.book.rank_failed(grant, &address, reason, true, settles);
            } else {
                again.push((name, grant));
            }
        }
        self.book.writers_answered(open.id, None, now + self.config.stock_quarantine);
        let repeats = open.repeats + 1;
        self.book.repeat = Some(Repeat { address, form: Form::Stock, repeats, open: again });
    }

    /// The pull as a whole fails.
    fn take_refusal(&mut self, at: usize, reply: &Reply, now: Timestamp) {
        let open = self.book.pulls.remove(at);
        self.book.writers_answered(open.id, None, now + self.config.stock_quarantine);
        let (settled, settles) = (reply.extension.is_some(), self.config.revoke_settles);
        for grant in open.open.iter().filter_map(|(_, grant)| *grant) {
            let reason = LoadFailureReason::Refused;
            self.book.rank_failed(grant, &open.address, reason, settled, settles);
        }
    }

    fn take_results(&mut self, at: usize, reply: &Reply, now: Timestamp) {
        let (pull, address) = (self.book.pulls[at].id, self.book.pulls[at].address.clone());
        let settles = self.config.revoke_settles;
        if self.book.registered.is_some_and(|(id, _)| id == reply.layout_id) {
            self.book.forget_echo(&address);
            self.book.echoed.push(address.clone());
        }
        for name in reply.failed.iter().flatten() {
            let Some(grant) = self.close(pull, name) else { continue };
            let outcomes = reply.extension.iter().flat_map(|it| &it.outcomes);
            let outcome = outcomes.clone().find(|(of, ..)| of == name);
            let why = outcome.map(|(_, why, _)| *why);
            match (why, grant) {
                (Some(FailureReason::UnknownIncarnation), Some(_)) => {
                    self.book.forget_echo(&address);
                }
                // A release that failed elsewhere is not listened to any more.
                (Some(FailureReason::UnknownIncarnation), None) => {
                    self.book.unsure.push(address.clone());
                }
                _ => {}
            }
            let reason = why.map_or(LoadFailureReason::Refused, LoadFailureReason::Prefill);
            let settled = outcome.is_some_and(|(_, _, settled)| *settled);
            if let Some(grant) = grant {
                self.book.rank_failed(grant, &address, reason, settled, settles);
            }
        }
        for name in reply.ok.iter().flatten() {
            if let Some(Some(grant)) = self.close(pull, name) {
                self.book.rank_ok(grant, &address);
            }
        }
        let until = now + self.config.stock_quarantine;
        let named: Vec<&RequestId> = reply.ok.iter().chain(&reply.failed).flatten().collect();
        self.book.writers_answered(pull, Some(&named), until);
        if reply.status == Status::Finish {
            let Some(at) = self.book.pulls.iter().position(|it| it.id == pull) else { return };
            let open = self.book.pulls.remove(at);
            for grant in open.open.iter().filter_map(|(_, grant)| *grant) {
                let reason = LoadFailureReason::Refused;
                self.book.rank_failed(grant, &address, reason, false, settles);
            }
            self.book.writers_answered(pull, None, until);
        } else {
            self.book.writer_waits_on(pull, now + self.config.load_timeout);
        }
    }

    /// Takes a request out of a pull; `None` when it is not open there.
    fn close(&mut self, pull: PullId, name: &RequestId) -> Option<Option<Grant>> {
        let open = self.book.pulls.iter_mut().find(|it| it.id == pull)?;
        let at = open.open.iter().position(|(of, _)| of == name)?;
        Some(open.open.remove(at).1)
    }
}

fn waits(state: RankState) -> bool {
    state == RankState::Waiting
}
