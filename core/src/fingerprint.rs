//! What must be equal on both sides for KV bytes to mean the same.

mod text;

pub use text::FingerprintTextError;

use crate::region::GroupKind;
use std::fmt;

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

/// One field in which two fingerprints differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The field.
    pub field: &'static str,
    /// This side's value.
    pub ours: String,
    /// The peer's value.
    pub theirs: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ours is `{}`, the peer's is `{}`", self.field, self.ours, self.theirs)
    }
}

impl Fingerprint {
    /// Every field in which `other`, the peer's, differs; empty when KV bytes mean the
    /// same on both sides.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<Difference> {
        self.fields()
            .into_iter()
            .zip(other.fields())
            .filter(|((_, ours), (_, theirs))| ours != theirs)
            .map(|((field, ours), (_, theirs))| Difference { field, ours, theirs })
            .collect()
    }

    /// Every field by name, its value as a person reads it.
    fn fields(&self) -> [(&'static str, String); 5] {
        // Every field must be compared: a new one fails to compile here.
        let Self { model, dtype, block_size, total_kv_heads, groups } = self;
        [
            ("model", model.clone()),
            ("dtype", dtype.clone()),
            ("block_size", join(block_size)),
            ("total_kv_heads", total_kv_heads.to_string()),
            ("groups", join(groups.iter().map(|kind| kind_name(*kind)))),
        ]
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (field, value)) in self.fields().into_iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{field} {value}")?;
        }
        Ok(())
    }
}

fn join(values: impl IntoIterator<Item = impl fmt::Display>) -> String {
    let values: Vec<_> = values.into_iter().map(|value| value.to_string()).collect();
    values.join(",")
}

fn kind_name(kind: GroupKind) -> &'static str {
    match kind {
        GroupKind::Attention => "attention",
        GroupKind::State => "state",
    }
}
