//! `alarm`: does the simulation find planted bugs?

use crate::args::{AlarmArgs, jobs};
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use kvbaton_transport_sim::campaign::alarm::{Found, Options, Table, alarm};
use kvbaton_transport_sim::campaign::report::commit;
use kvbaton_transport_sim::campaign::{Bug, Suite};
use serde_json::json;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Seeds between the starts of two searches.
const APART: u64 = 100_000;
/// Between two lines where there is no terminal.
const EVERY: Duration = Duration::from_secs(10);

fn bugs(suite: &Suite, names: &[String]) -> Result<Vec<Bug>> {
    if names.is_empty() {
        return Ok(suite.bugs.to_vec());
    }
    let find = |name: &String| {
        suite.bugs.iter().find(|it| it.name == name).copied().with_context(|| {
            let names: Vec<_> = suite.bugs.iter().map(|it| it.name).collect();
            format!("there is no planted bug `{name}`; there are {}", names.join(", "))
        })
    };
    names.iter().map(find).collect()
}

/// Searches for planted bugs; true when every search found its bug.
///
/// # Errors
/// When a bug is unknown, or this build has none.
pub fn run(suite: &Suite, args: &AlarmArgs) -> Result<bool> {
    if !cfg!(feature = "planted-bugs") {
        bail!("this build has no planted bugs; use `cargo xtask alarm`");
    }
    let bugs = bugs(suite, &args.bug)?;
    let options = Options {
        jobs: jobs(args.jobs),
        limit: args.limit,
        starts: (0..args.starts.max(1) as u64).map(|it| 1 + it * APART).collect(),
    };
    let (begin, total) = (Instant::now(), (bugs.len() * options.starts.len()) as u64);
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} searches [{elapsed}]");
    let bar =
        ProgressBar::new(total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let said = Mutex::new(Instant::now());
    let found = alarm(suite, &bugs, &options, &|over| {
        bar.set_position(over as u64);
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        if bar.is_hidden() && said.elapsed() >= EVERY {
            *said = Instant::now();
            eprintln!("{over}/{total} searches");
        }
    });
    bar.finish_and_clear();
    let all = found.iter().all(Found::is_found);
    if args.json {
        let seconds = begin.elapsed().as_secs_f64();
        let json = json!({
            "commit": commit(),
            "limit": args.limit,
            "seconds": seconds,
            "all_found": all,
            "bugs": found,
        });
        println!("{}", serde_json::to_string_pretty(&json).context("no JSON")?);
        return Ok(all);
    }
    print!("{}", Table(&found));
    let count = found.iter().filter(|it| it.is_found()).count();
    println!(
        "{count} of {} bugs found by all of {} searches, within {} seeds each, in {:.0} s",
        found.len(),
        options.starts.len(),
        args.limit,
        begin.elapsed().as_secs_f64()
    );
    Ok(all)
}
