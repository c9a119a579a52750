//! Chance while a plan is made.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Draws for one plan: a function of the scenario's name and the seed.
#[derive(Debug)]
pub struct Draw {
    rng: StdRng,
}

impl Draw {
    /// Draws for this plan.
    #[must_use]
    pub fn new(scenario: &str, seed: u64) -> Self {
        let mut hasher = DefaultHasher::new();
        (scenario, seed).hash(&mut hasher);
        Self { rng: StdRng::seed_from_u64(hasher.finish()) }
    }

    /// True one time in `of`.
    pub fn one_in(&mut self, of: u32) -> bool {
        self.rng.random_range(0..of) == 0
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        self.rng.random_range(low..=high)
    }

    /// A smaller number, as above.
    pub fn few(&mut self, low: u32, high: u32) -> u32 {
        self.rng.random_range(low..=high)
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.random_range(0..from.len())]
    }
}
