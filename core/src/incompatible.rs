//! Why two engines cannot exchange KV, and why one request of a pull cannot be served.

use crate::layout::LayoutError;
use thiserror::Error;

/// Two peers whose configurations do not fit, one variant per reason.
///
/// `local` is P (the side that plans), `remote` is D. Every text names both sides' values
/// and what to change.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Incompatible {
    /// Tensor-parallel sizes of which neither divides the other `[A04]`.
    #[error(
        "tensor-parallel sizes do not divide: prefill has {local}, decode has {remote}; \
         run both with sizes of which one divides the other"
    )]
    TpSizesDoNotDivide {
        /// P's size.
        local: u32,
        /// D's size.
        remote: u32,
    },
    /// D asked a P rank that serves other D ranks.
    #[error(
        "prefill rank {local_rank} of {local_size} does not serve decode rank {remote_rank} of \
         {remote_size}; decode must pull from the rank that it pairs with"
    )]
    RanksNotPaired {
        /// P's rank.
        local_rank: u32,
        /// P's size.
        local_size: u32,
        /// D's rank.
        remote_rank: u32,
        /// D's size.
        remote_size: u32,
    },
    /// One side registered rows without the names of their layers `[A03]`.
    #[error(
        "pipeline-parallel sizes differ (prefill {local_pp}, decode {remote_pp}) and {side} \
         registered block rows that hide their layers (first: {layer_name}); use equal \
         pipeline-parallel sizes, or a KV cache layout whose pages are contiguous per layer"
    )]
    OpaqueRowsAcrossPpSizes {
        /// P's pipeline-parallel size.
        local_pp: u32,
        /// D's pipeline-parallel size.
        remote_pp: u32,
        /// "prefill" or "decode".
        side: &'static str,
        /// The first layer of such a row.
        layer_name: String,
    },
    /// P registered a layer (or one of its buffers) that D did not.
    #[error(
        "layer {layer_name}, buffer {occurrence}: prefill registered {local} of it, decode \
         {remote}; load the same model, draft layers included, on both sides"
    )]
    LayerMissingOnConsumer {
        /// The layer.
        layer_name: String,
        /// Which of its buffers, from 0.
        occurrence: usize,
        /// How many of them P registered.
        local: usize,
        /// How many of them D registered.
        remote: usize,
    },
    /// D registered a layer (or one of its buffers) that P did not `[A02]`.
    #[error(
        "layer {layer_name}: prefill registered {local} buffers of it, decode {remote}; load the \
         same model on both sides, or leave layers that decode computes itself (a draft \
         model's) unregistered"
    )]
    LayerMissingOnProducer {
        /// The layer.
        layer_name: String,
        /// How many of them P registered.
        local: usize,
        /// How many of them D registered.
        remote: usize,
    },
    /// The engines number a layer differently.
    #[error(
        "layer {layer_name} has index {local} on prefill and {remote} on decode; load the same \
         model on both sides"
    )]
    LayerIndexDiffers {
        /// The layer.
        layer_name: String,
        /// P's index.
        local: i64,
        /// D's index.
        remote: i64,
    },
    /// The engines put a layer into different KV groups `[A05]`.
    #[error(
        "layer {layer_name} is in KV group {local} on prefill and {remote} on decode (-1: shared \
         by several); configure the KV cache alike on both sides"
    )]
    GroupIndexDiffers {
        /// The layer.
        layer_name: String,
        /// P's group, −1 when shared.
        local: i64,
        /// D's group, −1 when shared.
        remote: i64,
    },
    /// A region that several groups share is shared by different ones on the other side.
    #[error(
        "layer {layer_name} is shared by KV groups {local:?} on prefill and {remote:?} on decode; \
         configure the KV cache alike on both sides"
    )]
    SharedGroupsDiffer {
        /// The layer.
        layer_name: String,
        /// P's groups.
        local: Vec<u32>,
        /// D's groups.
        remote: Vec<u32>,
    },
    /// Heads would have to be sliced or gathered in rows that do not allow it.
    #[error(
        "KV heads of layer {layer_name} cannot be re-sharded from tensor-parallel size \
         {local_tp} (prefill) to {remote_tp} (decode): {why}; use equal tensor-parallel sizes, \
         or change the KV cache layout"
    )]
    HeadReshardingUnsupported {
        /// The layer.
        layer_name: String,
        /// P's size.
        local_tp: u32,
        /// D's size.
        remote_tp: u32,
        /// What stands in the way.
        why: &'static str,
    },
    /// Recurrent state packs several projections and cannot be cut by ranks.
    #[error(
        "layer {layer_name} holds recurrent state, which cannot be re-sharded from \
         tensor-parallel size {local_tp} (prefill) to {remote_tp} (decode); use equal sizes"
    )]
    StateReshardingUnsupported {
        /// The layer.
        layer_name: String,
        /// P's size.
        local_tp: u32,
        /// D's size.
        remote_tp: u32,
    },
    /// Ranks would hold fractions of heads.
    #[error(
        "{heads} KV heads of layer {layer_name} do not spread evenly over {local_tp} ranks \
         (prefill) and {remote_tp} ranks (decode); use sizes that divide the heads, or that the \
         heads divide"
    )]
    KvHeadsDoNotDivide {
        /// The layer.
        layer_name: String,
        /// KV heads of the whole layer.
        heads: u32,
        /// P's size.
        local_tp: u32,
        /// D's size.
        remote_tp: u32,
    },
    /// Payloads that do not match under the two sizes.
    #[error(
        "rows of layer {layer_name} carry {local} bytes on prefill (tensor-parallel size \
         {local_tp}) and {remote} on decode (size {remote_tp}), which do not match; use the same \
         block size, data type and model on both sides"
    )]
    RegionLengthsDiffer {
        /// The (first) layer.
        layer_name: String,
        /// Bytes of a row on P.
        local: u64,
        /// Bytes of a row on D.
        remote: u64,
        /// P's size.
        local_tp: u32,
        /// D's size.
        remote_tp: u32,
    },
    /// The compatibility fingerprints differ.
    #[error("the engines differ in {differences}; start both with the same settings")]
    FingerprintDiffers {
        /// Every differing field with both values.
        differences: String,
    },
    /// D names a KV group that P does not have `[F49]`.
    #[error(
        "layer {layer_name} of decode belongs to KV group {remote}, but prefill has only \
         {local} groups; configure the KV cache alike on both sides"
    )]
    GroupUnknown {
        /// The layer.
        layer_name: String,
        /// Groups that P has.
        local: usize,
        /// The group that D names.
        remote: u32,
    },
    /// D sent neither a layout nor the id of one.
    #[error(
        "decode rank {remote_rank} sent neither a layout nor a layout id, so none of prefill's \
         {local} regions has a destination; decode must send its layout"
    )]
    LayoutMissing {
        /// Regions that P has registered.
        local: usize,
        /// D's rank.
        remote_rank: u32,
    },
    /// D's layout contradicts itself.
    #[error("the layout that decode sent is malformed: {0}")]
    LayoutMalformed(#[from] LayoutError),
    /// P has no registered memory at the moment.
    #[error(
        "prefill has no memory registered, so decode rank {remote_rank} cannot be served; wait \
         until prefill is awake and registered"
    )]
    NothingRegistered {
        /// D's rank.
        remote_rank: u32,
    },
}

