//! What a campaign reached: which faults met which states, which things happened at all,
//! which sites fired.

mod cells;
mod facts;
mod states;
mod table;
mod tracker;

pub use cells::{FAULTS, MESSAGE_LOST, impossible};
pub use states::State;
pub use table::{Sites, Summary};

use crate::history::{Event, What};
use crate::plan::Plan;
use facts::Facts;
use std::collections::BTreeMap;
use tracker::Tracker;

/// Counts over one run, or over many.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coverage {
    /// How often a fault began while an engine that it touches was in a state.
    pub cells: BTreeMap<(&'static str, State), u64>,
    /// How often each thing happened.
    pub facts: BTreeMap<String, u64>,
    /// In how many runs each site was armed.
    pub armed: BTreeMap<String, u64>,
    /// How often each site fired.
    pub fired: BTreeMap<String, u64>,
}

impl Coverage {
    /// What one run reached.
    #[must_use]
    pub fn of(plan: &Plan, events: &[Event]) -> Self {
        let mut coverage = Self::default();
        for site in &plan.sites {
            *coverage.armed.entry(site.clone()).or_default() += 1;
        }
        let mut tracker = Tracker::new(plan);
        let mut facts = Facts::default();
        for event in events {
            if let Some((fault, engines)) = tracker.fault(plan, event) {
                for state in tracker.states(&engines) {
                    *coverage.cells.entry((fault, state)).or_default() += 1;
                }
            }
            if let What::SiteFired(site) = event.what {
                *coverage.fired.entry(site.to_owned()).or_default() += 1;
            }
            facts.observe(event);
            tracker.observe(event);
        }
        coverage.facts = facts.counts;
        coverage
    }

    /// Adds what another run reached.
    pub fn add(&mut self, other: &Self) {
        for (cell, count) in &other.cells {
            *self.cells.entry(*cell).or_default() += count;
        }
        let maps = [
            (&mut self.facts, &other.facts),
            (&mut self.armed, &other.armed),
            (&mut self.fired, &other.fired),
        ];
        for (mine, theirs) in maps {
            for (name, count) in theirs {
                *mine.entry(name.clone()).or_default() += count;
            }
        }
    }
}
