//! What is said of a failure.

use super::origin::Origin;
use super::shrink::{Shrunk, Size};
use super::words;
use crate::history::Event;
use crate::oracles::Violation;
use crate::plan::Plan;
use serde::Serialize;
use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

const EVENTS: usize = 25;
const LINES: usize = 20;

/// The sources that a campaign was built from.
#[must_use]
pub fn commit() -> String {
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null()).stderr(Stdio::null());
        let output = git.args(arguments).output().ok().filter(|it| it.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "HEAD"]) else { return "unknown".into() };
    let clean = git(&["status", "--porcelain"]).is_some_and(|it| it.is_empty());
    if clean { commit } else { format!("{commit} dirty") }
}

/// Everything about a failure that a person or a machine needs to go on.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where the plan comes from.
    pub origin: Origin,
    /// Seed of what was drawn while it ran.
    pub seed: Option<u64>,
    /// The sources.
    pub commit: String,
    /// What objected.
    pub oracle: String,
    /// The rules it judges by.
    pub rules: Vec<String>,
    /// Its words.
    pub text: String,
    /// The engines.
    pub fleet: String,
    /// What is left to chance, as far as it is not the usual.
    pub odds: Vec<String>,
    /// Bounds that are not the usual.
    pub bounds: Vec<String>,
    /// Armed sites.
    pub sites: Vec<String>,
    /// Runs it again.
    pub replay: String,
    /// The cut-down plan.
    pub shrunk: Option<ShrunkReport>,
    /// The last events before the violation.
    pub events: Vec<String>,
    /// The page that shows them all.
    pub page: Option<String>,
    /// The line for the ledger.
    pub ledger: String,
}

/// What is said of a cut-down plan.
#[derive(Debug, Clone, Serialize)]
pub struct ShrunkReport {
    /// Size before.
    pub before: Size,
    /// Size after.
    pub after: Size,
    /// Runs it took.
    pub runs: u32,
    /// Whether more might have gone.
    pub cut_short: bool,
    /// Its engines.
    pub fleet: String,
    /// What it leaves to chance.
    pub odds: Vec<String>,
    /// Its sites.
    pub sites: Vec<String>,
    /// Its requests and faults.
    pub schedule: Vec<String>,
    /// Runs it again.
    pub replay: Option<String>,
}

/// Files that belong to a failure.
#[derive(Debug, Clone, Copy, Default)]
pub struct Files<'a> {
    /// The plan, cut down if it could be.
    pub plan: Option<&'a Path>,
    /// The page.
    pub page: Option<&'a Path>,
}

/// The command that runs a case again.
#[must_use]
pub fn replay(origin: &Origin) -> String {
    match origin {
        Origin::Seed { scenario, seed } => {
            format!("cargo xtask sim replay --scenario {scenario} --seed {seed} --log")
        }
        Origin::File(path) => {
            format!("cargo xtask sim replay --plan transport-sim/{path} --log")
        }
    }
}

impl Report {
    /// Of a failing plan, its run's events, and what became of it.
    #[must_use]
    pub fn new(
        origin: &Origin,
        plan: Option<&Plan>,
        violation: &Violation,
        events: &[Event],
        shrunk: Option<&Shrunk>,
        files: Files<'_>,
    ) -> Self {
        let path = |it: Option<&Path>| it.map(|it| it.display().to_string());
        let end = events.len().min(violation.event.saturating_add(1));
        let last = &events[end.saturating_sub(EVENTS)..end];
        let oracle = violation.oracle;
        let about = violation.text.lines().next().unwrap_or_default();
        Self {
            origin: origin.clone(),
            seed: plan.map(|it| it.seed),
            commit: commit(),
            oracle: oracle.to_owned(),
            rules: violation.rules.iter().map(|it| (*it).to_owned()).collect(),
            text: violation.text.clone(),
            fleet: plan.map(|it| words::fleet(&it.fleet)).unwrap_or_default(),
            odds: plan.map(|it| words::differences(&it.odds)).unwrap_or_default(),
            bounds: plan.map(|it| words::differences(&it.bounds)).unwrap_or_default(),
            sites: plan.map(|it| it.sites.iter().cloned().collect()).unwrap_or_default(),
            replay: replay(origin),
            shrunk: shrunk.map(|it| ShrunkReport::new(it, path(files.plan))),
            events: last.iter().map(ToString::to_string).collect(),
            page: path(files.page),
            ledger: format!("{origin} {oracle} — {about}"),
        }
    }
}

