//! What must be equal on both sides for KV bytes to mean the same.

use crate::region::GroupKind;

/// Compatibility fingerprint of one side. Sent only between our own nodes; every field
/// that differs is named with both values in the refusal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Fingerprint {
    /// Model and revision, as the engine names them.
    pub model: String,
    /// Data type of the KV cache (`bfloat16`, `fp8_e4m3`, …).
    pub dtype: String,
    /// Tokens per logical block, per group.
    pub block_size: Vec<u32>,
    /// KV heads of the whole model; 0 where the notion does not apply (latent KV).
    pub total_kv_heads: u32,
    /// What each group's rows hold.
    pub groups: Vec<GroupKind>,
}
