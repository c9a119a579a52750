//! `cycles`: sleeps and wakes, again and again, under load.

use crate::args::CyclesArgs;
use anyhow::{Context, Result, ensure};
use kvbaton_transport_sim::campaign::cycles::Cycles;
use kvbaton_transport_sim::campaign::{Suite, run_alone};
use kvbaton_transport_sim::scenarios;
use kvbaton_transport_sim::world::RunOptions;
use serde_json::json;
use std::time::Instant;

/// Runs them; whether all is well.
///
/// # Errors
/// When there is nothing to run.
pub fn run(suite: &Suite, args: &CyclesArgs) -> Result<bool> {
    ensure!(args.count > 0 && args.concurrency > 0, "--count and --concurrency are above 0");
    let began = Instant::now();
    let make = || scenarios::cycles(args.seed, args.count, args.concurrency);
    let (_, outcome) = run_alone(suite.run, make, &RunOptions::default());
    let (seconds, of) = (began.elapsed().as_secs_f64(), Cycles::of(&outcome.events));
    let violation = outcome.violation.map(|it| format!("{}: {}", it.oracle, it.text));
    let well = violation.is_none() && of.is_well();
    if args.json {
        let virtual_s = outcome.virtual_ns as f64 / 1e9;
        let json = json!({
            "cycles": args.count, "concurrency": args.concurrency, "seconds": seconds,
            "virtual_seconds": virtual_s, "events": outcome.events.len(),
            "violation": violation, "found": of, "well": well,
        });
        println!("{}", serde_json::to_string_pretty(&json).context("no JSON")?);
        return Ok(well);
    }
    println!(
        "{} cycles under {} requests at once, {seconds:.1} s: {of}",
        args.count, args.concurrency
    );
    if let Some(violation) = violation {
        println!("FAILED: {violation}");
    }
    Ok(well)
}
