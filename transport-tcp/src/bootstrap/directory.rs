//! Who is registered, and who replaces whom `[P12]`. No I/O.

use super::json::{ByRank, Engine, Engines, Register};
use std::collections::BTreeMap;

/// Bytes that a query's answer may have, at most; below what clients take.
const MAX_WEIGHT: usize = 3 << 20;

/// What a registration did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Registered {
    /// A rank that was not there.
    Added,
    /// The very same registration again.
    Unchanged,
    /// The rank moved, or says something else about itself.
    Updated,
    /// A new engine took the dp rank; every rank of the old one is gone.
    ReplacedEngine {
        /// Id of the engine that is gone.
        old: String,
    },
}

/// The registrations of one bootstrap server.
#[derive(Debug, Default)]
pub(super) struct Registrations {
    engines: BTreeMap<u32, ByRank<Register>>,
    weight: usize,
}

impl Registrations {
    /// Registers a checked rank.
    ///
    /// # Errors
    /// When the directory is full; nothing has changed then.
    pub(super) fn register(&mut self, rank: Register) -> Result<Registered, String> {
        let old_engine = self.engine_id(rank.dp_rank).filter(|id| *id != rank.engine_id);
        let old_engine = old_engine.map(str::to_owned);
        let freed = match &old_engine {
            Some(_) => self.engine_weight(rank.dp_rank),
            None => self.find(&rank).map_or(0, Register::weight),
        };
        let weight = self.weight - freed + rank.weight();
        if weight > MAX_WEIGHT {
            return Err("the directory is full: unregister ranks that are gone, or start another \
                        bootstrap server"
                .to_owned());
        }
        self.weight = weight;
        if old_engine.is_some() {
            self.engines.remove(&rank.dp_rank);
        }
        let stages = self.engines.entry(rank.dp_rank).or_default().entry(rank.tp_rank).or_default();
        let before = stages.insert(rank.pp_rank, rank.clone());
        Ok(match (old_engine, before) {
            (Some(old), _) => Registered::ReplacedEngine { old },
            (None, None) => Registered::Added,
            (None, Some(before)) if before == rank => Registered::Unchanged,
            (None, Some(_)) => Registered::Updated,
        })
    }

    /// Takes a rank out, if it is still the one registered. Returns whether it was.
    pub(super) fn unregister(&mut self, rank: &Register) -> bool {
        let same = |r: &Register| r.engine_id == rank.engine_id && r.addr == rank.addr;
        let Some(freed) = self.find(rank).filter(|r| same(r)).map(Register::weight) else {
            return false;
        };
        self.weight -= freed;
        if let Some(engine) = self.engines.get_mut(&rank.dp_rank) {
            if let Some(stages) = engine.get_mut(&rank.tp_rank) {
                stages.remove(&rank.pp_rank);
            }
            engine.retain(|_, stages| !stages.is_empty());
        }
        self.engines.retain(|_, engine| !engine.is_empty());
        true
    }

    /// The answer to a query.
    pub(super) fn engines(&self) -> Engines {
        let engine = |ranks: &ByRank<Register>| {
            let mut engine = Engine {
                engine_id: String::new(),
                worker_addr: ByRank::new(),
                kvbaton: ByRank::new(),
            };
            for rank in ranks.values().flat_map(BTreeMap::values) {
                engine.engine_id.clone_from(&rank.engine_id);
                let stages = engine.worker_addr.entry(rank.tp_rank).or_default();
                stages.insert(rank.pp_rank, rank.addr.clone());
                if let Some(extension) = &rank.kvbaton {
                    let stages = engine.kvbaton.entry(rank.tp_rank).or_default();
                    stages.insert(rank.pp_rank, extension.clone());
                }
            }
            engine
        };
        self.engines.iter().map(|(&dp_rank, ranks)| (dp_rank, engine(ranks))).collect()
    }

    fn find(&self, rank: &Register) -> Option<&Register> {
        self.engines.get(&rank.dp_rank)?.get(&rank.tp_rank)?.get(&rank.pp_rank)
    }

    fn engine_id(&self, dp_rank: u32) -> Option<&str> {
        let ranks = self.engines.get(&dp_rank)?;
        ranks.values().flat_map(BTreeMap::values).next().map(|rank| rank.engine_id.as_str())
    }

    fn engine_weight(&self, dp_rank: u32) -> usize {
        let ranks = self.engines.get(&dp_rank);
        ranks.map_or(0, |r| r.values().flat_map(BTreeMap::values).map(Register::weight).sum())
    }
}
