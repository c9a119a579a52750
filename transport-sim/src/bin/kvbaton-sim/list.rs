//! `list`: what there is.

use crate::args::ListArgs;
use anyhow::{Context, Result};
use kvbaton_transport_sim::campaign::Suite;
use kvbaton_transport_sim::oracles;
use serde_json::json;

/// Lists scenarios, oracles, sites and planted bugs.
///
/// # Errors
/// When there is no scenario.
pub fn run(suite: &Suite, args: &ListArgs) -> Result<bool> {
    let first = suite.scenarios.first().context("there is no scenario")?;
    let oracles = oracles::all(&(first.make)(1));
    if args.json {
        let scenarios = suite.scenarios.iter();
        let json = json!({
            "scenarios": scenarios
                .map(|it| json!({ "name": it.name, "about": it.about, "rules": it.rules }))
                .collect::<Vec<_>>(),
            "oracles": oracles
                .iter()
                .map(|it| json!({ "name": it.name(), "rules": it.rules() }))
                .collect::<Vec<_>>(),
            "sites": suite.sites,
            "bugs": suite
                .bugs
                .iter()
                .map(|it| json!({ "name": it.name, "rule": it.rule }))
                .collect::<Vec<_>>(),
        });
        println!("{}", serde_json::to_string_pretty(&json).context("no JSON")?);
        return Ok(true);
    }
    println!("scenarios (the first is the default):");
    for it in suite.scenarios {
        println!("  {:<24} {} [{}]", it.name, it.about, it.rules.join(" "));
    }
    println!("oracles:");
    oracles.iter().for_each(|it| println!("  {:<24} [{}]", it.name(), it.rules().join(" ")));
    println!("sites:");
    suite.sites.iter().for_each(|it| println!("  {it}"));
    println!("planted bugs (cargo xtask alarm):");
    suite.bugs.iter().for_each(|it| println!("  {:<32} {}", it.name, it.rule));
    Ok(true)
}
