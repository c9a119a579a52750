//! `replay`: one run again.

use crate::args::ReplayArgs;
use crate::sweep::scenario;
use crate::{failure, open};
use anyhow::{Context, Result, bail};
use kvbaton_transport_sim::campaign::{Case, Origin, Suite, ledger, run_alone, words};
use kvbaton_transport_sim::plan::Plan;
use kvbaton_transport_sim::world::{Outcome, RunOptions};
use serde_json::json;

const SHRINK_RUNS: u32 = 400;

fn case(suite: &Suite, args: &ReplayArgs) -> Result<Case> {
    if let Some(path) = &args.plan {
        let plan = ledger::read_plan(path)?;
        return Ok(Case::Plan(path.display().to_string(), Box::new(plan)));
    }
    let it = match &args.scenario {
        Some(name) => scenario(suite, name)?,
        None => suite.scenarios.first().context("there is no scenario")?,
    };
    Ok(Case::Seed(*it, args.seed.context("which seed?")?))
}

/// Runs a plan; true when nothing failed.
///
/// # Errors
/// When it is unknown or cannot be read, or a file cannot be written.
pub fn run(suite: &Suite, args: &ReplayArgs) -> Result<bool> {
    let case = case(suite, args)?;
    let options = RunOptions { plant: args.plant.clone() };
    if let Some(bug) = &options.plant
        && !suite.bugs.iter().any(|it| it.name == *bug)
    {
        let names: Vec<_> = suite.bugs.iter().map(|it| it.name).collect();
        bail!("there is no planted bug `{bug}`; there are {}", names.join(", "));
    }
    let origin = case.origin();
    let (plan, mut outcome) = run_alone(suite.run, || case.plan(), &options);
    let plan = plan.context("making the plan panicked")?;
    let mut plan = plan;
    if args.shrink
        && let Some(violation) = &outcome.violation
        && let Some(it) = failure::cut(suite, &plan, violation.oracle, &options, SHRINK_RUNS)
    {
        (plan, outcome) = (it.plan, it.outcome);
    }
    if let Some(path) = &args.save {
        let json = serde_json::to_string_pretty(&plan).context("no JSON")?;
        std::fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        print_json(&origin, &plan, &outcome, args.log)?;
    } else {
        print(&origin, &plan, &outcome, args.log);
    }
    if args.open {
        let folder = failure::folder(args.out.as_deref());
        let page = failure::draw(&folder, &origin, &plan, &outcome, &[])?;
        eprintln!("page: {}", page.display());
        open::show(&page.display().to_string());
    }
    Ok(outcome.violation.is_none())
}

fn print(origin: &Origin, plan: &Plan, outcome: &Outcome, log: bool) {
    if log {
        outcome.events.iter().for_each(|it| println!("{it}"));
    }
    println!("{origin}: {}", words::fleet(&plan.fleet));
    words::schedule(plan).iter().for_each(|it| println!("{it}"));
    println!(
        "hash {:016x}, {} events, {:.3} virtual s",
        outcome.hash,
        outcome.events.len(),
        outcome.virtual_ns as f64 / 1e9
    );
    match &outcome.violation {
        None => println!("no oracle objects"),
        Some(it) => {
            let rules = it.rules.join(" ");
            println!("FAILED: {} [{rules}] at event {}: {}", it.oracle, it.event, it.text);
        }
    }
}

fn print_json(origin: &Origin, plan: &Plan, outcome: &Outcome, log: bool) -> Result<()> {
    let violation = outcome.violation.as_ref().map(
        |it| json!({ "oracle": it.oracle, "rules": it.rules, "text": it.text, "event": it.event }),
    );
    let log = log.then(|| outcome.events.iter().map(ToString::to_string).collect::<Vec<_>>());
    let json = json!({
        "origin": origin,
        "hash": format!("{:016x}", outcome.hash),
        "events": outcome.events.len(),
        "virtual_ns": outcome.virtual_ns,
        "violation": violation,
        "plan": plan,
        "log": log,
    });
    println!("{}", serde_json::to_string_pretty(&json).context("no JSON")?);
    Ok(())
}
