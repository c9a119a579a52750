//! Prepared layouts by the peer that sent them.

use crate::ids::{LayoutId, SessionAddress};
use crate::plan::{PeerTopology, PreparedLayout};
use crate::planted::{self, Bug};
use crate::wire::Pull;
use lru::LruCache;
use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Who sent a layout, and which `[L02]`. The random id keeps two D processes apart, also
/// on one host and port `[L11]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PeerKey {
    /// D's data-plane session.
    pub session: SessionAddress,
    /// D's rank and sizes.
    pub topology: PeerTopology,
    /// D's layout.
    pub layout_id: LayoutId,
}

impl From<&Pull> for PeerKey {
    /// Copies no text: the host is shared.
    fn from(pull: &Pull) -> Self {
        Self {
            session: pull.session.clone(),
            topology: PeerTopology::from(pull),
            layout_id: pull.layout_id,
        }
    }
}

/// Least recently used peers go first; losing one costs a miss and a resend `[L08]`.
#[derive(Debug, Clone)]
pub struct PeerLayouts {
    cache: LruCache<PeerKey, Arc<PreparedLayout>>,
}

impl PeerLayouts {
    /// Keeps up to `capacity` peers.
    #[must_use]
    pub fn new(capacity: NonZeroUsize) -> Self {
        let unbounded = planted::is(Bug::LayoutsUnbounded);
        Self { cache: if unbounded { LruCache::unbounded() } else { LruCache::new(capacity) } }
    }

    /// The layout of `key`, which counts as used now.
    pub fn get(&mut self, key: &PeerKey) -> Option<Arc<PreparedLayout>> {
        self.cache.get(key).cloned()
    }

    /// Keeps a layout; the caller sees to it that its id is not none `[L02]`.
    pub fn put(&mut self, key: PeerKey, layout: Arc<PreparedLayout>) {
        self.cache.put(key, layout);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.cache.clear();
    }

    /// Peers kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Whether none is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cache.is_empty()
    }
}

impl PartialEq for PeerLayouts {
    /// Same entries, used in the same order.
    fn eq(&self, other: &Self) -> bool {
        self.cache.cap() == other.cache.cap() && self.cache.iter().eq(other.cache.iter())
    }
}

impl Eq for PeerLayouts {}

impl Hash for PeerLayouts {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.cache.len().hash(state);
        self.cache.iter().for_each(|entry| entry.hash(state));
    }
}
