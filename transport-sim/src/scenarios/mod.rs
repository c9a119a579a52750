//! Worlds by name. Each makes a plan from a seed and says which rules and failures it pins.

mod build;
mod draw;
mod mixed;
mod with_stock;

use crate::campaign::Scenario;

/// All scenarios; the first is the swarm.
pub const ALL: &[Scenario] = &[Scenario {
    name: "mixed",
    about: "any fleet, any faults: each run turns some off and gives the rest odds of its own",
    rules: &[],
    make: mixed::plan,
}];
