//! What a transport is to the actors: a control plane, a data plane, a bootstrap
//! client. The actors know nothing else about it, and it knows no protocol message.

use bytes::Bytes as Payload;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use futures_util::stream::LocalBoxStream;
use kvbaton_core::ids::{Address, Bytes, EngineId, Generation, Grant, SessionAddress};
use kvbaton_core::region::{Copy, MemoryRange};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Everything that a node needs of its transport. Made on the node's own thread.
pub struct Transport {
    /// Control messages.
    pub control: Rc<dyn ControlPlane>,
    /// Bulk writes. Its futures are `Send`: it has threads of its own.
    pub data: Arc<dyn DataPlane>,
    /// Client of the bootstrap server.
    pub bootstrap: Rc<dyn Bootstrap>,
}

/// Makes a node's [`Transport`] on the node's thread, inside its runtime.
pub trait TransportFactory: Send + 'static {
    /// Opens what the transport needs; what fails here fails `Node::start`.
    ///
    /// # Errors
    /// When a socket or device cannot be had.
    fn open(self: Box<Self>) -> LocalBoxFuture<'static, Result<Transport, TransportError>>;
}

/// Answers one inbound message, any number of times (`CONTINUE`, then `FINISH`).
///
/// Sending never blocks; once the peer is gone, answers are dropped.
pub type Answer = Arc<dyn Fn(Payload) + Send + Sync>;

/// One control message from a peer, whole.
pub struct Inbound {
    /// The message, at most the transport's frame bound.
    pub payload: Payload,
    /// Where its answers go.
    pub answer: Answer,
    /// The peer's network address, for messages to operators; `None` where the
    /// transport cannot tell it.
    pub peer: Option<SocketAddr>,
}

/// Where inbound messages go. Called on the node's thread, must not block.
pub type Inbox = Rc<dyn Fn(Inbound)>;

/// Request and answer messages.
pub trait ControlPlane {
    /// Starts listening and returns the address to advertise (`tcp://host:port`).
    /// A silent, hostile or oversized client costs its own connection only `[Z03]`.
    ///
    /// # Errors
    /// When the address cannot be bound.
    fn listen(&self, inbox: Inbox) -> LocalBoxFuture<'static, Result<String, TransportError>>;

    /// Sends `payload` to `address` and yields each answer. The stream ends with an
    /// error as soon as the peer is known to be gone, and never yields after that.
    /// Dropping it closes the connection. The caller bounds the wait.
    fn request(
        &self,
        address: &str,
        payload: Payload,
    ) -> LocalBoxStream<'static, Result<Payload, TransportError>>;
}

/// Which protocol a peer's data plane speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerKind {
    /// Ours: grants and generations are checked by the receiver.
    Kvbaton,
    /// Mooncake's transfer engine: neither exists there.
    Mooncake,
}

/// What a data plane can do; operations outside it are refused at start-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Memory can be unregistered and registered again (sleep) `[S03]`.
    pub reregister: bool,
    /// A grant is checked for each write at the receiver `[G03]`.
    pub per_write_grants: bool,
}

impl Capabilities {
    /// What a transport made of `parts` can do: what every part can `[S03]`. `None` for no
    /// parts.
    #[must_use]
    pub fn of_all(parts: impl IntoIterator<Item = Self>) -> Option<Self> {
        parts.into_iter().reduce(|all, part| Self {
            reregister: all.reregister && part.reregister,
            per_write_grants: all.per_write_grants && part.per_write_grants,
        })
    }

    /// Why memory under it cannot sleep, and what to do; `None` when it can `[S03]`.
    #[must_use]
    pub fn cannot_sleep(self) -> Option<String> {
        let why = "this transport, or a part of it, cannot register memory again, so memory \
                   that was unmapped could never be used again";
        (!self.reregister).then(|| why.into())
    }
}

/// One registration of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// Its generation; new at each registration.
    pub generation: Generation,
    /// Remote keys to send to peers; empty where the transport has none.
    pub keys: Vec<u8>,
}

/// Rows that one live load may receive into `[G01]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantedRows {
    /// The grant that writes of our own peers carry.
    pub grant: Grant,
    /// The registration the rows belong to.
    pub generation: Generation,
    /// Ranges, sorted by address, merged, never overlapping.
    pub rows: Vec<MemoryRange>,
    /// Whether writes without a grant (stock peers) may land in these rows `[Z02]`.
    pub allow_ungranted: bool,
}

/// Names one write of this node; unique in the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

