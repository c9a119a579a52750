//! A scheduler of one's own, simulated around kvbaton's node: P computes requests and holds
//! them, D loads them and looks at every byte. 100 seeds with restarts, cuts and slow links.
//!
//! ```text
//! cargo run --example own_scheduler -p kvbaton-transport-sim --features simulation \
//!   --config "build.rustflags=['--cfg','madsim']" --target-dir target/sim [-- --bug]
//! ```
//!
//! With `--bug` P's scheduler uses blocks again before the node has given them back. Exits
//! with 0 when no oracle objects, with 1 when one does, with 2 when it was used wrongly.

#[cfg(not(madsim))]
compile_error!("a simulation: it needs `--cfg madsim`, see the command above");

mod own_scheduler {
    pub mod clients;
    pub mod oracle;
    pub mod scheduler;
    pub mod world;
}

use kvbaton_transport_sim::campaign::shrink::{Limits, shrink};
use kvbaton_transport_sim::campaign::sweep::{Failed, Options, sweep};
use kvbaton_transport_sim::campaign::{Progress, Queue, Seeds, Suite, words};
use kvbaton_transport_sim::plan::Plan;
use kvbaton_transport_sim::world::{Outcome, RunOptions, own};
use own_scheduler::oracle::BlocksOnce;
use own_scheduler::{clients, scheduler, world};
use std::process::ExitCode;

const SEEDS: u64 = 100;

/// One run: a function of the plan.
fn run(plan: &Plan, options: &RunOptions, bug: bool) -> Outcome {
    let desks = clients::Desks::default();
    let at = desks.clone();
    let life = move |process| scheduler::life(process, at.clone(), bug);
    let oracles = vec![Box::new(BlocksOnce::default()) as _];
    own::run(plan, options, oracles, life, |stage| clients::story(stage, desks))
}

fn main() -> ExitCode {
    let bug = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--bug") => true,
        Some(_) => {
            eprintln!("usage: own_scheduler [--bug]");
            return ExitCode::from(2);
        }
    };
    let run = move |plan: &Plan, options: &RunOptions| run(plan, options, bug);
    let suite = Suite { run: &run, scenarios: &[world::SCENARIO], sites: &[], bugs: &[] };
    let seeds = Seeds::new(0, SEEDS);
    let queue = Queue { first: Vec::new(), scenarios: vec![world::SCENARIO], seeds };
    let jobs = std::thread::available_parallelism().map_or(1, Into::into);
    let options = Options { jobs, failures: 1, budget: None, run: RunOptions::default() };
    let found = sweep(&queue, &suite, &options, &mut Progress::new(SEEDS));
    println!(
        "{} of {SEEDS} runs, {:.0} virtual seconds in {:.1} s, {} failed",
        found.runs,
        found.virtual_ns as f64 / 1e9,
        found.elapsed.as_secs_f64(),
        found.failures.len()
    );
    for (fact, runs) in &found.coverage.facts {
        println!("  {fact}: {runs}");
    }
    found.failures.iter().for_each(|failed| explain(&suite, failed));
    if found.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Cuts a failing plan down and says what is left of it.
fn explain(suite: &Suite, failed: &Failed) {
    let it = &failed.violation;
    println!("{}: {} [{}]: {}", failed.origin, it.oracle, it.rules.join(" "), it.text);
    let Some(plan) = &failed.plan else { return };
    let (options, limits) = (RunOptions::default(), Limits { runs: 100, ..Limits::default() });
    let small = shrink(plan, it.oracle, suite.run, &options, limits, &mut |_, _| {});
    let Some(small) = small else { return };
    println!("cut down from {} to {} events:", small.before.events(), small.after.events());
    words::schedule(&small.plan).iter().for_each(|line| println!("{line}"));
    println!("last events:");
    let events = &small.outcome.events;
    events[events.len().saturating_sub(12)..].iter().for_each(|event| println!("{event}"));
    if let Some(it) = &small.outcome.violation {
        println!("FAILED: {} [{}]: {}", it.oracle, it.rules.join(" "), it.text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvbaton_transport_sim::campaign::run_alone;

    fn violation(seed: u64, bug: bool) -> Option<&'static str> {
        let it = move |plan: &Plan, options: &RunOptions| run(plan, options, bug);
        let (_, outcome) = run_alone(&it, || (world::SCENARIO.make)(seed), &RunOptions::default());
        outcome.violation.map(|it| it.oracle)
    }

    #[test]
    fn x01_no_oracle_objects_to_the_scheduler() {
        let found: Vec<_> = (0..20).filter_map(|seed| violation(seed, false)).collect();
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn p01_blocks_used_before_they_come_back_are_found() {
        assert_eq!(violation(0, true), Some("blocks-once"));
    }

    #[test]
    fn a_seed_has_one_history() {
        let it = |plan: &Plan, options: &RunOptions| run(plan, options, false);
        let hash = || run_alone(&it, || (world::SCENARIO.make)(3), &RunOptions::default()).1.hash;
        assert_eq!(hash(), hash());
    }
}
