//! How many seeds it takes to find a planted bug.

use super::case::run_alone;
use super::origin::Origin;
use super::suite::{Bug, Suite};
use crate::world::RunOptions;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::scope;

/// How to search.
#[derive(Debug, Clone)]
pub struct Options {
    /// Searches at once; at least 1.
    pub jobs: usize,
    /// Seeds after which a bug counts as not found.
    pub limit: u64,
    /// First seed of each search.
    pub starts: Vec<u64>,
}

/// One search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Search {
    /// Its first seed.
    pub start: u64,
    /// Seeds until an oracle objected, that one included; `None` when none did.
    pub seeds: Option<u64>,
    /// The oracle.
    pub oracle: Option<String>,
    /// The plan.
    pub origin: Option<Origin>,
    /// Plans that fail without the bug too: not its finds.
    pub failing_anyway: Vec<Origin>,
}

/// What became of a planted bug.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Its name.
    pub bug: String,
    /// The rule that it breaks.
    pub rule: String,
    /// The oracle that objected most often.
    pub oracle: Option<String>,
    /// Median number of seeds; `None` when more than half the searches found nothing.
    pub median: Option<u64>,
    /// The searches.
    pub searches: Vec<Search>,
}

impl Found {
    fn new(bug: Bug, searches: Vec<Search>) -> Self {
        let mut oracles: BTreeMap<&str, usize> = BTreeMap::new();
        for oracle in searches.iter().filter_map(|it| it.oracle.as_deref()) {
            *oracles.entry(oracle).or_default() += 1;
        }
        let oracle = oracles.iter().max_by_key(|it| it.1).map(|it| (*it.0).to_owned());
        let mut seeds: Vec<_> = searches.iter().map(|it| it.seeds.unwrap_or(u64::MAX)).collect();
        seeds.sort_unstable();
        let median = seeds.get(seeds.len() / 2).copied().filter(|it| *it < u64::MAX);
        Self { bug: bug.name.into(), rule: bug.rule.into(), oracle, median, searches }
    }

    /// Whether every search found it.
    #[must_use]
    pub fn is_found(&self) -> bool {
        self.searches.iter().all(|it| it.seeds.is_some())
    }
}

/// Searches for every bug from every start. `progress` hears the number of searches that
/// are over.
pub fn alarm(
    suite: &Suite,
    bugs: &[Bug],
    options: &Options,
    progress: &(dyn Fn(usize) + Sync),
) -> Vec<Found> {
    let tasks: Vec<_> = bugs
        .iter()
        .flat_map(|bug| options.starts.iter().map(move |start| (*bug, *start)))
        .collect();
    let (next, over) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results = Mutex::new(BTreeMap::new());
    scope(|threads| {
        for _ in 0..options.jobs.max(1) {
            threads.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some((bug, start)) = tasks.get(index) else { return };
                    let found = search(suite, *bug, *start, options.limit);
                    results.lock().expect("no panic").insert(index, found);
                    progress(over.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no panic").into_values();
    let of = |bug: &Bug| Found::new(*bug, results.by_ref().take(options.starts.len()).collect());
    bugs.iter().map(of).collect()
}

fn search(suite: &Suite, bug: Bug, start: u64, limit: u64) -> Search {
    let planted = RunOptions { plant: Some(bug.name.to_owned()) };
    let mut search =
        Search { start, seeds: None, oracle: None, origin: None, failing_anyway: Vec::new() };
    for seed in start..start.saturating_add(limit) {
        let Some(scenario) = suite.rotation(seed) else { break };
        let make = || (scenario.make)(seed);
        let Some(violation) = run_alone(suite.run, make, &planted).1.violation else { continue };
        let origin = Origin::Seed { scenario: scenario.name.to_owned(), seed };
        if run_alone(suite.run, make, &RunOptions::default()).1.violation.is_some() {
            search.failing_anyway.push(origin);
            continue;
        }
        search.seeds = Some(seed - start + 1);
        search.oracle = Some(violation.oracle.to_owned());
        search.origin = Some(origin);
        break;
    }
    search
}

/// The searches' results as a table.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a>(pub &'a [Found]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|it| it.bug.len()).max().unwrap_or(0).max(3);
        writeln!(
            f,
            "{:<width$}  {:<5} {:>6}  {:>13}  found by",
            "bug", "rule", "median", "min..max"
        )?;
        for found in self.0 {
            let number = |it: Option<u64>| it.map_or("never".into(), |it| it.to_string());
            let seeds = || found.searches.iter().map(|it| it.seeds.unwrap_or(u64::MAX));
            let end = |it: Option<u64>| number(it.filter(|it| *it < u64::MAX));
            let range = format!("{}..{}", end(seeds().min()), end(seeds().max()));
            let (median, oracle) = (number(found.median), found.oracle.as_deref().unwrap_or("-"));
            let (bug, rule) = (&found.bug, &found.rule);
            writeln!(f, "{bug:<width$}  {rule:<5} {median:>6}  {range:>13}  {oracle}")?;
        }
        let anyway: std::collections::BTreeSet<_> =
            self.0.iter().flat_map(|it| &it.searches).flat_map(|it| &it.failing_anyway).collect();
        for origin in anyway {
            writeln!(f, "{origin} fails without a planted bug: {}", super::report::replay(origin))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::fake;

    fn found(jobs: usize) -> Vec<Found> {
        let options = Options { jobs, limit: 60, starts: vec![1, 101, 201] };
        alarm(&fake::suite(), fake::BUGS, &options, &|_| {})
    }

    #[test]
    fn a_bug_is_found_or_said_to_be_missed() {
        let found = found(2);
        assert!(found[0].is_found());
        assert_eq!(found[0].oracle.as_deref(), Some("bytes"));
        let mut seeds: Vec<_> = found[0].searches.iter().map(|it| it.seeds).collect();
        seeds.sort_unstable();
        assert_eq!(found[0].median, seeds[1]);
        // Whatever fails without the bug is not its find.
        assert!(!found[1].is_found());
        assert!(!found[1].searches[0].failing_anyway.is_empty());
        let table = Table(&found).to_string();
        assert!(table.contains("hidden  G01    never   never..never  -"), "{table}");
        assert!(table.contains("fails without a planted bug"), "{table}");
    }

    #[test]
    fn the_number_of_jobs_changes_nothing() {
        assert_eq!(found(1), found(4));
    }
}