impl Incompatible {
    /// A stable name of the reason, for metrics and test vectors.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::TpSizesDoNotDivide { .. } => "tp_sizes_do_not_divide",
            Self::RanksNotPaired { .. } => "ranks_not_paired",
            Self::OpaqueRowsAcrossPpSizes { .. } => "opaque_rows_across_pp_sizes",
            Self::LayerMissingOnConsumer { .. } => "layer_missing_on_consumer",
            Self::LayerMissingOnProducer { .. } => "layer_missing_on_producer",
            Self::LayerIndexDiffers { .. } => "layer_index_differs",
            Self::GroupIndexDiffers { .. } => "group_index_differs",
            Self::SharedGroupsDiffer { .. } => "shared_groups_differ",
            Self::HeadReshardingUnsupported { .. } => "head_resharding_unsupported",
            Self::StateReshardingUnsupported { .. } => "state_resharding_unsupported",
            Self::KvHeadsDoNotDivide { .. } => "kv_heads_do_not_divide",
            Self::RegionLengthsDiffer { .. } => "region_lengths_differ",
            Self::FingerprintDiffers { .. } => "fingerprint_differs",
            Self::GroupUnknown { .. } => "group_unknown",
            Self::LayoutMissing { .. } => "layout_missing",
            Self::LayoutMalformed(_) => "layout_malformed",
            Self::NothingRegistered { .. } => "nothing_registered",
        }
    }
}

/// Why one request of a pull cannot be served; others of the same pull are not touched.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The lists do not name the groups that the layouts have.
    #[error(
        "prefill lists blocks for {local} KV groups, decode for {remote}, the layout has {layout}; \
         configure the KV cache alike on both sides"
    )]
    GroupCountDiffers {
        /// Groups in P's lists.
        local: usize,
        /// Groups in D's lists.
        remote: usize,
        /// Groups that P has.
        layout: usize,
    },
    /// D wants more blocks than P has `[A06]`.
    #[error(
        "KV group {group}: prefill has {local} blocks up to the end that decode asks for, decode \
         wants {remote}; decode must compute the rest itself"
    )]
    ProducerHasFewerBlocks {
        /// The group.
        group: usize,
        /// Blocks that P has, once those past D's end are left out.
        local: u64,
        /// Blocks that D wants.
        remote: u64,
    },
    /// A block outside the registered memory `[A09]`.
    #[error(
        "KV group {group}: block {block} of {side} lies outside its registered memory, which has \
         {rows} rows; its block ids and its registration disagree"
    )]
    BlockOutOfRange {
        /// The group.
        group: usize,
        /// "prefill" or "decode".
        side: &'static str,
        /// Row (kernel block) that is out of range.
        block: u64,
        /// Rows that there are.
        rows: u64,
    },
    /// D wants two blocks in one place.
    #[error("KV group {group}: decode names row {block} twice; each block may be filled once")]
    BlockNamedTwice {
        /// The group (the first of them, where several share memory).
        group: usize,
        /// Row (kernel block).
        block: u64,
    },
}

impl RequestError {
    /// A stable name of the reason, for metrics and test vectors.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::GroupCountDiffers { .. } => "group_count_differs",
            Self::ProducerHasFewerBlocks { .. } => "producer_has_fewer_blocks",
            Self::BlockOutOfRange { .. } => "block_out_of_range",
            Self::BlockNamedTwice { .. } => "block_named_twice",
        }
    }
}
