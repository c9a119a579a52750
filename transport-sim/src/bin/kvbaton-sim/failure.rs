//! What is made of a failure: a smaller plan, a page, a report.

use crate::args::RunArgs;
use anyhow::{Context, Result};
use kvbaton_transport_sim::campaign::page::page;
use kvbaton_transport_sim::campaign::report::{Files, Report, replay};
use kvbaton_transport_sim::campaign::shrink::{Limits, Shrunk, Size, shrink};
use kvbaton_transport_sim::campaign::sweep::Failed;
use kvbaton_transport_sim::campaign::{Origin, Suite, run_alone};
use kvbaton_transport_sim::plan::Plan;
use kvbaton_transport_sim::world::{Outcome, RunOptions};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Where plans and pages go.
pub fn folder(asked: Option<&Path>) -> PathBuf {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/sim/failures");
    asked.map_or_else(usual, Path::to_path_buf)
}

/// Cuts a failing plan down; says so on a terminal, for it can take a while.
pub fn cut(
    suite: &Suite,
    plan: &Plan,
    oracle: &str,
    run: &RunOptions,
    runs: u32,
) -> Option<Shrunk> {
    let terminal = std::io::stderr().is_terminal();
    let mut progress = |runs: u32, size: Size| {
        if terminal {
            eprint!("\rcutting it down: {runs} runs, {} events left  ", size.events());
        }
    };
    let limits = Limits { runs, ..Limits::default() };
    let shrunk = shrink(plan, oracle, suite.run, run, limits, &mut progress);
    if terminal {
        eprintln!();
    }
    shrunk
}

/// Writes a file into a folder that may not be there yet.
///
/// # Errors
/// When it cannot be written.
pub fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    let path = folder.join(name);
    let here = std::env::current_dir().ok();
    let path =
        here.and_then(|it| path.strip_prefix(it).ok().map(Path::to_path_buf)).unwrap_or(path);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Draws the page of a run.
///
/// # Errors
/// When it cannot be written.
pub fn draw(
    folder: &Path,
    origin: &Origin,
    plan: &Plan,
    outcome: &Outcome,
    notes: &[String],
) -> Result<PathBuf> {
    let html = page(plan, outcome, &format!("kvbaton simulation: {origin}"), notes);
    write(folder, &format!("{}.html", origin.file_stem()), &html)
}

/// Says what a failure was; the first of an oracle is also cut down and drawn.
///
/// # Errors
/// When files cannot be written.
pub fn report(suite: &Suite, failed: &Failed, args: &RunArgs, is_first: bool) -> Result<Report> {
    let (origin, violation) = (&failed.origin, &failed.violation);
    let plan = match &failed.plan {
        Some(plan) if is_first => plan,
        plan => {
            let plan = plan.as_deref();
            return Ok(Report::new(origin, plan, violation, &[], None, Files::default()));
        }
    };
    let options = RunOptions::default();
    let shrunk = if args.no_shrink {
        None
    } else {
        cut(suite, plan, violation.oracle, &options, args.shrink_runs)
    };
    let whole = if shrunk.is_some() {
        None
    } else {
        Some(run_alone(suite.run, || (**plan).clone(), &options).1)
    };
    if !args.no_shrink && shrunk.is_none() {
        eprintln!("{origin} did not fail again: its run is no function of its plan");
    }
    let (small, outcome) = match (&shrunk, &whole) {
        (Some(it), _) => (&it.plan, &it.outcome),
        (None, Some(outcome)) => (&**plan, outcome),
        (None, None) => unreachable!("one of them is there"),
    };
    let folder = folder(args.out.as_deref());
    let json = serde_json::to_string_pretty(small).context("no JSON")?;
    let file = write(&folder, &format!("{}.json", origin.file_stem()), &json)?;
    let mut notes = vec![format!("the whole plan: {}", replay(origin))];
    if let Some(it) = &shrunk {
        let (before, after) = (it.before.events(), it.after.events());
        notes.insert(0, format!("cut down from {before} to {after} events in {} runs", it.runs));
    }
    let page = draw(&folder, origin, small, outcome, &notes)?;
    let files = Files { plan: Some(&file), page: Some(&page) };
    Ok(Report::new(origin, Some(plan), violation, &outcome.events, shrunk.as_ref(), files))
}
