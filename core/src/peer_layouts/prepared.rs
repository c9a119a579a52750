//! Prepared layouts by what they were made of, whoever sent it.

use crate::incompatible::Incompatible;
use crate::plan::{LocalLayout, PeerTopology, PreparedLayout};
use crate::region::MemoryRange;
use crate::wire::LayoutColumns;
use lru::LruCache;
use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;
use std::sync::Arc;

/// A new layout id, or another D process, with the same content finds what was worked
/// out before `[L02]`. Least recently used layouts go first `[L08]`.
#[derive(Debug, Clone)]
pub struct PreparedLayouts {
    cache: LruCache<Content, Arc<PreparedLayout>>,
    max_bytes: usize,
    bytes: usize,
}

impl PreparedLayouts {
    /// Keeps up to `capacity` layouts, whose columns take up to `max_bytes` together.
    #[must_use]
    pub fn new(capacity: NonZeroUsize, max_bytes: usize) -> Self {
        Self { cache: LruCache::new(capacity), max_bytes, bytes: 0 }
    }

    /// The prepared layout of these columns under `local`, made if it is not kept.
    /// `local` must be the same between two calls of [`Self::clear`].
    ///
    /// # Errors
    /// Why the layouts do not fit; failures are not kept.
    pub fn resolve(
        &mut self,
        local: &LocalLayout,
        peer: PeerTopology,
        columns: &LayoutColumns,
    ) -> Result<Arc<PreparedLayout>, Incompatible> {
        let wanted = View { peer, columns };
        if let Some(layout) = self.cache.get(&wanted as &dyn HasContent) {
            return Ok(layout.clone());
        }
        let layout = Arc::new(PreparedLayout::prepare(local, peer, columns)?);
        let content = Content::new(peer, columns);
        if content.bytes <= self.max_bytes {
            self.bytes += content.bytes;
            if let Some((evicted, _)) = self.cache.push(content, layout.clone()) {
                self.bytes -= evicted.bytes;
            }
            while self.bytes > self.max_bytes
                && let Some((evicted, _)) = self.cache.pop_lru()
            {
                self.bytes -= evicted.bytes;
            }
        }
        Ok(layout)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.cache.clear();
        self.bytes = 0;
    }

    /// Layouts kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Whether none is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cache.is_empty()
    }

    /// Bytes of the columns kept.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl PartialEq for PreparedLayouts {
    /// Same entries, used in the same order.
    fn eq(&self, other: &Self) -> bool {
        self.max_bytes == other.max_bytes
            && self.cache.cap() == other.cache.cap()
            && self.cache.iter().eq(other.cache.iter())
    }
}

impl Eq for PreparedLayouts {}

impl Hash for PreparedLayouts {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.cache.len().hash(state);
        self.cache.iter().for_each(|entry| entry.hash(state));
    }
}

/// What a prepared layout depends on, beside P's registration: everything in the columns
/// but remote keys, which a registration of the same memory changes.
#[derive(Debug, Clone)]
struct Content {
    peer: PeerTopology,
    columns: LayoutColumns,
    bytes: usize,
}

impl Content {
    fn new(peer: PeerTopology, columns: &LayoutColumns) -> Self {
        let mut columns = columns.clone();
        if let Some(extension) = &mut columns.extension {
            extension.keys = Vec::new();
        }
        let bytes = size_of_columns(&columns);
        Self { peer, columns, bytes }
    }
}

fn size_of_columns(columns: &LayoutColumns) -> usize {
    let numbers = columns.base_addrs.len()
        + columns.block_lens.len()
        + columns.kv_block_lens.len()
        + columns.layer_indices.len()
        + columns.group_indices.len()
        + columns.row_offsets.len();
    let names = columns.layer_names.iter().map(|name| size_of::<String>() + name.len());
    let shared = columns.shared_group_ids.iter().map(|ids| size_of::<Vec<i64>>() + 8 * ids.len());
    let extension = columns.extension.as_ref().map_or(0, |extension| {
        let print = &extension.fingerprint;
        size_of::<MemoryRange>() * extension.memory.len()
            + print.model.len()
            + print.dtype.len()
            + 4 * print.block_size.len()
            + print.groups.len()
    });
    size_of::<Content>() + 8 * numbers + names.sum::<usize>() + shared.sum::<usize>() + extension
}

/// A content, owned or borrowed from a pull, so that looking one up copies nothing.
trait HasContent {
    fn view(&self) -> View<'_>;
}

#[derive(Clone, Copy)]
struct View<'a> {
    peer: PeerTopology,
    columns: &'a LayoutColumns,
}

impl HasContent for View<'_> {
    fn view(&self) -> View<'_> {
        *self
    }
}

impl HasContent for Content {
    fn view(&self) -> View<'_> {
        View { peer: self.peer, columns: &self.columns }
    }
}

impl PartialEq for View<'_> {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (self.columns, other.columns);
        let extensions = match (&a.extension, &b.extension) {
            (Some(a), Some(b)) => a.memory == b.memory && a.fingerprint == b.fingerprint,
            (None, None) => true,
            _ => false,
        };
        self.peer == other.peer
            && a.base_addrs == b.base_addrs
            && a.block_lens == b.block_lens
            && a.kv_block_lens == b.kv_block_lens
            && a.layer_indices == b.layer_indices
            && a.group_indices == b.group_indices
            && a.row_offsets == b.row_offsets
            && a.layer_names == b.layer_names
            && a.shared_group_ids == b.shared_group_ids
            && extensions
    }
}

impl Hash for View<'_> {
    /// Addresses tell nearly all layouts apart; equality looks at the rest.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.peer.hash(state);
        self.columns.base_addrs.hash(state);
    }
}

impl PartialEq for dyn HasContent + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.view() == other.view()
    }
}

impl Eq for dyn HasContent + '_ {}

impl Hash for dyn HasContent + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.view().hash(state);
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        self.view() == other.view()
    }
}

impl Eq for Content {}

impl Hash for Content {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.view().hash(state);
    }
}

impl<'a> Borrow<dyn HasContent + 'a> for Content {
    fn borrow(&self) -> &(dyn HasContent + 'a) {
        self
    }
}
