//! Chance, in streams: what one link draws does not depend on what another did, so that
//! taking a fault out of a plan changes little else.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// All streams of a run.
#[derive(Debug)]
pub struct Dice {
    seed: u64,
    streams: BTreeMap<(&'static str, u32), StdRng>,
}

impl Dice {
    /// Streams of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, streams: BTreeMap::new() }
    }

    fn stream(&mut self, purpose: &'static str, index: u32) -> &mut StdRng {
        let seed = self.seed;
        self.streams.entry((purpose, index)).or_insert_with(|| {
            let mut hasher = DefaultHasher::new();
            (seed, purpose, index).hash(&mut hasher);
            StdRng::seed_from_u64(hasher.finish())
        })
    }

    /// Whether something with these odds, in 1 of 10,000, happens.
    pub fn happens(&mut self, purpose: &'static str, index: u32, odds: u32) -> bool {
        odds > 0 && self.stream(purpose, index).random_range(0..10_000) < odds
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, purpose: &'static str, index: u32, low: u64, high: u64) -> u64 {
        if low >= high { low } else { self.stream(purpose, index).random_range(low..=high) }
    }
}
