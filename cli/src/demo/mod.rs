//! `kvbaton demo`: engines as separate processes, a router, an oracle.

mod args;
mod chaos;
mod child;
pub(crate) mod fleet;
mod jobs;
pub(crate) mod message;
pub mod process;
mod report;
mod router;
pub(crate) mod scrape;
mod table;
mod tally;

pub use args::DemoArgs;
pub use tally::Verdict;

use crate::engine::{Model, Snapshot};
use anyhow::Result;
use chaos::Chaos;
use fleet::Fleet;
use indicatif::{ProgressBar, ProgressStyle};
use report::{Found, Report};
use router::Router;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// One-token requests at the end, that measure what a load costs beside its bytes.
const PROBES: usize = 64;
/// How long blocks may take to come back when nobody died.
const SETTLE_WITHIN: Duration = Duration::from_secs(10);
/// The same after chaos: holds that nobody pulls must expire first.
const HEAL_WITHIN: Duration = Duration::from_secs(20);
/// Attempts of the probes are numbered from here.
const FIRST_PROBE: u64 = 1 << 40;

/// Runs the demo, prints its result, and gives the verdict.
#[must_use]
pub fn run(args: &DemoArgs) -> Verdict {
    let model = match args.check() {
        Ok(model) => model,
        Err(refusal) => {
            eprintln!("error: {refusal}");
            return Verdict::Usage;
        }
    };
    match measure(args, model) {
        Ok(report) => {
            print(args, &report);
            report.verdict
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            Verdict::CouldNotRun
        }
    }
}

fn measure(args: &DemoArgs, model: Model) -> Result<Report> {
    let bar = progress_bar(args);
    bar.set_message("the oracle computes the answers");
    let jobs = jobs::make(args, model);
    let probes = jobs::probes(PROBES, args.seed, model);
    let mut fleet = Fleet::start(args, model, Instant::now() + args.timeout())?;
    bar.set_message("engines start");
    fleet.wait_ready()?;
    bar.set_message("requests run");
    let began = Instant::now();
    let mut chaos = args.chaos.then(|| Chaos::new(jobs.len(), args.seed));
    let tally = Router::new(&mut fleet, &jobs, args.concurrency as usize, 0)
        .with_chaos(chaos.as_mut())
        .run(&mut |ended| bar.set_position(ended as u64))?;
    let took = began.elapsed();
    bar.set_message("blocks come back");
    fleet.wait_ready()?;
    let within = if args.chaos { HEAL_WITHIN } else { SETTLE_WITHIN };
    let after = named(&fleet.settle(within)?, &fleet);
    bar.set_message("one-block loads");
    let probes = Router::new(&mut fleet, &probes, 1, FIRST_PROBE).hold_first().run(&mut |_| {})?;
    let end = named(&fleet.settle(within)?, &fleet);
    bar.finish_and_clear();
    let kills = chaos.map(Chaos::into_kills).unwrap_or_default();
    let bad_ends = fleet.stop();
    Ok(Report::new(args, Found { tally, probes, took, after, end, kills, bad_ends }))
}

fn named(snapshots: &[Snapshot], fleet: &Fleet) -> Vec<(String, Snapshot)> {
    snapshots.iter().enumerate().map(|(slot, it)| (fleet.name(slot), it.clone())).collect()
}

/// On a terminal only.
fn progress_bar(args: &DemoArgs) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(u64::from(args.requests));
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar
}

fn print(args: &DemoArgs, report: &Report) {
    if args.json {
        match serde_json::to_string_pretty(report) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("error: the report cannot be written: {error}"),
        }
        return;
    }
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    print!("{}", table::table(report, colour));
}
