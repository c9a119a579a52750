//! What a campaign is made of. It is handed in, so that tests can put in a made-up world.

use crate::plan::Plan;
use crate::world::{Outcome, RunOptions};

/// Runs a plan, on a fresh thread each time; a function of its arguments alone.
pub type Run = dyn Fn(&Plan, &RunOptions) -> Outcome + Sync;

/// A way to make plans.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// Its name, kebab-case.
    pub name: &'static str,
    /// What it is about, in a line.
    pub about: &'static str,
    /// The rules that it strains.
    pub rules: &'static [&'static str],
    /// Makes the plan of a seed; a function of the seed alone.
    pub make: fn(seed: u64) -> Plan,
}

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bug {
    /// Its name, kebab-case.
    pub name: &'static str,
    /// The rule that it breaks.
    pub rule: &'static str,
}

/// What a campaign is made of.
#[derive(Clone, Copy)]
pub struct Suite<'a> {
    /// Runs a plan.
    pub run: &'a Run,
    /// Ways to make plans; the first is the default.
    pub scenarios: &'a [Scenario],
    /// All named sites.
    pub sites: &'a [&'a str],
    /// All planted bugs.
    pub bugs: &'a [Bug],
}

impl<'a> Suite<'a> {
    /// The scenario of that name.
    #[must_use]
    pub fn scenario(&self, name: &str) -> Option<&'a Scenario> {
        self.scenarios.iter().find(|it| it.name == name)
    }

    /// The scenario that a search for planted bugs takes for a seed: the default for every
    /// second seed, the others in turn. `None` without scenarios.
    #[must_use]
    pub fn rotation(&self, seed: u64) -> Option<&'a Scenario> {
        let (first, others) = self.scenarios.split_first()?;
        if seed.is_multiple_of(2) || others.is_empty() {
            return Some(first);
        }
        others.get((seed / 2) as usize % others.len())
    }
}