/// One batch of copies to one peer.
#[derive(Debug, Clone)]
pub struct Write {
    /// Its name, for [`DataPlane::cancel`].
    pub id: WriteId,
    /// The peer's data-plane session.
    pub session: SessionAddress,
    /// What the peer speaks.
    pub kind: PeerKind,
    /// The peer's registration as its pull named it; `None` towards stock peers.
    pub generation: Option<Generation>,
    /// The load's grant; `None` towards stock peers.
    pub grant: Option<Grant>,
    /// The peer's remote keys, as its registration gave them.
    pub keys: Arc<[u8]>,
    /// Source ranges lie in this node's registered memory. No bound on their number.
    pub copies: Vec<Copy>,
    /// The write ends within this time, one way or the other.
    pub timeout: Duration,
}

/// How a write ended. After any of these the source memory is never read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Every byte was applied and acknowledged.
    Written,
    /// The peer refused it; nothing of it can land any more.
    Rejected(Rejection),
    /// It failed. `settled` is true when nothing of it can land any more; false when
    /// bytes already handed to the network may still arrive.
    Failed {
        /// What happened, to whom, and what to do.
        error: TransportError,
        /// Whether nothing can land any more.
        settled: bool,
    },
}

/// Why a peer's data plane refused a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Rejection {
    /// The grant was revoked or never existed there.
    #[error("the grant is not live there (the load ended or was dropped)")]
    UnknownGrant,
    /// The generation is not the current one.
    #[error("the peer registered its memory again since it sent the pull")]
    StaleGeneration,
    /// A range lies outside the grant's rows.
    #[error("a range lies outside the rows that the load named")]
    OutsideGrant,
    /// A range lies outside registered memory.
    #[error("a range lies outside the peer's registered memory")]
    OutsideMemory,
    /// The peer takes no writes without a grant.
    #[error("the peer takes no writes without a grant")]
    GrantRequired,
}

/// What a revoke found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Revoked {
    /// Whether the grant was live.
    pub was_live: bool,
    /// Bytes that had landed under it.
    pub bytes_landed: u64,
}

/// Bulk writes, registered memory, grants.
pub trait DataPlane: Send + Sync + 'static {
    /// Where peers reach this data plane.
    fn session(&self) -> SessionAddress;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Registers memory. All or nothing; ranges never overlap.
    ///
    /// # Safety
    /// Until `unregister` has returned, every range must stay mapped, readable and
    /// writable, and the caller must tolerate that granted rows change under it.
    ///
    /// # Errors
    /// When a range is empty, overflows, overlaps another, or cannot be pinned.
    unsafe fn register(&self, ranges: &[MemoryRange]) -> Result<Registration, TransportError>;

    /// Ends a registration; returns once nothing under it can be read or written any more.
    /// Unknown generations are fine: it is idempotent.
    fn unregister(&self, generation: Generation) -> BoxFuture<'static, Result<(), TransportError>>;

    /// Opens a grant: from now on writes under it may land in its rows. Opening a live
    /// grant again for the same rows can add that stock peers may write there.
    ///
    /// # Errors
    /// When the rows lie outside the registration, or the grant is open for other rows.
    fn open_grant(&self, rows: GrantedRows) -> Result<(), TransportError>;

    /// Ends a grant; returns, in bounded time and without the peer's help, once nothing
    /// under it can land any more `[G02]`. Unknown grants are fine.
    fn revoke(&self, grant: Grant) -> BoxFuture<'static, Revoked>;

    /// Carries out one batch. Never blocks the caller; ends within its timeout.
    fn write(&self, write: Write) -> BoxFuture<'static, WriteOutcome>;

    /// Asks a write to end early; its future still yields the outcome. Unknown ids are fine.
    fn cancel(&self, write: WriteId);

    /// Counters since the start, by name, for metrics.
    fn counters(&self) -> DataCounters;
}

/// What a data plane has counted since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DataCounters {
    /// Payload bytes written to peers and acknowledged.
    pub bytes_sent: Bytes,
    /// Payload bytes that landed in local memory.
    pub bytes_received: Bytes,
    /// Inbound writes refused for a grant that is not live (late, duplicated, misdirected).
    pub refused_grant: u64,
    /// Inbound writes refused for an old generation.
    pub refused_generation: u64,
    /// Inbound writes refused for a range outside grant or memory.
    pub refused_range: u64,
    /// Connections closed for malformed, oversized or unauthenticated input.
    pub refused_connections: u64,
}

/// One P rank, as it registers with a bootstrap server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankRegistration {
    /// Engine the rank belongs to; new after every restart.
    pub engine_id: EngineId,
    /// Data-parallel rank of the engine.
    pub dp_rank: u32,
    /// Tensor-parallel rank.
    pub tp_rank: u32,
    /// Pipeline-parallel rank.
    pub pp_rank: u32,
    /// Control-plane address (`tcp://host:port`).
    pub address: String,
    /// What only our own peers read.
    pub extension: RankExtension,
}

