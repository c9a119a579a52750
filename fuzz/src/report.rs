//! What the command prints at its end.

use anyhow::Result;
use kvbaton_fuzz::Campaign;
use kvbaton_fuzz::runner::{Found, Outcome, Plan};
use serde::Serialize;
use std::fmt::Write;

/// Steps per second, short.
pub fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate >= 1e6 => format!("{:.2} M steps/s", rate / 1e6),
        rate => format!("{:.0} k steps/s", rate / 1e3),
    }
}

/// A violation: the shrunk steps in words, and how to see them again.
pub fn found(campaign: &Campaign, found: &Found) -> String {
    let (cases, steps) = found.after;
    let how = if cases == 0 {
        "a kept input".to_owned()
    } else {
        let (before, after) = found.bytes;
        format!("after {cases} cases and {steps} steps, shrunk from {before} to {after} bytes")
    };
    format!(
        "{}: a rule is broken ({how})\n{}\nreplay: cargo xtask fuzz replay {}\n",
        campaign.name,
        found.story,
        found.path.display()
    )
}

/// The summary.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "{:<16} {:>10} {:>12} {:>16} {:>10} {:>7}\n",
        "campaign", "cases", "steps", "rate", "violations", "corpus"
    );
    for it in outcomes {
        let _ = writeln!(
            text,
            "{:<16} {:>10} {:>12} {:>16} {:>10} {:>7}",
            it.campaign,
            it.cases,
            it.steps,
            rate(it.rate()),
            it.found.len(),
            it.corpus
        );
    }
    text
}

#[derive(Serialize)]
struct Summary<'a> {
    seed: u64,
    jobs: usize,
    seconds: f64,
    campaigns: Vec<Line<'a>>,
}

#[derive(Serialize)]
struct Line<'a> {
    campaign: &'a str,
    cases: u64,
    steps: u64,
    steps_per_second: f64,
    corpus: usize,
    violations: Vec<Violation<'a>>,
}

#[derive(Serialize)]
struct Violation<'a> {
    rule: &'a str,
    what: &'a str,
    steps: &'a [String],
    file: String,
    after_cases: u64,
    after_steps: u64,
}

impl<'a> Line<'a> {
    fn of(outcome: &'a Outcome) -> Self {
        Self {
            campaign: outcome.campaign,
            cases: outcome.cases,
            steps: outcome.steps,
            steps_per_second: outcome.rate().round(),
            corpus: outcome.corpus,
            violations: outcome.found.iter().map(Violation::of).collect(),
        }
    }
}

impl<'a> Violation<'a> {
    fn of(found: &'a Found) -> Self {
        let story = &found.story;
        Self {
            rule: story.violation.rule,
            what: &story.violation.what,
            steps: &story.lines,
            file: found.path.display().to_string(),
            after_cases: found.after.0,
            after_steps: found.after.1,
        }
    }
}

/// The summary for machines.
///
/// # Errors
/// Never with these fields.
pub fn json(plan: &Plan<'_>, outcomes: &[Outcome]) -> Result<String> {
    let summary = Summary {
        seed: plan.seed,
        jobs: plan.jobs,
        seconds: plan.time.as_secs_f64(),
        campaigns: outcomes.iter().map(Line::of).collect(),
    };
    Ok(serde_json::to_string_pretty(&summary)?)
}
