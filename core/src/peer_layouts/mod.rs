//! What P keeps of the layouts of D ranks, so that a layout travels once per peer.

mod peers;
mod prepared;

pub use peers::{PeerKey, PeerLayouts};
pub use prepared::PreparedLayouts;

use crate::ids::LayoutId;
use crate::incompatible::Incompatible;
use crate::layout::LayoutError;
use crate::plan::{LocalLayout, PeerTopology, PreparedLayout};
use crate::planted::{self, Bug};
use crate::wire::Pull;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Peers whose layouts are kept by default `[L08]`.
pub const DEFAULT_CAPACITY: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// Bytes of peers' layouts that are kept by default, whatever their number `[L08]`.
pub const DEFAULT_MAX_BYTES: usize = 64 << 20;

/// What a pull's layout, or its id, turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// The pull can be planned.
    Ready {
        /// P's and D's layout, aligned.
        layout: Arc<PreparedLayout>,
        /// Goes into the reply: the pull's id, which P now holds, or none `[L03]`.
        echo: LayoutId,
    },
    /// P does not hold that id; answer LAYOUT_MISS `[L05]`. Never for a pull with a
    /// layout or without an id `[L06]`.
    Miss,
    /// The two cannot exchange KV. Nothing was stored, nothing is echoed `[L02]`.
    Incompatible(Incompatible),
}

/// P's own registration and the layouts of the peers that pulled under it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LayoutTable {
    local: Option<Arc<LocalLayout>>,
    peers: PeerLayouts,
    prepared: PreparedLayouts,
}

impl Default for LayoutTable {
    fn default() -> Self {
        Self::new(DEFAULT_CAPACITY, DEFAULT_MAX_BYTES)
    }
}

impl LayoutTable {
    /// Keeps up to `capacity` peers, and as many prepared layouts whose peers' columns
    /// take up to `max_bytes` together. Nothing is registered yet.
    #[must_use]
    pub fn new(capacity: NonZeroUsize, max_bytes: usize) -> Self {
        Self {
            local: None,
            peers: PeerLayouts::new(capacity),
            prepared: PreparedLayouts::new(capacity, max_bytes),
        }
    }

    /// Takes a new registration; forgets what belonged to the old one `[L09]`.
    ///
    /// # Errors
    /// What is wrong with it; the table is then as it was.
    pub fn register(&mut self, local: LocalLayout) -> Result<(), LayoutError> {
        local.check()?;
        self.unregister();
        self.local = Some(Arc::new(local));
        Ok(())
    }

    /// Drops the registration and all that belonged to it `[L09]`. Prepared layouts that
    /// callers still hold must not be used for another write.
    pub fn unregister(&mut self) {
        self.local = None;
        if planted::is(Bug::LayoutsOutliveRegistration) {
            return;
        }
        self.peers.clear();
        self.prepared.clear();
    }

    /// The registration, if any.
    #[must_use]
    pub fn local(&self) -> Option<&Arc<LocalLayout>> {
        self.local.as_ref()
    }

    /// Finds or makes the prepared layout of a pull. Allocates nothing when the peer or
    /// the content of its layout is known.
    pub fn resolve(&mut self, pull: &Pull) -> Resolution {
        let peer = PeerTopology::from(pull);
        let Some(local) = &self.local else {
            let remote_rank = peer.tp_rank;
            return Resolution::Incompatible(Incompatible::NothingRegistered { remote_rank });
        };
        let id = pull.layout_id;
        let missed = planted::is(Bug::MissToOldPeer) && id.is_none();
        let Some(columns) = pull.layout.as_ref().filter(|_| !missed) else {
            if id.is_none() && !missed {
                return Resolution::Incompatible(Incompatible::LayoutMissing {
                    local: local.regions.len(),
                    remote_rank: peer.tp_rank,
                });
            }
            return match self.peers.get(&PeerKey::from(pull)) {
                Some(layout) => Resolution::Ready { layout, echo: id },
                None => Resolution::Miss,
            };
        };
        match self.prepared.resolve(local, peer, columns) {
            Ok(layout) => {
                if !id.is_none() {
                    self.peers.put(PeerKey::from(pull), layout.clone());
                }
                Resolution::Ready { layout, echo: id }
            }
            Err(reason) => Resolution::Incompatible(reason),
        }
    }

    /// (peers, prepared layouts) that are kept, for metrics.
    #[must_use]
    pub fn len(&self) -> (usize, usize) {
        (self.peers.len(), self.prepared.len())
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }
}
