//! What was reached, as text and as JSON; above all, what was not.

use super::{Coverage, FAULTS, State, facts, impossible};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Sites and what became of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sites {
    /// Runs in which each was armed, and how often it fired.
    pub known: BTreeMap<String, (u64, u64)>,
    /// Never fired.
    pub silent: Vec<String>,
}

/// What a campaign reached, and what it did not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// By fault, then by state: how often the one met the other; `None` where it cannot.
    pub cells: BTreeMap<&'static str, Vec<(&'static str, Option<u64>)>>,
    /// By fault: states that it could have met.
    pub unreached_cells: BTreeMap<&'static str, Vec<&'static str>>,
    /// How often each thing happened.
    pub facts: BTreeMap<String, u64>,
    /// Things that never happened.
    pub unreached_facts: Vec<String>,
    /// Sites.
    pub sites: Sites,
}

impl Summary {
    /// Sums a campaign up. `sites` are all sites that there are.
    #[must_use]
    pub fn new(coverage: &Coverage, sites: &[&str]) -> Self {
        let mut cells = BTreeMap::new();
        let mut unreached_cells: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for fault in FAULTS {
            let mut row = Vec::new();
            for state in State::ALL {
                let count = coverage.cells.get(&(fault, state)).copied().unwrap_or(0);
                let possible = count > 0 || impossible(fault, state).is_none();
                if possible && count == 0 {
                    unreached_cells.entry(fault).or_default().push(state.name());
                }
                row.push((state.short(), possible.then_some(count)));
            }
            cells.insert(fault, row);
        }
        let mut facts = coverage.facts.clone();
        for name in facts::names() {
            facts.entry(name).or_default();
        }
        let never = |it: &(&String, &u64)| *it.1 == 0;
        let unreached_facts = facts.iter().filter(never).map(|it| it.0.clone()).collect();
        let mut known: BTreeMap<String, (u64, u64)> =
            sites.iter().map(|it| ((*it).to_owned(), (0, 0))).collect();
        coverage.armed.iter().for_each(|it| known.entry(it.0.clone()).or_default().0 = *it.1);
        coverage.fired.iter().for_each(|it| known.entry(it.0.clone()).or_default().1 = *it.1);
        let silent = known.iter().filter(|it| it.1.1 == 0).map(|it| it.0.clone()).collect();
        let sites = Sites { known, silent };
        Self { cells, unreached_cells, facts, unreached_facts, sites }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<18}", "fault × state")?;
        State::ALL.iter().try_for_each(|it| write!(f, "{:>8}", it.short()))?;
        writeln!(f)?;
        for fault in FAULTS {
            write!(f, "{fault:<18}")?;
            for (_, count) in &self.cells[fault] {
                match count {
                    Some(0) => write!(f, "{:>8}", "-")?,
                    Some(count) => write!(f, "{count:>8}")?,
                    None => write!(f, "{:>8}", "·")?,
                }
            }
            writeln!(f)?;
        }
        let possible = self.cells.values().flatten().filter(|it| it.1.is_some()).count();
        let reached = possible - self.unreached_cells.values().map(Vec::len).sum::<usize>();
        writeln!(f, "{reached} of {possible} cells reached (- never, · cannot happen)")?;
        for (fault, states) in &self.unreached_cells {
            let states: Vec<_> = states.iter().map(|it| (*it).to_owned()).collect();
            list(f, &format!("{fault} never met"), &states)?;
        }
        let reached = self.facts.len() - self.unreached_facts.len();
        writeln!(f, "{reached} of {} things happened at least once", self.facts.len())?;
        list(f, "things that never happened", &self.unreached_facts)?;
        let fired = self.sites.known.len() - self.sites.silent.len();
        writeln!(f, "{fired} of {} sites fired", self.sites.known.len())?;
        list(f, "sites that never fired", &self.sites.silent)
    }
}

/// A list on lines of at most a hundred letters.
fn list(f: &mut fmt::Formatter<'_>, title: &str, items: &[String]) -> fmt::Result {
    if items.is_empty() {
        return Ok(());
    }
    writeln!(f, "{title}:")?;
    let mut line = String::from(" ");
    for (index, item) in items.iter().enumerate() {
        let comma = if index + 1 < items.len() { "," } else { "" };
        if line.chars().count() + item.chars().count() > 97 {
            writeln!(f, "{line}")?;
            line = String::from(" ");
        }
        line += &format!(" {item}{comma}");
    }
    writeln!(f, "{line}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::fake;
    use crate::history::{Event, Lane, What};
    use crate::world::RunOptions;

    fn summary() -> Summary {
        let plan = fake::plan(1);
        let events = fake::run(&plan, &RunOptions::default()).events;
        let mut coverage = Coverage::of(&plan, &events);
        let once = coverage.clone();
        coverage.add(&once);
        Summary::new(&coverage, fake::SITES)
    }

    #[test]
    fn what_never_happened_is_listed() {
        let summary = summary();
        let text = summary.to_string();
        assert_eq!(summary.sites.known["fires"], (2, 2));
        assert_eq!(summary.sites.silent, ["never-fires"]);
        assert!(text.contains("sites that never fired:\n  never-fires\n"), "{text}");
        assert!(summary.unreached_facts.contains(&"stale echo".to_owned()));
        assert!(summary.unreached_cells["restart"].contains(&"asleep"));
        assert!(!summary.unreached_cells["restart"].contains(&"idle"));
        assert!(text.contains("restart never met:\n  P waits for its prefill, "), "{text}");
        assert_eq!(summary.facts["load failed: TimedOut"], 2);
        assert!(text.lines().all(|it| it.chars().count() <= 18 + 17 * 8));
    }

    #[test]
    fn a_fault_meets_what_its_engines_are_at() {
        let plan = fake::plan(1);
        let mut events = fake::run(&plan, &RunOptions::default()).events;
        let at = |what: fn(&What) -> bool, events: &[Event]| {
            events.iter().position(|it| what(&it.what)).expect("an event")
        };
        // A restart of P (happening 3) while it writes; one of D (0: a stop) after it.
        let write = at(|it| matches!(it, What::WriteStarted { .. }), &events);
        for index in [3, 0] {
            let what = What::Happens { index, begins: true, text: "now".into() };
            events.insert(write + 1, Event { at: 0, lane: Lane::World, what });
        }
        let coverage = Coverage::of(&plan, &events);
        for state in [State::Held, State::Writing] {
            assert_eq!(coverage.cells.get(&("restart", state)), Some(&1), "{state:?}");
        }
        for state in [State::LoadingWithLayout, State::Written] {
            assert_eq!(coverage.cells.get(&("stop", state)), Some(&1), "{state:?}");
        }
        assert!(!coverage.cells.contains_key(&("restart", State::Written)));
        let lost = (crate::campaign::coverage::MESSAGE_LOST, State::LoadingWithout);
        assert_eq!(coverage.cells.get(&lost), Some(&1));
    }
}
