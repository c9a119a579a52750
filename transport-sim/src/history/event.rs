//! One event: when, where, what.

use super::facts::{
    Answer, ConnectionId, LoadFact, PullFacts, ReplyFacts, SendFact, Tables, WriteEnd, WriteName,
};
use kvbaton_core::ids::{Generation, Grant, RequestId, SessionAddress, TransferId};
use kvbaton_core::lifecycle::engine::{EngineOrder, Operation, OperationError, Outcome, RankOrder};
use kvbaton_core::region::MemoryRange;
use std::sync::Arc;

/// One run of one rank's process. A restart makes a new life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    /// Index of its engine in the plan's fleet.
    pub engine: u16,
    /// Index of the rank in its engine (stage by stage, TP ranks first).
    pub rank: u16,
    /// 0 at first, one more after each restart.
    pub life: u16,
}

/// Whose event it is; a page draws one lane for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// The network, and faults as they are injected.
    World,
    /// Clients and their router.
    Clients,
    /// An engine as a whole.
    Engine(u16),
    /// One node.
    Node(NodeId),
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Event {
    /// Virtual nanoseconds since the run's start.
    pub at: u64,
    /// Where.
    pub lane: Lane,
    /// What.
    pub what: What,
}

/// What can happen. Events of a [`Lane::Node`] unless it says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum What {
    // ---- processes, the network ----
    /// World: a fault or an operation of the plan begins or ends.
    Happens {
        /// Its index in the plan's happenings.
        index: usize,
        /// Whether it begins.
        begins: bool,
        /// What it is, in words.
        text: Arc<str>,
    },
    /// A named site misbehaved (see [`crate::plan::Plan::sites`]).
    SiteFired(&'static str),
    /// World: all faults are over: from now on everything must come to its end.
    Healed,
    /// The process runs. `stock` tells a stock peer from one of ours.
    Started {
        /// Whether it is a stock peer.
        stock: bool,
        /// Its data-plane session.
        session: SessionAddress,
        /// Its control-plane address, if it listens.
        address: Option<Arc<str>>,
    },
    /// The process was killed; its actors are gone.
    Killed,
    /// The process was stopped (SIGSTOP); it runs again with `Continued`.
    Stopped,
    /// It runs again.
    Continued,
    /// Engine: the code panicked.
    Panicked(Arc<str>),

    // ---- memory ----
    /// Memory is registered under this generation.
    Registered {
        /// The registration.
        generation: Generation,
    },
    /// The data plane was asked to end a registration; nothing may use memory any more.
    Unregistering {
        /// The registration.
        generation: Generation,
    },
    /// The data plane says nothing can land under it any more.
    Unregistered {
        /// The registration.
        generation: Generation,
    },
    /// The engine unmapped its memory: the pages are gone.
    Unmapped,
    /// The engine mapped new pages at the same addresses.
    Mapped,
    /// D: the rows of a load are open.
    GrantOpened {
        /// The load's grant.
        grant: Grant,
        /// The registration.
        generation: Generation,
        /// Sorted, merged.
        rows: Vec<MemoryRange>,
        /// Whether writes without a grant (stock P) may land there.
        ungranted: bool,
    },
    /// D: the node asked to end a grant.
    RevokeAsked {
        /// The grant.
        grant: Grant,
    },
    /// D: the data plane says nothing can land under it any more.
    Revoked {
        /// The grant.
        grant: Grant,
    },

    // ---- writes ----
    /// P: a write was handed to the data plane.
    WriteStarted {
        /// Its name.
        write: WriteName,
        /// Where to.
        to: SessionAddress,
        /// The load's grant; `None` towards stock peers.
        grant: Option<Grant>,
        /// D's generation as P knows it; `None` towards stock peers.
        generation: Option<Generation>,
        /// Local memory it reads; sorted, merged.
        reads: Vec<MemoryRange>,
        /// Bytes of it.
        bytes: u64,
    },
    /// P: the data plane reported the write's end: it reads local memory no more.
    WriteEnded {
        /// Its name.
        write: WriteName,
        /// How.
        how: WriteEnd,
    },
    /// D: bytes of a write landed.
    Landed {
        /// The write.
        write: WriteName,
        /// The grant it carried.
        grant: Option<Grant>,
        /// The generation it carried.
        generation: Option<Generation>,
        /// Where; sorted, merged.
        ranges: Vec<MemoryRange>,
        /// False when they landed in pages that are mapped no more: nobody sees them.
        seen: bool,
    },
    /// D: the data plane refused a piece of a write.
    Refused {
        /// The write.
        write: WriteName,
        /// Why, in words.
        why: Arc<str>,
    },

    // ---- control messages ----
    /// D: a pull was sent.
    PullSent {
        /// Its connection.
        connection: ConnectionId,
        /// P's address.
        to: Arc<str>,
        /// What it says.
        pull: PullFacts,
    },
    /// P: a pull came in (twice when the network duplicated it).
    PullReceived {
        /// Its connection.
        connection: ConnectionId,
        /// What it says.
        pull: PullFacts,
    },
    /// P: an answer was sent.
    ReplySent {
        /// The pull's connection.
        connection: ConnectionId,
        /// What it says.
        reply: ReplyFacts,
    },
    /// D: an answer came in.
    ReplyReceived {
        /// The pull's connection.
        connection: ConnectionId,
        /// P's address.
        from: Arc<str>,
        /// What it says.
        reply: ReplyFacts,
    },
    /// D: a drop was sent.
    DropSent {
        /// Its connection.
        connection: ConnectionId,
        /// P's address.
        to: Arc<str>,
        /// The transfers, and the grants of the loads that ended.
        transfers: Vec<(TransferId, Grant)>,
    },
    /// P: a drop came in.
    DropReceived {
        /// Its connection.
        connection: ConnectionId,
        /// The transfers, and the grants of the loads that ended.
        transfers: Vec<(TransferId, Grant)>,
    },
    /// A message that is none of ours, or unreadable, was sent or came in.
    Unreadable {
        /// Its connection.
        connection: ConnectionId,
    },
    /// D: closed a connection of its own.
    ConnectionClosed {
        /// Which.
        connection: ConnectionId,
    },
    /// D: learned that a connection broke, or could not be made.
    ConnectionBroken {
        /// Which.
        connection: ConnectionId,
    },
    /// World: a message was lost.
    MessageLost {
        /// On this connection.
        connection: ConnectionId,
    },

    // ---- what an engine asks of its node, and is told ----
    /// P: the node was told, and has noted, that a request is scheduled which D will pull.
    PrefillStarted {
        /// P's request.
        request: RequestId,
        /// The transfer.
        transfer: TransferId,
    },
    /// P: the node took a finished request's blocks.
    Held {
        /// P's request.
        request: RequestId,
        /// The transfer.
        transfer: TransferId,
        /// The blocks' rows on this rank; sorted, merged.
        rows: Vec<MemoryRange>,
        /// Version of the weights that computed them.
        weights: u64,
    },
    /// P: the node did not take them.
    HoldRefused {
        /// P's request.
        request: RequestId,
        /// The transfer.
        transfer: TransferId,
        /// Why.
        why: Arc<str>,
    },
    /// P: the engine wants a transfer's blocks back, or gave the request up before.
    ReleaseAsked {
        /// The transfer.
        transfer: TransferId,
    },
    /// P: the blocks are the engine's again.
    SendEnded {
        /// P's request.
        request: RequestId,
        /// The transfer.
        transfer: TransferId,
        /// How it ended.
        ended: SendFact,
    },
    /// D: the node took a load.
    LoadAsked {
        /// D's request.
        request: RequestId,
        /// The transfer.
        transfer: TransferId,
        /// Rows that the load fills on this rank; sorted, merged. Empty for a full hit.
        rows: Vec<MemoryRange>,
        /// Version of the weights that D runs.
        weights: u64,
    },
    /// D: the node did not take it.
    LoadRefused {
        /// D's request.
        request: RequestId,
        /// The transfer.
        transfer: TransferId,
        /// Why.
        why: Arc<str>,
    },
    /// D: the engine dropped a load.
    LoadDropped {
        /// D's request.
        request: RequestId,
    },
    /// D: the load is over, its blocks are the engine's again.
    LoadEnded {
        /// D's request.
        request: RequestId,
        /// The transfer.
        transfer: TransferId,
        /// How it ended.
        end: LoadFact,
    },
    /// D told P to release what was never loaded.
    RemoteReleaseAsked {
        /// D's request.
        request: RequestId,
        /// The transfer.
        transfer: TransferId,
    },

    // ---- an engine's lifecycle ----
    /// Engine: its lifecycle was asked for an operation.
    OperationAsked {
        /// Unique in a run.
        id: u64,
        /// What.
        what: Operation,
    },
    /// Engine: whoever asked has the answer.
    OperationEnded {
        /// Which.
        id: u64,
        /// How.
        end: Result<Outcome, OperationError>,
    },
    /// Engine: its lifecycle told the engine to do something.
    EngineTold {
        /// Counts the orders to this engine and its ranks, over all its lives.
        number: u32,
        /// What.
        order: EngineOrder,
    },
    /// Its engine's lifecycle told the rank to do something.
    RankTold {
        /// As above.
        number: u32,
        /// What.
        order: RankOrder,
    },
    /// Engine or rank: the order is carried out, or why it could not be.
    OrderDone {
        /// Which.
        number: u32,
        /// The reason.
        failed: Option<Arc<str>>,
    },
    /// The node's holds, loads and pulls are of these weights from now on.
    WeightsSet {
        /// Their version.
        version: u64,
    },

    // ---- engines ----
    /// Engine: stopped computing.
    Paused {
        /// `abort`, `wait` or `keep`.
        mode: Arc<str>,
    },
    /// Engine: computes again.
    Resumed,
    /// Engine: wants its memory unregistered on every rank.
    SleepAsked,
    /// Engine: every rank has unregistered; memory is about to be unmapped.
    Slept,
    /// Engine: some rank refused; all stay as they were.
    SleepFailed {
        /// Why.
        why: Arc<str>,
    },
    /// Engine: memory is mapped and registered again on every rank.
    Woke,
    /// Engine: goes over to other weights.
    WeightsUpdated {
        /// Their version.
        version: u64,
    },
    /// Engine: compared loaded KV with what the model says.
    Compared {
        /// The request.
        request: RequestId,
        /// Bytes compared.
        bytes: u64,
        /// Bytes that differ.
        different: u64,
    },

    // ---- requests ----
    /// Clients: the router sent a request to both engines.
    Submitted {
        /// The client's request.
        request: u32,
        /// Which try of it.
        attempt: u32,
        /// P's engine.
        prefill: u16,
        /// D's engine.
        decode: u16,
    },
    /// Clients: the client went away.
    Disconnected {
        /// The client's request.
        request: u32,
    },
    /// Clients: a try ended.
    Answered {
        /// The client's request.
        request: u32,
        /// Which try of it.
        attempt: u32,
        /// With what.
        answer: Answer,
    },

    // ---- how things stand ----
    /// How full the node's tables are; now and then, and at the end.
    Tables(Tables),
    /// Engine, at the end: what has not come back, in words; empty when all is well.
    Leftovers(Vec<Arc<str>>),
    /// World: the run is over.
    Ended,
}
