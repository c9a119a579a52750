//! Worlds by name. Each makes a plan from a seed and says which rules and failures it pins.

mod build;
mod draw;
mod mixed;

use crate::plan::Plan;

/// A way to make plans.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name, kebab-case.
    pub name: &'static str,
    /// What happens in it, one line.
    pub about: &'static str,
    /// Rules (`L05`) and failures (`F12`) that it pins.
    pub pins: &'static [&'static str],
    /// Makes the plan of a seed.
    pub make: fn(u64) -> Plan,
}

/// All scenarios; the first is the swarm.
pub const ALL: &[Scenario] = &[Scenario {
    name: "mixed",
    about: "any fleet, any faults: each run turns some off and gives the rest odds of its own",
    pins: &[],
    make: mixed::plan,
}];

/// A scenario by its name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Scenario> {
    ALL.iter().find(|scenario| scenario.name == name)
}
