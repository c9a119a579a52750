//! A node's KV memory, as it is registered and described to peers.

use crate::transport::Registration;
use kvbaton_core::fingerprint::Fingerprint;
use kvbaton_core::ids::{Generation, LayoutId};
use kvbaton_core::layout::{GrantableRows, Layout};
use kvbaton_core::lifecycle::Names;
use kvbaton_core::plan::{GroupSpec, LocalLayout};
use kvbaton_core::topology::Topology;
use kvbaton_core::wire::{LayoutColumns, LayoutExtension};
use std::sync::Arc;

/// KV memory of one rank, ready to be registered.
#[derive(Debug, Clone)]
pub struct Memory {
    pub(crate) local: Arc<LocalLayout>,
    pub(crate) rows: Arc<GrantableRows>,
    columns: LayoutColumns,
    fingerprint: Fingerprint,
}

/// What an engine says of its KV cache beside its tensors.
#[derive(Debug, Clone, Default)]
pub struct Cache {
    /// KV cache groups, in the order of block lists.
    pub groups: Vec<GroupSpec>,
    /// Kernel blocks per logical attention block, at least 1.
    pub kernel_blocks_per_block: u32,
    /// Whether pages carry padding, so that their heads cannot be cut.
    pub padded_pages: bool,
    /// Model and revision, as the engine names them; compared with the peer's.
    pub model: String,
    /// Data type of the cache; compared with the peer's.
    pub dtype: String,
    /// KV heads of the whole model; 0 for latent KV.
    pub total_kv_heads: u32,
}

impl Memory {
    /// Describes a rank's memory by its layout and the cache's properties.
    ///
    /// # Errors
    /// When they do not fit each other.
    pub fn new(
        topology: Topology,
        layout: Layout,
        cache: Cache,
    ) -> Result<Self, kvbaton_core::layout::LayoutError> {
        let fingerprint = Fingerprint {
            model: cache.model,
            dtype: cache.dtype,
            block_size: cache.groups.iter().map(|group| group.block_tokens).collect(),
            total_kv_heads: cache.total_kv_heads,
            groups: cache.groups.iter().map(|group| group.kind).collect(),
        };
        let columns = layout.to_columns();
        let ratio = cache.kernel_blocks_per_block.max(1);
        let mut local = LocalLayout::new(topology, layout, cache.groups, ratio);
        local.padded_pages = cache.padded_pages;
        local.fingerprint = Some(fingerprint.clone());
        local.check()?;
        let rows = Arc::new(GrantableRows::prepare(&local));
        Ok(Self { local: Arc::new(local), rows, columns, fingerprint })
    }

    /// What pulls under `registration` say of the layout.
    pub(crate) fn columns(&self, registration: &Registration) -> LayoutColumns {
        let mut columns = self.columns.clone();
        columns.extension = Some(LayoutExtension {
            memory: self.local.memory.clone(),
            keys: registration.keys.clone(),
            fingerprint: self.fingerprint.clone(),
        });
        columns
    }
}

/// Names of a registration: its generation is the data plane's, its layout id random
/// `[L01]`.
pub(crate) fn names(generation: Generation) -> Names {
    Names { generation, layout_id: LayoutId::from_random(rand::random()) }
}
