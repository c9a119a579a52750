//! What can be wrong with a layout, ours or a peer's.

use thiserror::Error;

/// A layout that cannot be registered or understood. Names the tensor or layer and what
/// to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// No tensor, so no memory.
    #[error("no KV cache tensor was given; register at least one before transfers start")]
    NothingRegistered,
    /// A layer name from which no index can be told.
    #[error(
        "layer name {0:?} must have exactly one number among its dot-separated parts; give the \
         layer's index another way or rename it"
    )]
    NoLayerIndex(String),
    /// The tensor's description contradicts itself.
    #[error("tensor {layer_name}: {what}; describe the tensor as the engine allocated it")]
    Tensor {
        /// The tensor.
        layer_name: String,
        /// What is wrong, with the values.
        what: String,
    },
    /// The tensor reaches past its storage.
    #[error(
        "tensor {layer_name} needs {needed} bytes from the start of its storage, which has {len}; \
         register the storage that the tensor really lies in"
    )]
    OutsideStorage {
        /// The tensor.
        layer_name: String,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that there are.
        len: u64,
    },
    /// Rows would overlap their neighbours `[F52]`.
    #[error(
        "tensor {layer_name}: a row carries {payload} bytes but rows are {stride} bytes apart, so \
         a transfer would overwrite the next block; check the page size and the number of kernel \
         blocks per block"
    )]
    PayloadExceedsStride {
        /// The tensor or layer.
        layer_name: String,
        /// Bytes of a row.
        payload: u64,
        /// Distance between rows.
        stride: u64,
    },
    /// Page size and kernel blocks do not fit.
    #[error(
        "tensor {layer_name}: pages of {page_size} bytes do not divide into {ratio} kernel blocks; \
         use a block size that is a multiple of the kernel's"
    )]
    PageDoesNotDivide {
        /// The tensor.
        layer_name: String,
        /// Bytes of a page.
        page_size: u64,
        /// Kernel blocks per logical block.
        ratio: u32,
    },
    /// A column of a peer's layout is shorter or longer than the others.
    #[error(
        "layout column {column} has {len} entries, expected {expected}; the peer must send one per region"
    )]
    ColumnLength {
        /// Its name on the wire.
        column: &'static str,
        /// Entries that it has.
        len: usize,
        /// Entries that it should have.
        expected: usize,
    },
    /// A value of a peer's layout that cannot be.
    #[error(
        "layout column {column}, region {region}: {value} is not allowed; the peer's layout is broken"
    )]
    ColumnValue {
        /// Its name on the wire.
        column: &'static str,
        /// Index of the region.
        region: usize,
        /// The value.
        value: String,
    },
    /// More regions, groups or names than are ever needed `[Z01]`.
    #[error("a layout of {len} {what} passes the limit of {limit}; the peer's layout is broken")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How many.
        len: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// A peer's region outside the memory that the peer declared `[A09]`.
    #[error(
        "layer {layer_name}: its first row, {len} bytes at {base:#x}, lies outside the memory that \
         the peer registered; the peer's layout and registration disagree"
    )]
    OutsideMemory {
        /// The layer.
        layer_name: String,
        /// Address of the row.
        base: u64,
        /// Bytes of the row.
        len: u64,
    },
    /// The declared memory is empty, unsorted or overlaps.
    #[error("memory range {0} is empty, overflows, overlaps the one before it or is out of order")]
    MemoryRange(usize),
    /// A region or tensor of a group that is not described.
    #[error(
        "layer {layer_name} belongs to KV group {group}, but only {groups} groups are described; describe every group"
    )]
    GroupNotDescribed {
        /// The layer.
        layer_name: String,
        /// Its group.
        group: u32,
        /// Groups that there are.
        groups: usize,
    },
    /// Groups share a region but split heads differently.
    #[error(
        "layer {layer_name} is shared by KV groups {groups:?} whose heads differ; give them equal heads or memory of their own"
    )]
    SharedHeadsDiffer {
        /// The layer.
        layer_name: String,
        /// The groups.
        groups: Vec<u32>,
    },
    /// Ranks, sizes or ratios that cannot be.
    #[error(
        "the topology or kernel block ratio is impossible: {0}; ranks count from 0 and lie below their size"
    )]
    Topology(String),
}
