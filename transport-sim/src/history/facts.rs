//! What events say of messages, writes, ends and tables.

use super::event::NodeId;
use kvbaton_core::ids::{
    Generation, Grant, Incarnation, LayoutId, RequestId, SessionAddress, TransferId,
};
use kvbaton_core::wire::Status;
use std::sync::Arc;

/// One request/answers exchange between a D and a P node; unique in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// One write of one node's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteName {
    /// Who writes.
    pub from: NodeId,
    /// Its number there.
    pub number: u64,
}

/// What a pull says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PullFacts {
    /// D's session.
    pub session: SessionAddress,
    /// D's layout id; [`LayoutId::NONE`] from a peer that knows none.
    pub layout_id: LayoutId,
    /// Whether the layout came along.
    pub with_layout: bool,
    /// Whether it is our own form.
    pub ours: bool,
    /// D's generation, in our own form.
    pub generation: Option<Generation>,
    /// The run of P that D means, in our own form.
    pub incarnation: Option<Incarnation>,
    /// The weights that D runs, in our own form.
    pub weights: Option<u64>,
    /// How long D waits, in milliseconds; 0 when it does not say.
    pub timeout_ms: u64,
    /// Each request: D's name, transfer, number of blocks over all groups, grant.
    pub requests: Vec<(RequestId, TransferId, u64, Option<Grant>)>,
}

/// What an answer says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReplyFacts {
    /// Its status.
    pub status: Status,
    /// Requests that were sent.
    pub ok: Vec<RequestId>,
    /// Requests that failed.
    pub failed: Vec<RequestId>,
    /// The echo; [`LayoutId::NONE`] when there is none.
    pub layout_id: LayoutId,
    /// P's run, in our own form.
    pub incarnation: Option<Incarnation>,
    /// The reason, if any.
    pub message: Option<Arc<str>>,
}

/// How a write ended for P.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WriteEnd {
    /// Every byte landed and was acknowledged.
    Written,
    /// D refused it.
    Rejected(Arc<str>),
    /// It failed; more may land unless it is settled.
    Failed {
        /// Whether nothing can land any more.
        settled: bool,
        /// Why.
        why: Arc<str>,
    },
}

/// How a held request ended for P's engine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SendFact {
    /// Every reader got it.
    Sent,
    /// It ended otherwise: core's name of the reason.
    Failed(Arc<str>),
}

/// How a load ended for D's engine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LoadFact {
    /// All of it is there.
    Loaded,
    /// It failed.
    Failed(Failure),
    /// The engine had dropped it.
    Dropped,
}

/// Why a load failed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Failure {
    /// Core's name of the reason.
    pub reason: Arc<str>,
    /// Its words.
    pub message: Arc<str>,
}

/// What a client got.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Tokens.
    Tokens {
        /// What the engine answered.
        tokens: Vec<u32>,
        /// What the single engine answers under each weight version that D has had since
        /// the try began: one of them must be it.
        expected: Vec<Vec<u32>>,
    },
    /// The load failed, and the engine does not recompute.
    LoadFailed,
    /// P's or D's process died, or would not take the request; in words.
    Lost(Arc<str>),
    /// The client had gone away, or the engine aborted it.
    Aborted,
}

/// How full a node's tables are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Tables {
    /// P: requests whose blocks are held.
    pub held: u64,
    /// P: pulls without a terminal answer.
    pub pulls: u64,
    /// P: writes in flight.
    pub writes: u64,
    /// D: loads that have not ended.
    pub loads: u64,
    /// D: pulls without their last answer.
    pub open_pulls: u64,
    /// P: transfers known.
    pub transfers: u64,
    /// P: layouts of D ranks stored.
    pub layouts: u64,
    /// P: bound of `layouts`.
    pub layouts_bound: u64,
    /// D: grants that are live.
    pub grants: u64,
    /// Connections of this node that are open.
    pub connections: u64,
}
