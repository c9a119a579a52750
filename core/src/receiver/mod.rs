//! D's loads: pulls to every P rank that holds a part, and their answers.
//!
//! Inputs are methods that take the time; what must happen next is queued and drained
//! with [`Receiver::next_action`]. [`Receiver::next_deadline`] says when to call
//! [`Receiver::tick`] again.

mod answers;
mod config;
mod ending;
mod load;
mod peers;
mod pulling;
mod quarantine;

pub use config::ReceiverConfig;
pub use load::{LoadEnd, LoadFailure, LoadFailureReason, LoadKind, LoadSpec};

use crate::blocks::BlockList;
use crate::deadlines::Deadlines;
use crate::directory::EngineRanks;
use crate::ids::{EngineId, Generation, Grant, LayoutId, RequestId, SessionAddress, TransferId};
use crate::sender::PullId;
use crate::time::Timestamp;
use crate::topology::Topology;
use crate::wire::{DropTransfers, LayoutColumns, Pull};
use load::{Load, Phase};
use peers::Peers;
use quarantine::Quarantine;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// D's registration, as its pulls describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
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

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Deadline(RequestId),
    Quarantine(RequestId),
}

/// One pull without its last answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OpenPull {
    address: Arc<str>,
    engine: EngineId,
    form: Form,
    with_layout: bool,
    /// Requests without an answer.
    open: Vec<RequestId>,
    /// Pulls that this one repeats, at most [`MAX_REPEATS`].
    repeats: u8,
}

/// A pull is repeated at most twice: once with the layout, once in stock form.
const MAX_REPEATS: u8 = 2;

/// D's side of all loads of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receiver {
    config: ReceiverConfig,
    topology: Topology,
    registered: Option<Registered>,
    loads: BTreeMap<RequestId, Load>,
    /// Accepted since the last flush, in order.
    staged: Vec<RequestId>,
    by_grant: BTreeMap<Grant, RequestId>,
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
            loads: BTreeMap::new(),
            staged: Vec::new(),
            by_grant: BTreeMap::new(),
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
    pub fn register(&mut self, registered: Registered) {
        assert_eq!(registered.layout_id.0 % 2, 1, "layout ids are odd [L01]");
        self.peers.forget_echoes();
        self.registered = Some(registered);
    }

    /// Memory goes away: loads that still run fail, and their grants are revoked.
    pub fn unregister(&mut self, now: Timestamp) {
        let running: Vec<RequestId> = self.loads.keys().cloned().collect();
        for request in running {
            let message = format!("request {request}: the decode's KV memory was unregistered");
            self.fail(&request, LoadFailureReason::Unregistered, message, now);
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
        if let Some(running) = self.loads.get(&request) {
            let transfer = running.spec.transfer.clone();
            return Err(LoadError::AlreadyLoading { request, transfer });
        }
        if self.registered.is_none() {
            return Err(LoadError::NotRegistered { request });
        }
        if self.loads.len() >= self.config.max_loads {
            return Err(LoadError::TooMany { request, limit: self.config.max_loads });
        }
        let mut load = Load {
            deadline: now + self.config.load_timeout,
            outstanding: Default::default(),
            phase: Phase::Staged,
            failure: None,
            dropped: false,
            stock_unsettled: false,
            spec,
        };
        if load.spec.kind == LoadKind::Load && !load.has_blocks() {
            // A full prefix hit completes on D now; P is told to release [P10].
            self.actions.push_back(ReceiverAction::Ended {
                request: request.clone(),
                transfer: load.spec.transfer.clone(),
                end: LoadEnd::Loaded,
            });
            load.spec.kind = LoadKind::Release;
        }
        self.timers.set(Timer::Deadline(request.clone()), load.deadline);
        self.by_grant.insert(load.spec.grant, request.clone());
        self.staged.push(request.clone());
        self.loads.insert(request, load);
        Ok(())
    }

    /// D's engine does not want a load any more: P is told, the grant is revoked, and the
    /// blocks come back with [`ReceiverAction::Ended`] `[P09, G02]`. Unknown requests are
    /// fine `[P13]`.
    pub fn drop_load(&mut self, request: &RequestId, now: Timestamp) {
        let Some(load) = self.loads.get_mut(request) else { return };
        if load.phase == Phase::Revoking || load.spec.kind == LoadKind::Release {
            return;
        }
        load.dropped = true;
        self.settle_early(request, now);
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Timestamp) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Deadline(request) => self.time_out(&request, now),
                Timer::Quarantine(request) => {
                    if self.loads.get(&request).is_some_and(|it| it.phase == Phase::Quarantined) {
                        self.staged.push(request);
                    }
                }
            }
        }
        self.flush(now);
    }

    fn time_out(&mut self, request: &RequestId, now: Timestamp) {
        let Some(load) = self.loads.get(request) else { return };
        let waits_for: Vec<&str> = load.outstanding.iter().map(|it| &**it).collect();
        let message = match load.phase {
            Phase::Staged | Phase::Discovering => format!(
                "request {request}: bootstrap server {} did not answer within {:?}",
                load.spec.bootstrap, self.config.load_timeout
            ),
            _ => format!(
                "request {request}: no answer from prefill rank(s) {} within {:?}; \
                 they are stopped, overloaded or partitioned",
                waits_for.join(", "),
                self.config.load_timeout
            ),
        };
        self.fail(request, LoadFailureReason::TimedOut, message, now);
    }

    /// Loads that have not ended.
    #[must_use]
    pub fn loads(&self) -> usize {
        self.loads.len()
    }

    /// Pulls without their last answer.
    #[must_use]
    pub fn open_pulls(&self) -> usize {
        self.pulls.len()
    }

    /// Requests that are loading, with the addresses they wait for `[S01]`.
    pub fn in_use(&self) -> impl Iterator<Item = (&RequestId, Vec<Arc<str>>)> {
        self.loads.iter().map(|(id, load)| (id, load.outstanding.iter().cloned().collect()))
    }

    /// Takes a bootstrap server's answer: every engine it lists, or why it cannot be asked.
    pub fn discovered(
        &mut self,
        bootstrap: &str,
        answer: Result<Vec<(EngineId, EngineRanks)>, String>,
        now: Timestamp,
    ) {
        let waiting: Vec<RequestId> = self
            .loads
            .iter()
            .filter(|(_, load)| {
                load.phase == Phase::Discovering && &*load.spec.bootstrap == bootstrap
            })
            .map(|(id, _)| id.clone())
            .collect();
        match answer {
            Ok(engines) => {
                for (engine, ranks) in engines {
                    self.peers.learn(engine, ranks);
                }
                for request in waiting {
                    self.require_engine(request, bootstrap, now);
                }
                self.flush(now);
            }
            Err(error) => {
                for request in waiting {
                    let message = format!("request {request}: {error}");
                    self.fail(&request, LoadFailureReason::UnknownEngine, message, now);
                }
            }
        }
    }

    fn require_engine(&mut self, request: RequestId, bootstrap: &str, now: Timestamp) {
        let load = self.loads.get_mut(&request).expect("listed by the caller");
        if self.peers.ranks(&load.spec.engine).is_some() {
            load.phase = Phase::Staged;
            self.staged.push(request);
            return;
        }
        let message = format!(
            "request {request}: bootstrap server {bootstrap} does not know engine {}; \
             that prefill restarted or is gone, and the router must use its new engine id",
            load.spec.engine
        );
        self.fail(&request, LoadFailureReason::UnknownEngine, message, now);
    }
}

#[cfg(test)]
mod tests;
