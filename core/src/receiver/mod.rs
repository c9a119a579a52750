//! D's loads: pulls to every P rank that holds a part, and their answers.
//!
//! Inputs are methods that take the time; what must happen next is queued and drained
//! with [`Receiver::next_action`]. [`Receiver::next_deadline`] says when to call
//! [`Receiver::tick`] again.

mod answers;
mod config;
mod ending;
mod in_use;
mod load;
mod peers;
mod planted;
mod pulling;
mod quarantine;
mod reset;

pub use config::ReceiverConfig;
pub use in_use::{LoadInUse, LoadUse};
pub use load::{LoadEnd, LoadFailure, LoadFailureReason, LoadKind, LoadSpec};

use crate::blocks::BlockList;
use crate::deadlines::Deadlines;
use crate::directory::EngineRanks;
use crate::ids::{
    EngineId, Generation, Grant, Incarnation, LayoutId, RequestId, SessionAddress, TransferId,
    WeightVersion,
};
use crate::planted::{Bug, is};
use crate::sender::PullId;
use crate::time::Timestamp;
use crate::topology::Topology;
use crate::wire::{DropTransfers, LayoutColumns, Pull};
use load::{Load, LoadId, Phase};
use peers::Peers;
use quarantine::Quarantine;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// D's registration, as its pulls describe it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Registered {
    /// Random, new at each registration `[L01]`.
    pub layout_id: LayoutId,
    /// New at each registration `[S02]`.
    pub generation: Generation,
    /// The layout, sent to each P worker once.
    pub columns: Arc<LayoutColumns>,
    /// D's data-plane session.
    pub session: SessionAddress,
}

/// How a pull is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// Byte for byte as a stock D would.
    Stock,
    /// Ours, towards our own P.
    Compact,
}

/// What the caller must do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "pulls are the common case, and moved once")]
pub enum ReceiverAction {
    /// Ask a bootstrap server, then call [`Receiver::discovered`].
    Discover {
        /// Its address.
        bootstrap: Arc<str>,
    },
    /// Open a grant for a load's rows. Call [`Receiver::grant_refused`] when that fails.
    /// Precedes the pulls that carry it.
    OpenGrant {
        /// The grant.
        grant: Grant,
        /// The registration that the rows belong to.
        generation: Generation,
        /// The load's logical blocks per group.
        blocks: Vec<BlockList>,
        /// Whether a stock P is among the writers.
        allow_ungranted: bool,
    },
    /// Send a pull; feed [`Receiver::reply`] and [`Receiver::pull_failed`].
    Pull {
        /// Its name.
        id: PullId,
        /// P rank's address.
        address: Arc<str>,
        /// How to write it.
        form: Form,
        /// The message.
        pull: Pull,
    },
    /// Stop waiting for answers to a pull.
    ClosePull(PullId),
    /// Tell one of our own P that loads are dropped. No answer is waited for.
    Drop {
        /// P rank's address.
        address: Arc<str>,
        /// The message.
        drop: DropTransfers,
    },
    /// Revoke a grant, then call [`Receiver::revoked`].
    Revoke(Grant),
    /// A load has ended; its blocks are the engine's again. Once per load `[P08]`.
    Ended {
        /// D's request.
        request: RequestId,
        /// The transfer.
        transfer: TransferId,
        /// How.
        end: LoadEnd,
    },
}

/// Why a load was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The request has a load that is not over `[P11]`.
    #[error(
        "request {request} is loading already (transfer {transfer}); \
         wait for its end or drop it before it loads again"
    )]
    AlreadyLoading {
        /// The request.
        request: RequestId,
        /// The load's transfer.
        transfer: TransferId,
    },
    /// Memory is not registered.
    #[error(
        "request {request} cannot load: no KV memory is registered; register it first, or wake the node"
    )]
    NotRegistered {
        /// The request.
        request: RequestId,
    },
    /// Too many loads.
    #[error(
        "request {request} cannot load: {limit} loads are running; raise `max_loads` or load fewer at once"
    )]
    TooMany {
        /// The request.
        request: RequestId,
        /// The bound.
        limit: usize,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Timer {
    Deadline(LoadId),
    Quarantine(LoadId),
    Linger(PullId),
}

/// One pull without its last answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct OpenPull {
    address: Arc<str>,
    engine: EngineId,
    /// The P process that is meant; zero when it is not known.
    incarnation: Incarnation,
    form: Form,
    with_layout: bool,
    /// Requests without an answer.
    open: BTreeMap<RequestId, LoadId>,
    /// Loads that ended although a stock P may still write for them: its answers tell
    /// when it no longer does.
    lingering: BTreeMap<RequestId, LoadId>,
    /// A stock P that says nothing more begins no write after this: it waits for a prefill
    /// for less than a load may take, from its receipt of the pull or its last answer to it.
    writes_until: Timestamp,
    /// Pulls that this one repeats, at most [`MAX_REPEATS`].
    repeats: u8,
}

