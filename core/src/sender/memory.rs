//! What P remembers of transfers that ended, so that whoever comes late is told at once.

use crate::ids::{Grant, RequestId, TransferId};
use crate::planted::{self, Bug};
use crate::wire::FailureReason;
use lru::LruCache;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;

/// Why a transfer is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ended {
    /// Every D rank that had to read it was answered with its KV.
    Sent,
    /// It failed, or was given up.
    Failed(FailureReason),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Remembered {
    pub ended: Ended,
    /// P's request, if its engine had named it.
    pub request: Option<RequestId>,
    /// Whether P's engine knows that it ended. If not, its `hold` is answered at once.
    pub told: bool,
}

/// Bounded: the oldest memory goes first `[P05]`.
#[derive(Clone)]
pub(super) struct Memory {
    transfers: LruCache<TransferId, Remembered>,
    dropped: LruCache<(TransferId, Grant), ()>,
}

impl Memory {
    pub fn new(capacity: usize) -> Self {
        let capacity = NonZeroUsize::new(capacity).unwrap_or(NonZeroUsize::MIN);
        // Not `LruCache::new`, which allocates for the whole capacity at once.
        let mut transfers = LruCache::unbounded();
        transfers.resize(capacity);
        let mut dropped = LruCache::unbounded();
        dropped.resize(capacity);
        Self { transfers, dropped }
    }

    pub fn remember(&mut self, transfer: TransferId, remembered: Remembered) {
        let early = !remembered.told && remembered.ended == Ended::Failed(FailureReason::Released);
        if !(early && planted::is(Bug::EarlyReleaseForgotten)) {
            self.transfers.push(transfer, remembered);
        }
    }

    pub fn recall(&mut self, transfer: &TransferId) -> Option<&Remembered> {
        self.transfers.get(transfer)
    }

    pub fn forget(&mut self, transfer: &TransferId) -> Option<Remembered> {
        self.transfers.pop(transfer)
    }

    pub fn remember_drop(&mut self, transfer: TransferId, grant: Grant) {
        self.dropped.push((transfer, grant), ());
    }

    pub fn was_dropped(&self, transfer: &TransferId, grant: Grant) -> bool {
        self.dropped.contains(&(transfer.clone(), grant))
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transfers: Vec<_> = self.transfers.iter().collect();
        let dropped: Vec<_> = self.dropped.iter().map(|(key, ())| key).collect();
        f.debug_struct("Memory").field("transfers", &transfers).field("dropped", &dropped).finish()
    }
}

impl PartialEq for Memory {
    fn eq(&self, other: &Self) -> bool {
        self.transfers.iter().eq(other.transfers.iter())
            && self.dropped.iter().eq(other.dropped.iter())
    }
}
impl Eq for Memory {}

impl Hash for Memory {
    /// Without the order of use, which matters only once the capacity is reached.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut transfers: Vec<_> = self.transfers.iter().collect();
        transfers.sort_unstable_by_key(|(id, _)| *id);
        transfers.hash(state);
        let mut dropped: Vec<_> = self.dropped.iter().map(|(key, ())| key).collect();
        dropped.sort_unstable();
        dropped.hash(state);
    }
}
