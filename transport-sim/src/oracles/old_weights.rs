//! KV of other weights is never served.

use super::Oracle;
use super::lives::Lives;
use super::open::Open;
use crate::history::{Event, Lane, LoadFact, What};
use kvbaton_core::ids::TransferId;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
struct Load {
    weights: u64,
    empty: bool,
}

/// Compares the weights of holds and loads.
#[derive(Debug, Default)]
pub struct OldWeights {
    loads: Lives<Open<Load>>,
    /// Weights of everything that was held under a transfer's name.
    held: BTreeMap<TransferId, BTreeSet<u64>>,
    /// What each engine runs.
    current: BTreeMap<u16, u64>,
}

impl Oracle for OldWeights {
    fn name(&self) -> &'static str {
        "old-weights"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["R07"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        match (&event.what, event.lane) {
            (What::WeightsUpdated { version }, Lane::Engine(engine)) => {
                self.current.insert(engine, *version);
            }
            (What::Held { transfer, weights, .. }, _) => {
                self.held.entry(transfer.clone()).or_default().insert(*weights);
            }
            _ => {}
        }
        let Some((node, loads)) = self.loads.of(event) else { return Ok(()) };
        match &event.what {
            What::LoadAsked { request, transfer, rows, weights } => {
                self.current.insert(node.engine, *weights);
                let load = Load { weights: *weights, empty: rows.is_empty() };
                loads.ask(request, transfer, load);
            }
            What::LoadRefused { request, transfer, .. } => {
                loads.refuse(request, transfer);
            }
            What::LoadEnded { request, transfer, end } => {
                let Some(load) = loads.end(request, transfer) else { return Ok(()) };
                if *end != LoadFact::Loaded || load.empty {
                    return Ok(());
                }
                let current = self.current.get(&node.engine).copied().unwrap_or(load.weights);
                if current != load.weights {
                    return Err(format!(
                        "{node}: {request} counts as loaded, but weights went from {} to {current}",
                        load.weights
                    ));
                }
                if let Some(held) = self.held.get(transfer).filter(|it| !it.contains(&current)) {
                    return Err(format!(
                        "{node}: {request} loaded {transfer} of weights {held:?}; it runs {current}"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{
        Story, caught, held, legal, load, load_failed, load_refused, loaded,
    };

    fn of_weights(what: What, new: u64) -> What {
        match what {
            What::Held { request, transfer, rows, .. } => {
                What::Held { request, transfer, rows, weights: new }
            }
            What::LoadAsked { request, transfer, rows, .. } => {
                What::LoadAsked { request, transfer, rows, weights: new }
            }
            other => other,
        }
    }

    fn updated(version: u64) -> What {
        What::WeightsUpdated { version }
    }

    #[test]
    fn r07_equal_weights_are_fine() {
        let story = Story::new().p(held("a", &[(0, 8)])).d(load("a", &[(0, 8)])).d(loaded("a"));
        legal(OldWeights::default(), story.engine(1, updated(2)));
        let story = Story::new().engine(1, updated(2)).p(of_weights(held("a", &[]), 2));
        let story = story.d(of_weights(load("a", &[(0, 8)]), 2)).d(loaded("a"));
        legal(OldWeights::default(), story);
        legal(OldWeights::default(), Story::new().d(load("a", &[(0, 8)])).d(loaded("a")));
    }

    #[test]
    fn r07_a_hold_of_old_weights_is_not_served() {
        let asked = Story::new()
            .p(held("a", &[(0, 8)]))
            .engine(1, updated(2))
            .d(of_weights(load("a", &[(0, 8)]), 2));
        caught(OldWeights::default(), asked.clone().d(loaded("a")), "of weights {1}; it runs 2");
        legal(OldWeights::default(), asked.d(load_failed("a", "Refused", "request a: released")));
    }

    #[test]
    fn r07_a_load_in_flight_does_not_outlive_an_update() {
        let story = Story::new().p(held("a", &[(0, 8)])).d(load("a", &[(0, 8)]));
        let story = story.engine(1, updated(2)).d(loaded("a"));
        caught(OldWeights::default(), story, "weights went from 1 to 2");
    }

    #[test]
    fn p10_a_full_hit_loads_nothing() {
        let story = Story::new().p(held("a", &[])).d(load("a", &[])).engine(1, updated(2));
        legal(OldWeights::default(), story.d(loaded("a")));
    }

    #[test]
    fn a_load_that_was_refused_runs_no_weights() {
        let story = Story::new().d(load("a", &[(0, 8)])).d(load_refused("a"));
        let story = story.engine(1, updated(2)).d(of_weights(load("a", &[(0, 8)]), 2));
        legal(OldWeights::default(), story.d(loaded("a")));
    }
}