impl ShrunkReport {
    fn new(it: &Shrunk, file: Option<String>) -> Self {
        Self {
            before: it.before,
            after: it.after,
            runs: it.runs,
            cut_short: it.cut_short,
            fleet: words::fleet(&it.plan.fleet),
            odds: words::differences(&it.plan.odds),
            sites: it.plan.sites.iter().cloned().collect(),
            schedule: words::schedule(&it.plan),
            replay: file.map(|it| format!("cargo xtask sim replay --plan {it} --log")),
        }
    }
}

/// A list, or a word for its absence.
fn or<'a>(items: &[String], none: &'a str) -> std::borrow::Cow<'a, str> {
    if items.is_empty() { none.into() } else { items.join(", ").into() }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = if self.rules.is_empty() {
            String::new()
        } else {
            format!(" [{}]", self.rules.join(" "))
        };
        writeln!(f, "FAILED {}: {}{rules}", self.origin, self.oracle)?;
        self.text.lines().try_for_each(|it| writeln!(f, "  {it}"))?;
        if let Some(seed) = self.seed {
            writeln!(f, "  seed      {seed}")?;
        }
        writeln!(f, "  commit    {}", self.commit)?;
        writeln!(f, "  engines   {}", self.fleet)?;
        writeln!(f, "  chance    {}", or(&self.odds, "calm"))?;
        writeln!(f, "  bounds    {}", or(&self.bounds, "the usual"))?;
        writeln!(f, "  sites     {}", or(&self.sites, "none"))?;
        writeln!(f, "  replay    {}", self.replay)?;
        if let Some(shrunk) = &self.shrunk {
            write!(f, "{shrunk}")?;
        }
        if !self.events.is_empty() {
            let of = if self.shrunk.is_some() { " of the cut-down run" } else { "" };
            writeln!(f, "the last {} events{of}:", self.events.len())?;
            self.events.iter().try_for_each(|it| writeln!(f, "{it}"))?;
        }
        if let Some(page) = &self.page {
            writeln!(f, "page: {page}")?;
        }
        writeln!(f, "for transport-sim/ledger.txt: {}", self.ledger)
    }
}

impl fmt::Display for ShrunkReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = (self.before, self.after);
        let more = if self.cut_short { ", more might go" } else { "" };
        writeln!(
            f,
            "cut down from {} to {} events, {} to {} sites, {} to {} ranks in {} runs{more}:",
            before.events(),
            after.events(),
            before.sites,
            after.sites,
            before.ranks,
            after.ranks,
            self.runs
        )?;
        writeln!(f, "  engines   {}", self.fleet)?;
        writeln!(f, "  chance    {}", or(&self.odds, "calm"))?;
        writeln!(f, "  sites     {}", or(&self.sites, "none"))?;
        if let Some(replay) = &self.replay {
            writeln!(f, "  replay    {replay}")?;
        }
        self.schedule.iter().take(LINES).try_for_each(|it| writeln!(f, "  {it}"))?;
        match self.schedule.len().saturating_sub(LINES) {
            0 => Ok(()),
            more => writeln!(f, "  … and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::fake;
    use crate::campaign::shrink::{Limits, shrink};
    use crate::world::RunOptions;

    #[test]
    fn a_report_says_what_failed_and_how_to_see_it_again() {
        let options = RunOptions::default();
        let fails = |it: &u64| fake::run(&fake::plan(*it), &options).violation.is_some();
        let seed = (0..).find(fails).expect("a failing seed");
        let plan = fake::plan(seed);
        let outcome = fake::run(&plan, &options);
        let violation = outcome.violation.clone().expect("a violation");
        let shrunk =
            shrink(&plan, "bytes", &fake::run, &options, Limits::default(), &mut |_, _| {});
        let origin = Origin::Seed { scenario: "mixed".into(), seed };
        let files = Files { plan: Some(Path::new("out/plan.json")), page: None };
        let report =
            Report::new(&origin, Some(&plan), &violation, &outcome.events, shrunk.as_ref(), files);
        let text = report.to_string();
        for part in [
            &format!("FAILED mixed {seed}: bytes [L04 A07]"),
            &format!("cargo xtask sim replay --scenario mixed --seed {seed} --log"),
            "cut down from 16 to 2 events",
            "--plan out/plan.json",
            "loss 40",
            "the last 25 events of the cut-down run:",
            "kill e0, start it again",
        ] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        let json = serde_json::to_value(&report).expect("JSON");
        assert_eq!(json["origin"]["seed"]["seed"], seed);
        let entries = crate::campaign::ledger::parse(&report.ledger).expect("a line");
        assert_eq!(entries[0].origin, origin);
    }
}
