//! What D knows of P workers: engines, and which of them hold D's layout.

use crate::directory::EngineRanks;
use crate::ids::EngineId;
use crate::planted::{self, Bug};
use lru::LruCache;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Bounded by least recent use: forgetting costs a query, or a layout sent again `[L08]`.
#[derive(Clone)]
pub(super) struct Peers {
    engines: LruCache<EngineId, Arc<EngineRanks>>,
    /// Addresses that echoed the current layout id `[L04]`.
    echoed: LruCache<Arc<str>, ()>,
}

impl Peers {
    pub fn new(capacity: usize) -> Self {
        let capacity = NonZeroUsize::new(capacity).unwrap_or(NonZeroUsize::MIN);
        let mut engines = LruCache::unbounded();
        engines.resize(capacity);
        let mut echoed = LruCache::unbounded();
        echoed.resize(capacity);
        Self { engines, echoed }
    }

    pub fn learn(&mut self, engine: EngineId, ranks: EngineRanks) {
        self.engines.push(engine, Arc::new(ranks));
    }

    pub fn ranks(&mut self, engine: &EngineId) -> Option<Arc<EngineRanks>> {
        self.engines.get(engine).cloned()
    }

    /// Forgets an engine, so that its next load asks the bootstrap server again `[P12]`.
    pub fn forget_engine(&mut self, engine: &EngineId) {
        self.engines.pop(engine);
    }

    pub fn has_echoed(&mut self, address: &Arc<str>) -> bool {
        self.echoed.get(address).is_some()
    }

    pub fn echo(&mut self, address: Arc<str>) {
        self.echoed.push(address, ());
    }

    pub fn forget_echo(&mut self, address: &Arc<str>) {
        self.echoed.pop(address);
    }

    pub fn forget_echoes(&mut self) {
        if !planted::is(Bug::EchoesOutliveRegistration) {
            self.echoed.clear();
        }
    }
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engines: Vec<_> = self.engines.iter().collect();
        let echoed: Vec<_> = self.echoed.iter().map(|(address, ())| address).collect();
        f.debug_struct("Peers").field("engines", &engines).field("echoed", &echoed).finish()
    }
}

impl PartialEq for Peers {
    fn eq(&self, other: &Self) -> bool {
        self.engines.iter().eq(other.engines.iter()) && self.echoed.iter().eq(other.echoed.iter())
    }
}
impl Eq for Peers {}

impl Hash for Peers {
    /// Without the order of use, which matters only once the capacity is reached.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut engines: Vec<_> = self.engines.iter().collect();
        engines.sort_unstable_by_key(|(engine, _)| *engine);
        engines.hash(state);
        let mut echoed: Vec<_> = self.echoed.iter().map(|(address, ())| address).collect();
        echoed.sort_unstable();
        echoed.hash(state);
    }
}
