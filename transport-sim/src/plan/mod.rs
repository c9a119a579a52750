//! Everything that is decided before a run: a plan is a function of a scenario and a seed,
//! can be written to a file, cut down, and run again.

mod bounds;
mod fleet;
mod happening;
mod odds;
mod request;

pub use bounds::Bounds;
pub use fleet::{EnginePlan, Fleet, Kind, ModelPlan, Side};
pub use happening::{Happening, PauseMode, Planned, WakeOrder};
pub use odds::Odds;
pub use request::{Quirk, RequestPlan};

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What the data planes of our nodes are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataKind {
    /// They check grant, generation and rows of each piece (TCP).
    Grants,
    /// They check remote keys only; grants are fenced (adapters) `[G03]`.
    Keys,
}

/// One run, decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Seed of all that is drawn while it runs.
    pub seed: u64,
    /// The scenario that made it.
    pub scenario: String,
    /// Engines.
    pub fleet: Fleet,
    /// Bounds of every node.
    pub bounds: Bounds,
    /// What data planes check.
    pub data: DataKind,
    /// What the network does by chance.
    pub odds: Odds,
    /// Named places that misbehave now and then in this run.
    pub sites: BTreeSet<String>,
    /// How many requests clients have under way at most; 0: any number.
    #[serde(default)]
    pub concurrency: u32,
    /// What clients ask for.
    pub requests: Vec<RequestPlan>,
    /// Faults and operations, in order of time.
    pub happenings: Vec<Planned>,
}

impl Plan {
    /// A plan in which nothing is asked and nothing goes wrong.
    #[must_use]
    pub fn new(scenario: &str, seed: u64, fleet: Fleet) -> Self {
        Self {
            seed,
            scenario: scenario.into(),
            fleet,
            bounds: Bounds::default(),
            data: DataKind::Grants,
            odds: Odds::default(),
            sites: BTreeSet::new(),
            concurrency: 0,
            requests: Vec::new(),
            happenings: Vec::new(),
        }
    }

    /// When the last fault, operation or request begins or ends, in milliseconds: from then
    /// on the world heals.
    #[must_use]
    pub fn heals_at(&self) -> u64 {
        let faults = self.happenings.iter().map(|it| it.at_ms + it.what.lasts_ms());
        let requests = self.requests.iter().map(|it| it.at_ms.max(it.leaves_at_ms.unwrap_or(0)));
        faults.chain(requests).max().unwrap_or(0)
    }

    /// Engines that are killed and never come back.
    #[must_use]
    pub fn dead_for_good(&self) -> BTreeSet<u16> {
        fn killed(what: &Happening) -> Option<u16> {
            match what {
                Happening::Kill { engine, down_ms: None, .. } => Some(*engine),
                Happening::AtOrder { then, .. } => killed(then),
                _ => None,
            }
        }
        self.happenings.iter().filter_map(|it| killed(&it.what)).collect()
    }

    /// Whether nothing is planned or left to chance that could fail a transfer, and P's tables
    /// hold all there is.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        let tries = self.requests.iter().map(|it| u64::from(it.retries) + 1);
        self.happenings.is_empty()
            && self.odds.is_calm()
            && self.sites.is_empty()
            && tries.sum::<u64>() <= self.bounds.max_transfers as u64
            && self.requests.iter().all(|it| it.quirk == Quirk::None && it.leaves_at_ms.is_none())
    }
}
