//! `run` and `hash`: many seeds.

use crate::args::{HashArgs, RunArgs, Which, jobs};
use crate::{failure, open};
use anyhow::{Context, Result};
use kvbaton_transport_sim::campaign::coverage::Summary;
use kvbaton_transport_sim::campaign::report::{Report, commit};
use kvbaton_transport_sim::campaign::sweep::{Done, Options, Stop, Sweep, Watch, sweep};
use kvbaton_transport_sim::campaign::{Progress, Queue, Scenario, Suite, ledger};
use kvbaton_transport_sim::world::RunOptions;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Seeds that failed once.
const LEDGER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/ledger.txt");

fn scenarios(suite: &Suite, names: &[String]) -> Result<Vec<Scenario>> {
    if names.is_empty() {
        let first = suite.scenarios.first().context("there is no scenario")?;
        return Ok(vec![*first]);
    }
    if names.iter().any(|it| it == "all") {
        return Ok(suite.scenarios.to_vec());
    }
    names.iter().map(|it| scenario(suite, it).copied()).collect()
}

/// The scenario of that name.
pub fn scenario<'a>(suite: &Suite<'a>, name: &str) -> Result<&'a Scenario> {
    suite.scenario(name).with_context(|| {
        let names: Vec<_> = suite.scenarios.iter().map(|it| it.name).collect();
        format!("there is no scenario `{name}`; there are {}", names.join(", "))
    })
}

fn queue(suite: &Suite, which: &Which) -> Result<Queue> {
    let scenarios = scenarios(suite, &which.scenario)?;
    Ok(Queue { first: Vec::new(), scenarios, seeds: which.seeds })
}

/// Runs seeds; true when nothing failed.
///
/// # Errors
/// When a scenario is unknown, or files cannot be read or written.
pub fn run(suite: &Suite, args: &RunArgs) -> Result<bool> {
    let mut queue = queue(suite, &args.which)?;
    if !args.no_ledger {
        let path = args.ledger.clone().unwrap_or_else(|| PathBuf::from(LEDGER));
        queue.first = ledger::cases(&path, suite)?;
    }
    let options = Options {
        jobs: jobs(args.which.jobs),
        failures: if args.keep_going { usize::MAX } else { 1 },
        budget: args.budget(),
        run: RunOptions::default(),
    };
    let mut progress = Progress::new(queue.len());
    let sweep = sweep(&queue, suite, &options, &mut progress);
    drop(progress);
    let summary = Summary::new(&sweep.coverage, suite.sites);
    if !args.json {
        println!("{summary}");
    }
    let (mut reports, mut oracles) = (Vec::new(), BTreeSet::new());
    for failed in &sweep.failures {
        let is_first = oracles.insert(failed.violation.oracle);
        let report = failure::report(suite, failed, args, is_first)?;
        if !args.json {
            println!("{report}");
        }
        reports.push(report);
    }
    if args.json {
        print_json(&sweep, &summary, &reports)?;
    } else {
        println!("{}", line(&sweep, &queue));
    }
    if args.open
        && let Some(page) = reports.first().and_then(|it| it.page.as_ref())
    {
        open::show(page);
    }
    Ok(sweep.failures.is_empty())
}

fn print_json(sweep: &Sweep, summary: &Summary, reports: &[Report]) -> Result<()> {
    let json = json!({
        "commit": commit(),
        "runs": sweep.runs,
        "complete": sweep.stop == Stop::Complete,
        "seconds": sweep.elapsed.as_secs_f64(),
        "runs_per_second": sweep.speed(),
        "virtual_seconds": sweep.virtual_ns as f64 / 1e9,
        "virtual_seconds_per_second": sweep.acceleration(),
        "failures": reports,
        "reached": summary,
    });
    println!("{}", serde_json::to_string_pretty(&json).context("no JSON")?);
    Ok(())
}

fn line(sweep: &Sweep, queue: &Queue) -> String {
    let why = match sweep.stop {
        Stop::Complete => "",
        Stop::Failures => ", stopped at a failure",
        Stop::Time => ", the time was up",
    };
    format!(
        "{} of {} runs ({} that failed once) in {:.1} s: {:.1} seeds/s, {:.0} virtual s per \
         wall s{why}; {} failed",
        sweep.runs,
        queue.len(),
        queue.first.len(),
        sweep.elapsed.as_secs_f64(),
        sweep.speed(),
        sweep.acceleration(),
        sweep.failures.len()
    )
}

struct Hashes;

impl Watch for Hashes {
    fn done(&mut self, done: &Done, _: &Sweep) {
        println!("{} {:016x}", done.origin, done.hash);
    }
}

/// Prints the hash of each run's events; true when nothing failed.
///
/// # Errors
/// When a scenario is unknown.
pub fn hash(suite: &Suite, args: &HashArgs) -> Result<bool> {
    let queue = queue(suite, &args.which)?;
    let options = Options {
        jobs: jobs(args.which.jobs),
        failures: usize::MAX,
        budget: None,
        run: RunOptions::default(),
    };
    Ok(sweep(&queue, suite, &options, &mut Hashes).failures.is_empty())
}