/// A pull is repeated at most twice: once with the layout, once in stock form.
const MAX_REPEATS: u8 = 2;

/// D's side of all loads of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receiver {
    config: ReceiverConfig,
    topology: Topology,
    registered: Option<Registered>,
    /// What D's engine runs, and every load that goes on `[R07]`.
    weights: WeightVersion,
    loads: BTreeMap<LoadId, Load>,
    next_load: u64,
    /// Loads that D waits for; releases have no entry here.
    by_request: BTreeMap<RequestId, LoadId>,
    by_grant: BTreeMap<Grant, LoadId>,
    /// To be sent at the next flush, in order.
    staged: Vec<LoadId>,
    /// Bootstrap servers that have yet to answer.
    asking: BTreeSet<Arc<str>>,
    pulls: BTreeMap<PullId, OpenPull>,
    next_pull: u64,
    peers: Peers,
    quarantine: Quarantine,
    timers: Deadlines<Timer>,
    actions: VecDeque<ReceiverAction>,
}

impl Receiver {
    /// A receiver of the rank at `topology`.
    #[must_use]
    pub fn new(config: ReceiverConfig, topology: Topology) -> Self {
        Self {
            peers: Peers::new(config.max_peers),
            config,
            topology,
            registered: None,
            weights: WeightVersion::default(),
            loads: BTreeMap::new(),
            next_load: 0,
            by_request: BTreeMap::new(),
            by_grant: BTreeMap::new(),
            staged: Vec::new(),
            asking: BTreeSet::new(),
            pulls: BTreeMap::new(),
            next_pull: 0,
            quarantine: Quarantine::default(),
            timers: Deadlines::default(),
            actions: VecDeque::new(),
        }
    }

    /// The next thing to do; call until `None` after each input.
    pub fn next_action(&mut self) -> Option<ReceiverAction> {
        self.actions.pop_front()
    }

