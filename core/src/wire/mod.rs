//! Control messages: the stock pull and reply byte for byte, and our extensions.
//!
//! Two forms of a message to P exist. The *stock* form is the msgpack map that vLLM's
//! connectors speak. The *compact* form, between our own nodes, is a map whose first and
//! only field is `kvb`: an array that begins with the kind of message. Arrays of the
//! compact form may be longer than this revision knows; the rest is skipped, so that a
//! newer revision is understood as far as this one goes. Answers always have the stock
//! form; ours add a field `kvb`, which a stock D skips.
//!
//! Reading accepts the fields in any order, integers and lengths of any width, and skips
//! fields that it does not know. A field, or a request's name in a pull, that appears
//! twice is an error: two readers must never see different messages.

mod compact;
mod describe;
mod drop;
mod envelope;
mod layout_compact;
mod layout_rows;
mod limits;
mod malformed;
mod names;
mod pull;
mod reader;
mod reply;
mod varint;
mod writer;

pub use describe::{describe, describe_reply};
pub use envelope::Form;
pub use limits::Limits;
pub use malformed::{Malformed, Problem};

use crate::blocks::BlockList;
use crate::fingerprint::Fingerprint;
use crate::ids::{
    Generation, Grant, Incarnation, LayoutId, RequestId, SessionAddress, TransferId, WeightVersion,
};
use crate::region::MemoryRange;
use std::time::Duration;

/// Protocol revision that this crate speaks between our own nodes.
pub const REVISION: u32 = 1;

/// A message to P.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every message is a pull, and boxing it would cost the hot path"
)]
pub enum ToPrefill {
    /// Asks for KV.
    Pull(Pull),
    /// Asks P to drop transfers; between our own nodes only `[P09]`.
    Drop(DropTransfers),
}

/// D asks P to write the KV of some requests into D's memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pull {
    /// D's data-plane session (`remote_hostname`, `remote_port`).
    pub session: SessionAddress,
    /// D's tensor-parallel size.
    pub tp_size: u32,
    /// D's tensor-parallel rank.
    pub tp_rank: u32,
    /// D's pipeline-parallel size; 1 when the peer did not say.
    pub pp_size: u32,
    /// Names D's layout; [`LayoutId::NONE`] from peers that predate it.
    pub layout_id: LayoutId,
    /// D's layout; `None` when the pull relies on P's cache `[L04]`.
    pub layout: Option<LayoutColumns>,
    /// Requests in the order of the message.
    pub requests: Vec<PullRequest>,
    /// Present when D is one of ours.
    pub extension: Option<PullExtension>,
}

/// One request of a pull.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PullRequest {
    /// D's name of the request.
    pub request_id: RequestId,
    /// The transfer it continues.
    pub transfer_id: TransferId,
    /// D's logical blocks per group; no group, or only empty ones, asks for a release `[P10]`.
    pub groups: Vec<BlockList>,
    /// The load's grant `[G01]`; `None` from stock peers.
    pub grant: Option<Grant>,
    /// Tokens of the request up to the end of D's blocks `[A06]`: lets P align the tail by
    /// token position. `None` when D did not say.
    pub end_token: Option<u32>,
}

/// What our own D adds to a pull.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PullExtension {
    /// Protocol revision of D.
    pub revision: u32,
    /// Feature bits of D.
    pub features: u64,
    /// The P process that D means `[P12]`; zero when D does not know it.
    pub incarnation: Incarnation,
    /// D's registration; P refreshes its keys when it differs `[S04]`.
    pub generation: Generation,
    /// How long D waits for the answer, from when it sent the pull; zero when it did not say.
    pub timeout: Duration,
    /// The weights that D runs `[R07]`; zero when it did not say.
    pub weights: WeightVersion,
}

