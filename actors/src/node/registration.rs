//! A node's KV memory, as it is registered and described to peers.

use crate::planted::hash_of;
use crate::transport::Registration;
use kvbaton_core::ids::{Generation, Grant, LayoutId, RequestId};
use kvbaton_core::layout::{GrantableRows, Layout, LayoutError};
use kvbaton_core::lifecycle::Names;
use kvbaton_core::plan::LocalLayout;
use kvbaton_core::planted::{self, Bug};
use kvbaton_core::wire::{LayoutColumns, LayoutExtension};
use std::sync::Arc;

/// KV memory of one rank, ready to be registered.
#[derive(Debug, Clone)]
pub struct Memory {
    pub(crate) local: Arc<LocalLayout>,
    pub(crate) rows: Arc<GrantableRows>,
    columns: LayoutColumns,
}

impl Memory {
    /// Prepares a rank's registration.
    ///
    /// # Errors
    /// When the layout contradicts itself, or names no memory.
    pub fn new(local: LocalLayout) -> Result<Self, LayoutError> {
        local.check()?;
        let layout = Layout {
            regions: local.regions.clone(),
            rows: local.rows.clone(),
            opaque: local.opaque.clone(),
            storages: local.memory.clone(),
        };
        let (columns, rows) = (layout.to_columns(), Arc::new(GrantableRows::prepare(&local)));
        Ok(Self { local: Arc::new(local), rows, columns })
    }

    /// What pulls under `registration` say of the layout.
    pub(crate) fn columns(&self, registration: &Registration) -> LayoutColumns {
        let mut columns = self.columns.clone();
        columns.extension = Some(LayoutExtension {
            memory: self.local.memory.clone(),
            keys: registration.keys.clone(),
            fingerprint: self.local.fingerprint.clone().unwrap_or_default(),
        });
        columns
    }
}

/// Names of a registration: its generation is the data plane's, its layout id random
/// `[L01]`.
pub(crate) fn names(generation: Generation, memory: &Memory) -> Names {
    let fixed = planted::is(Bug::WakeKeepsLayoutId);
    let random = if fixed { hash_of(&memory.local.memory) } else { rand::random() };
    Names { generation, layout_id: LayoutId::from_random(random) }
}

/// A random grant for a load of `request` `[G01]`.
pub(crate) fn new_grant(request: &RequestId) -> Grant {
    let reused = planted::is(Bug::GrantFromRequest);
    Grant(if reused { hash_of(request) } else { rand::random() })
}
