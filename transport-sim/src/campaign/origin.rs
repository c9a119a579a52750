//! Where a plan comes from, and the plans of a campaign in order.

use super::seeds::Seeds;
use super::suite::Scenario;
use crate::plan::Plan;
use serde::Serialize;
use std::fmt;

/// Where a plan comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A scenario made it.
    Seed {
        /// The scenario.
        scenario: String,
        /// Its seed.
        seed: u64,
    },
    /// It was written down in a file.
    File(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seed { scenario, seed } => write!(f, "{scenario} {seed}"),
            Self::File(path) => f.write_str(path),
        }
    }
}

impl Origin {
    /// A name that a file can have.
    #[must_use]
    pub fn file_stem(&self) -> String {
        match self {
            Self::Seed { scenario, seed } => format!("{scenario}-{seed}"),
            Self::File(path) => {
                let name = path.rsplit('/').next().unwrap_or(path);
                name.strip_suffix(".json").unwrap_or(name).to_owned()
            }
        }
    }
}

/// A plan to run, or how to make it.
#[derive(Debug, Clone)]
pub enum Case {
    /// From a scenario and a seed.
    Seed(Scenario, u64),
    /// It is there.
    Plan(String, Box<Plan>),
}

impl Case {
    /// Where it comes from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        match self {
            Self::Seed(scenario, seed) => {
                Origin::Seed { scenario: scenario.name.to_owned(), seed: *seed }
            }
            Self::Plan(path, _) => Origin::File(path.clone()),
        }
    }

    /// Makes it.
    #[must_use]
    pub fn plan(&self) -> Plan {
        match self {
            Self::Seed(scenario, seed) => (scenario.make)(*seed),
            Self::Plan(_, plan) => (**plan).clone(),
        }
    }
}

/// The plans of a campaign, in order: those that failed once, then seed by seed, each in
/// every scenario.
#[derive(Debug, Clone, Default)]
pub struct Queue {
    /// Run first.
    pub first: Vec<Case>,
    /// Scenarios.
    pub scenarios: Vec<Scenario>,
    /// Their seeds.
    pub seeds: Seeds,
}

impl Queue {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.first.len() as u64 + self.seeds.len() * self.scenarios.len() as u64
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The case at an index.
    #[must_use]
    pub fn get(&self, index: u64) -> Option<Case> {
        if let Some(case) = usize::try_from(index).ok().and_then(|it| self.first.get(it)) {
            return Some(case.clone());
        }
        let (index, each) = (index - self.first.len() as u64, self.scenarios.len() as u64);
        let seed = self.seeds.get(index.checked_div(each)?)?;
        Some(Case::Seed(self.scenarios[(index % each) as usize], seed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::fake;

    #[test]
    fn what_failed_once_comes_first_then_every_scenario_of_a_seed() {
        let queue = Queue {
            first: vec![Case::Plan("ledger/old.json".into(), Box::new(fake::plan(9)))],
            scenarios: fake::SCENARIOS.to_vec(),
            seeds: "3..5".parse().expect("seeds"),
        };
        let names: Vec<_> =
            (0..).map_while(|it| queue.get(it)).map(|it| it.origin().to_string()).collect();
        assert_eq!(names, ["ledger/old.json", "mixed 3", "quiet 3", "mixed 4", "quiet 4"]);
        assert_eq!(queue.len(), 5);
        assert!(Queue::default().get(0).is_none());
    }

    #[test]
    fn a_file_is_named_after_where_the_plan_comes_from() {
        assert_eq!(Origin::File("ledger/old.json".into()).file_stem(), "old");
        assert_eq!(Origin::Seed { scenario: "a".into(), seed: 3 }.file_stem(), "a-3");
    }
}