/// The stock layout fields, column by column as on the wire; a column that an old peer
/// does not know is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct LayoutColumns {
    /// `kv_caches_base_addr`.
    pub base_addrs: Vec<u64>,
    /// `block_lens`: strides.
    pub block_lens: Vec<u64>,
    /// `kv_block_lens`: payloads.
    pub kv_block_lens: Vec<u64>,
    /// `registered_layer_names`.
    pub layer_names: Vec<String>,
    /// `registered_layer_indices`.
    pub layer_indices: Vec<i64>,
    /// `registered_group_indices`; −1 for a region that groups share.
    pub group_indices: Vec<i64>,
    /// `registered_shared_group_ids`.
    pub shared_group_ids: Vec<Vec<i64>>,
    /// `registered_row_offsets`; −1 where the region is no view of a row.
    pub row_offsets: Vec<i64>,
    /// Present when D is one of ours: not a stock column.
    pub extension: Option<LayoutExtension>,
}

/// What our own D adds to its layout.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct LayoutExtension {
    /// Registered memory, sorted; every row of every region lies in one range `[A09]`.
    pub memory: Vec<MemoryRange>,
    /// Remote keys of the registration, opaque to the protocol.
    pub keys: Vec<u8>,
    /// What must be equal on both sides.
    pub fingerprint: Fingerprint,
}

/// D asks P to drop transfers whose loads ended `[P09]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DropTransfers {
    /// The P process that D means.
    pub incarnation: Incarnation,
    /// D's rank, so that P can tell which of several readers gave up.
    pub tp_rank: u32,
    /// (D's request, transfer, grant of the load).
    pub transfers: Vec<(RequestId, TransferId, Grant)>,
}

/// P's answer to a pull. A pull gets any number of `Continue` and one of the others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reply {
    /// What the answer says of the pull as a whole.
    pub status: Status,
    /// Requests whose KV has landed.
    pub ok: Option<Vec<RequestId>>,
    /// Requests that failed.
    pub failed: Option<Vec<RequestId>>,
    /// Why.
    pub message: Option<String>,
    /// The pull's layout id once P holds that layout `[L03]`.
    pub layout_id: LayoutId,
    /// Present when P and D are both ours.
    pub extension: Option<ReplyExtension>,
}

/// Status of a [`Reply`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Last answer to the pull.
    Finish = 0,
    /// More answers follow.
    Continue = 1,
    /// The whole pull failed.
    Error = 2,
    /// P does not hold the layout; only for pulls with an id and no layout `[L06]`.
    LayoutMiss = 3,
}

/// What our own P adds to an answer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct ReplyExtension {
    /// Protocol revision of P.
    pub revision: u32,
    /// Feature bits of P.
    pub features: u64,
    /// The P process that answers.
    pub incarnation: Incarnation,
    /// Per failed request: why, and whether nothing of it can land any more.
    pub outcomes: Vec<(RequestId, FailureReason, Settled)>,
}

/// Whether nothing of a transfer can land any more.
pub type Settled = bool;

/// Why P did not send a request's KV.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureReason {
    /// P's engine aborted the request.
    Aborted = 1,
    /// P's engine, or another D rank, released the transfer.
    Released = 2,
    /// Nobody pulled it in time.
    Expired = 3,
    /// The pull waited for the prefill until its deadline.
    TimedOut = 4,
    /// The pull names another run of the P process.
    UnknownIncarnation = 5,
    /// The write failed or was refused.
    WriteFailed = 6,
    /// The request's blocks do not fit the transfer's.
    BlocksDiffer = 7,
    /// D asked to drop it.
    Dropped = 8,
    /// The transfer was sent already, or its id is taken by another request.
    AlreadyUsed = 9,
    /// P is shutting down or asleep.
    Unavailable = 10,
    /// P's tables are full.
    Overloaded = 11,
    /// P's engine took the blocks back for a reset: it pauses with clearing, sleeps, or frees
    /// KV memory. The load is to be recomputed, whatever the failure policy `[R04]`.
    Reset = 12,
    /// The KV is of other weights than D's, or P's weights were updated under it `[R07]`.
    OtherWeights = 13,
    /// A reason that this revision does not know.
    Other = 0,
}