/// What a kvbaton rank tells about itself beside the stock fields; absent for stock ranks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RankExtension {
    /// Protocol revision; 0 for stock ranks.
    pub revision: u32,
    /// Feature bits.
    pub features: u64,
    /// The run of the process `[P12]`.
    pub incarnation: u64,
    /// Compatibility fingerprint, as the wire's extension encodes it.
    pub fingerprint: String,
    /// Tensor- and pipeline-parallel sizes of the engine; 0 when the rank did not say.
    pub sizes: (u32, u32),
}

/// One rank as a directory lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankEntry {
    /// Control-plane address.
    pub address: String,
    /// What a kvbaton rank said about itself; `None` for a stock rank.
    pub extension: Option<RankExtension>,
}

/// One engine as a directory lists it: ranks by (tp, pp).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineEntry {
    /// The engine's id.
    pub engine_id: EngineId,
    /// Ranks by tp rank, then pp rank.
    pub ranks: BTreeMap<u32, BTreeMap<u32, RankEntry>>,
}

/// What a bootstrap server answers: engines by dp rank.
pub type Directory = BTreeMap<u32, EngineEntry>;

/// Client of a bootstrap server.
pub trait Bootstrap {
    /// Registers one rank; the same registration again is fine, a new one replaces.
    /// Retries connection failures until the transport's own bound.
    fn register(
        &self,
        url: &str,
        rank: RankRegistration,
    ) -> LocalBoxFuture<'static, Result<(), TransportError>>;

    /// Asks for the directory.
    fn query(&self, url: &str) -> LocalBoxFuture<'static, Result<Directory, TransportError>>;
}

/// Why a transport could not do something. Each says what, to whom, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// Nobody answers at the address.
    #[error("cannot reach {peer}: {reason}; check that it runs and that the address is right")]
    Unreachable {
        /// Address as configured or received.
        peer: String,
        /// The system's words.
        reason: String,
    },
    /// The peer closed or its process ended.
    #[error("{peer} closed the connection: {reason}; it crashed, restarted, or refused us")]
    Disconnected {
        /// Address of the peer.
        peer: String,
        /// The system's words.
        reason: String,
    },
    /// The bound of an operation passed.
    #[error(
        "{peer} did not finish {what} within {after:?}; it is stopped, overloaded or partitioned"
    )]
    TimedOut {
        /// Address of the peer.
        peer: String,
        /// What was waited for.
        what: &'static str,
        /// The bound.
        after: Duration,
    },
    /// The caller cancelled the operation.
    #[error("the operation towards {peer} was cancelled")]
    Cancelled {
        /// Address of the peer.
        peer: String,
    },
    /// The peer spoke something else than its protocol.
    #[error("{peer} sent {what}; is another service listening there?")]
    Malformed {
        /// Address of the peer.
        peer: String,
        /// What was wrong with it.
        what: String,
    },
    /// An address outside the allowed networks `[Z05]`.
    #[error(
        "{address} is outside the allowed networks ({allowed}); add its network to `allowed_networks` if it is yours"
    )]
    AddressNotAllowed {
        /// The address.
        address: String,
        /// The configured list.
        allowed: String,
    },
    /// Authentication failed `[Z04]`.
    #[error(
        "{peer} did not prove the cluster key: {what}; configure the same `cluster_key` on both sides"
    )]
    NotAuthentic {
        /// Address of the peer.
        peer: String,
        /// What was missing or wrong.
        what: &'static str,
    },
    /// The peer understood and said no; asking again does not help.
    #[error("{peer} refused: {what}")]
    Refused {
        /// Address of the peer.
        peer: String,
        /// Its reason, and what to do.
        what: String,
    },
    /// Memory that cannot be registered or is not registered.
    #[error("memory {start:#x}+{len:#x}: {what}")]
    Memory {
        /// First address.
        start: u64,
        /// Length in bytes.
        len: u64,
        /// What is wrong and what to do.
        what: String,
    },
    /// A local resource could not be had.
    #[error("{what}: {reason}")]
    Local {
        /// What was tried.
        what: String,
        /// The system's words.
        reason: String,
    },
}

impl TransportError {
    /// A memory error for a range.
    #[must_use]
    pub fn memory(start: Address, len: Bytes, what: impl Into<String>) -> Self {
        Self::Memory { start: start.0, len: len.0, what: what.into() }
    }
}