    /// When [`Self::tick`] is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.timers.next()
    }

    /// Memory was registered: pulls describe it from now on, and no P is taken to hold
    /// its layout `[L09]`.
    pub fn register(&mut self, mut registered: Registered) {
        registered.layout_id = self.layout_id(registered.layout_id);
        assert_eq!(registered.layout_id.0 % 2, 1, "layout ids are odd [L01]");
        self.peers.forget_echoes();
        self.registered = Some(registered);
    }

    /// Memory goes away: loads that still run fail, and their grants are revoked.
    pub fn unregister(&mut self, now: Timestamp) {
        let running: Vec<LoadId> = self.loads.keys().copied().collect();
        for id in running {
            let text = "the decode's KV memory was unregistered";
            self.fail(id, LoadFailureReason::Unregistered, text, Wait::No, now);
        }
        self.registered = None;
        self.peers.forget_echoes();
    }

    /// Takes a load; [`Self::flush`] sends it, together with the others taken since.
    ///
    /// # Errors
    /// When the request is loading, memory is not registered, or too many loads run.
    pub fn load(&mut self, spec: LoadSpec, now: Timestamp) -> Result<(), LoadError> {
        let request = spec.request.clone();
        let wanted = spec.kind == LoadKind::Load;
        if wanted && let Some(running) = self.by_request.get(&request) {
            let transfer = self.loads[running].spec.transfer.clone();
            return Err(LoadError::AlreadyLoading { request, transfer });
        }
        if self.registered.is_none() {
            return Err(LoadError::NotRegistered { request });
        }
        if self.loads.len() >= self.config.max_loads {
            return Err(LoadError::TooMany { request, limit: self.config.max_loads });
        }
        let id = LoadId(self.next_load);
        self.next_load += 1;
        let load = Load::new(spec, now + self.config.load_timeout);
        let nothing_to_load = wanted && !load.has_blocks();
        self.timers.set(Timer::Deadline(id), load.deadline);
        if wanted {
            self.by_grant.insert(load.spec.grant, id);
            self.by_request.insert(request, id);
        }
        self.loads.insert(id, load);
        self.staged.push(id);
        if nothing_to_load {
            self.report_then_release(id); // a full prefix hit [P10]
        }
        Ok(())
    }

    /// D's engine does not want a load any more: P is told, the grant is revoked, and the
    /// blocks come back with [`ReceiverAction::Ended`] `[P09, G02]`. Unknown requests are
    /// fine `[P13]`.
    pub fn drop_load(&mut self, request: &RequestId, now: Timestamp) {
        let Some(id) = self.by_request.get(request).copied() else { return };
        let Some(load) = self.loads.get_mut(&id) else { return };
        if load.phase == Phase::Revoking {
            if is(Bug::ReportedTwice) {
                self.report_early(id);
            }
            return;
        }
        load.dropped = true;
        let quarantined = load.phase == Phase::Quarantined;
        self.give_up(id, now);
        if quarantined {
            self.flush(now);
        }
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Timestamp) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Deadline(id) => self.time_out(id, now),
                Timer::Quarantine(id) => {
                    if self.loads.get(&id).is_some_and(|it| it.phase == Phase::Quarantined) {
                        self.staged.push(id);
                    }
                }
                Timer::Linger(pull) => {
                    if let Some(open) = self.pulls.get_mut(&pull) {
                        open.lingering.clear();
                    }
                    self.close_if_empty(pull);
                }
            }
        }
        self.flush(now);
    }

    fn time_out(&mut self, id: LoadId, now: Timestamp) {
        let Some(load) = self.loads.get(&id) else { return };
        let timeout = self.config.load_timeout;
        let text = match load.phase {
            Phase::Staged | Phase::Discovering => {
                let bootstrap = load.spec.bootstrap.clone();
                self.asking.remove(&bootstrap); // its answer is lost: the next load asks again
                format!("bootstrap server {bootstrap} did not answer within {timeout:?}")
            }
            Phase::Quarantined => format!(
                "its blocks were still open to an earlier load's stock prefill after {timeout:?}"
            ),
            Phase::Pulling | Phase::Revoking => {
                let waits_for: Vec<&str> = load.outstanding.keys().map(|it| &**it).collect();
                format!(
                    "no answer from prefill rank(s) {} within {timeout:?}; they are stopped, \
                     overloaded or partitioned",
                    waits_for.join(", "),
                )
            }
        };
        self.fail(id, LoadFailureReason::TimedOut, &text, Wait::No, now);
    }

    /// Loads that have not ended.
    #[must_use]
    pub fn loads(&self) -> usize {
        self.loads.len()
    }

    /// Whether a pull waits for more answers.
    #[must_use]
    pub fn is_open(&self, pull: PullId) -> bool {
        self.pulls.contains_key(&pull)
    }

    /// Pulls without their last answer, also those that only a stock P's late answers
    /// are waited for.
    #[must_use]
    pub fn open_pulls(&self) -> usize {
        self.pulls.len()
    }

    /// Takes a bootstrap server's answer: every engine it lists, or why it cannot be asked.
    pub fn discovered(
        &mut self,
        bootstrap: &str,
        answer: Result<Vec<(EngineId, EngineRanks)>, String>,
        now: Timestamp,
    ) {
        self.asking.remove(bootstrap);
        let waiting: Vec<LoadId> = self
            .loads
            .iter()
            .filter(|(_, load)| {
                load.phase == Phase::Discovering && &*load.spec.bootstrap == bootstrap
            })
            .map(|(id, _)| *id)
            .collect();
        match answer {
            Ok(engines) => {
                for (engine, ranks) in engines {
                    self.peers.learn(engine, ranks);
                }
                for id in waiting {
                    self.require_engine(id, bootstrap, now);
                }
                self.flush(now);
            }
            Err(error) => {
                for id in waiting {
                    self.fail(id, LoadFailureReason::UnknownEngine, &error, Wait::No, now);
                }
            }
        }
    }

    fn require_engine(&mut self, id: LoadId, bootstrap: &str, now: Timestamp) {
        let load = self.loads.get_mut(&id).expect("listed by the caller");
        let known = self.peers.ranks(&load.spec.engine).is_some();
        if known || std::mem::take(&mut load.asked_late) {
            load.phase = Phase::Staged;
            self.staged.push(id);
            return;
        }
        let text = format!(
            "bootstrap server {bootstrap} does not know engine {}; that prefill restarted or \
             is gone, and the router must use its new engine id",
            load.spec.engine
        );
        self.fail(id, LoadFailureReason::UnknownEngine, &text, Wait::No, now);
    }
}

/// Whether a load that ends early still waits for P's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// It has waited long enough, or there is nobody to wait for.
    No,
    /// It waits where revoking a grant is no proof by itself `[G03]`.
    IfRevokingDoesNotSettle,
}
