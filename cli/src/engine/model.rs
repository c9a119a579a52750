//! The models that engines can run.

use kvbaton_model_engine::{Dense, Hybrid, Mla, Shape, deepseek146};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Tokens in a block of [`ModelKind::Deepseek146`], which has no other size.
const DEEPSEEK_BLOCK: u32 = 64;

/// A model's family.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// Attention with 8 KV heads in 8 layers: 16 KiB a token.
    Dense,
    /// Latent attention in 8 layers, packed rows: 9 KiB a token.
    Mla,
    /// Full attention, sliding window and recurrent state in turn, 9 layers.
    Hybrid,
    /// 146 tensors in 4 groups: the largest published shape.
    Deepseek146,
}

impl ModelKind {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dense => "dense",
            Self::Mla => "mla",
            Self::Hybrid => "hybrid",
            Self::Deepseek146 => "deepseek146",
        }
    }
}

/// A family and its block size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// The family.
    pub kind: ModelKind,
    /// Tokens in a block; a multiple of 2 for those with KV heads.
    pub block_size: u32,
}

impl Model {
    /// A model; `block_size` is the family's own when `None`.
    ///
    /// # Errors
    /// A sentence that says which sizes the family has.
    pub fn new(kind: ModelKind, block_size: Option<u32>) -> Result<Self, String> {
        let usual = if kind == ModelKind::Deepseek146 { DEEPSEEK_BLOCK } else { 16 };
        let block_size = block_size.unwrap_or(usual);
        let name = kind.as_str();
        if kind == ModelKind::Deepseek146 && block_size != DEEPSEEK_BLOCK {
            return Err(format!("{name} has blocks of {DEEPSEEK_BLOCK} tokens, not {block_size}"));
        }
        if !(2..=1024).contains(&block_size) || !block_size.is_multiple_of(2) {
            return Err(format!(
                "blocks of {block_size} tokens: use an even number from 2 to 1024"
            ));
        }
        Ok(Self { kind, block_size })
    }

    /// What its KV cache looks like. Every logical block of attention with heads is two
    /// kernel blocks.
    #[must_use]
    pub fn shape(self) -> Arc<Shape> {
        let block_size = self.block_size;
        Arc::new(match self.kind {
            ModelKind::Dense => Dense {
                layers: 8,
                kv_heads: 8,
                head_bytes: 256,
                block_size,
                kernel_blocks_per_block: 2,
            }
            .shape(),
            ModelKind::Mla => Mla { layers: 8, latent_bytes: 1152, block_size }.shape(),
            ModelKind::Hybrid => Hybrid {
                layers: 9,
                kv_heads: 8,
                head_bytes: 256,
                block_size,
                kernel_blocks_per_block: 2,
                window: 4 * block_size,
                state_bytes: 8192,
                state_block_size: 4 * block_size,
            }
            .shape(),
            ModelKind::Deepseek146 => deepseek146(),
        })
    }
}
