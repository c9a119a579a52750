//! What a model keeps: layers, the groups they belong to, and how a group lists blocks.

mod group;
mod named;

pub use group::{Group, Keeps};
pub use named::{Dense, Hybrid, Mla, deepseek146};

use kvbaton_core::fingerprint::Fingerprint;
use kvbaton_core::region::GroupKind;
use std::sync::Arc;

/// How a layer's KV is divided over the TP ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sharding {
    /// So many heads in the whole model: split when there are at least as many as ranks,
    /// each copied to several ranks otherwise `[A04]`.
    Heads(u32),
    /// Every rank holds the whole (latent KV).
    Replicated,
}

/// What the engine says a tensor is when it registers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TensorKind {
    /// KV heads: (rows, heads, tokens, bytes).
    Attention,
    /// Latent rows: (rows, tokens, bytes).
    Latent,
    /// Recurrent state: (rows, bytes).
    State,
}

impl TensorKind {
    /// The name that layouts are written with.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Attention => "attention",
            Self::Latent => "latent",
            Self::State => "state",
        }
    }
}

/// One tensor of KV in the whole model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Layer {
    /// Name; regions pair by it.
    pub name: Arc<str>,
    /// Index of the model layer it belongs to: decides its pipeline stage.
    pub index: u32,
    /// Index of its group.
    pub group: usize,
    /// What it is registered as.
    pub kind: TensorKind,
    /// How TP ranks divide it.
    pub sharding: Sharding,
    /// Bytes of one unit: of one head (or the latent) for one token, or of one head's
    /// whole state.
    pub unit: u32,
}

/// How a rank's tensors lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Packing {
    /// Each tensor has a storage of its own.
    Separate,
    /// All tensors are views, page by page, of the rows of one storage.
    PackedRow,
}

/// A model as its KV cache sees it. Made by [`Dense`], [`Mla`], [`Hybrid`], [`deepseek146`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Names the shape in fingerprints.
    pub name: Arc<str>,
    /// All tensors of the model, in registration order.
    pub layers: Vec<Layer>,
    /// Number of model layers, at least the number of pipeline stages.
    pub model_layers: u32,
    /// The groups, by index.
    pub groups: Vec<Group>,
    /// Kernel blocks in a logical block, for attention groups `[A05]`.
    pub kernel_blocks_per_block: u32,
    /// KV heads of the whole model; 0 for latent KV.
    pub total_kv_heads: u32,
    /// Whether every TP rank holds the same KV `[A04]`.
    pub replicated_latent: bool,
    /// How tensors lie in memory.
    pub packing: Packing,
    /// Bytes of an element; every unit is a multiple of it.
    pub element_size: u32,
}

impl Shape {
    /// Kinds of the groups, by index.
    #[must_use]
    pub fn group_kinds(&self) -> Vec<GroupKind> {
        self.groups.iter().map(Group::kind).collect()
    }

    /// Rows of memory that a block of the group takes.
    #[must_use]
    pub fn rows_per_block(&self, group: usize) -> u32 {
        match self.groups[group].kind() {
            GroupKind::Attention => self.kernel_blocks_per_block,
            GroupKind::State => 1,
        }
    }

    /// Smallest number of tokens at which every group's blocks end: prefix hits are
    /// multiples of it.
    #[must_use]
    pub fn hit_step(&self) -> usize {
        self.groups.iter().map(|group| group.block_size as usize).fold(1, |a, b| a / gcd(a, b) * b)
    }

    /// Blocks, over all groups, of a request whose KV has reached `tokens` and may grow to
    /// `end` tokens.
    #[must_use]
    pub fn blocks_needed(&self, tokens: usize, end: usize) -> usize {
        self.groups.iter().map(|group| group.blocks(end) - group.kept(tokens).start).sum()
    }

    /// What must be equal on both sides.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint {
            model: self.name.to_string(),
            dtype: format!("{}-byte", self.element_size),
            block_size: self.groups.iter().map(|group| group.block_size).collect(),
            total_kv_heads: self.total_kv_heads,
            groups: self.group_kinds(),
        }
    }
}

const fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
