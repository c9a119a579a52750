//! Seeds and plans that failed once. They run before everything else.
//!
//! One a line: `scenario seed oracle — what it was`, or, because scenarios change over time,
//! `file.json oracle — what it was` with the plan in a file beside the ledger, in the folder
//! `ledger`. Lines that begin with `#` are comments.

use super::origin::{Case, Origin};
use super::suite::Suite;
use crate::plan::Plan;
use anyhow::{Context, Result, bail};
use std::path::Path;

/// One line of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The plan.
    pub origin: Origin,
    /// The oracle that objected.
    pub oracle: String,
    /// What it was.
    pub about: String,
}

/// The entry as a line.
#[must_use]
pub fn line(entry: &Entry) -> String {
    format!("{} {} — {}", entry.origin, entry.oracle, entry.about)
}

/// Reads a ledger's text.
///
/// # Errors
/// When a line is none; with its number.
pub fn parse(text: &str) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let entry = entry(line).with_context(|| format!("line {} of the ledger", number + 1))?;
        entries.push(entry);
    }
    Ok(entries)
}

fn entry(line: &str) -> Result<Entry> {
    let (names, about) = line
        .split_once(" — ")
        .context("a line is `scenario seed oracle — what`, or `file.json oracle — what`")?;
    let names: Vec<_> = names.split_whitespace().collect();
    let (origin, oracle) = match names[..] {
        [file, oracle] if file.ends_with(".json") => (Origin::File(file.to_owned()), oracle),
        [scenario, seed, oracle] => {
            let seed = seed.parse().with_context(|| format!("`{seed}` is no seed"))?;
            (Origin::Seed { scenario: scenario.to_owned(), seed }, oracle)
        }
        _ => {
            bail!("before the dash stand a scenario, a seed and an oracle, or a file and an oracle")
        }
    };
    Ok(Entry { origin, oracle: oracle.to_owned(), about: about.trim().to_owned() })
}

/// The plans of the ledger at `path`; none when there is no such file.
///
/// # Errors
/// When it, or a plan that it names, cannot be read; when it names no scenario of the suite.
pub fn cases(path: &Path, suite: &Suite) -> Result<Vec<Case>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the ledger {}", path.display()))?;
    let folder = path.with_file_name("ledger");
    parse(&text)?.into_iter().map(|entry| case(entry, suite, &folder)).collect()
}

fn case(entry: Entry, suite: &Suite, folder: &Path) -> Result<Case> {
    Ok(match entry.origin {
        Origin::Seed { scenario, seed } => {
            let scenario = suite
                .scenario(&scenario)
                .with_context(|| format!("the ledger names no known scenario: {scenario}"))?;
            Case::Seed(*scenario, seed)
        }
        Origin::File(file) => {
            let plan = read_plan(&folder.join(&file))?;
            Case::Plan(format!("ledger/{file}"), Box::new(plan))
        }
    })
}

/// Reads a plan from a file.
///
/// # Errors
/// When it cannot be read, or holds no plan.
pub fn read_plan(path: &Path) -> Result<Plan> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the plan {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} holds no plan", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::fake;

    #[test]
    fn lines_are_read_as_they_are_written() {
        let text = "# seeds\n\nmixed 17 bytes — freed while written\nold.json revoked — a — b\n";
        let entries = parse(text).expect("a ledger");
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].origin, Origin::Seed { scenario: "mixed".into(), seed: 17 });
        assert_eq!(entries[1].about, "a — b");
        let again: Vec<_> = entries.iter().map(line).collect();
        assert_eq!(parse(&again.join("\n")).expect("a ledger"), entries);
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        for bad in ["mixed 17 bytes", "mixed x bytes — y", "mixed — y"] {
            let error = parse(&format!("\n{bad}")).expect_err(bad);
            assert!(error.to_string().contains("line 2"), "{error}");
        }
    }

    #[test]
    fn plans_are_read_from_files_beside_the_ledger() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.txt");
        assert!(cases(&path, &fake::suite()).expect("none").is_empty());
        std::fs::create_dir(folder.path().join("ledger")).expect("a folder");
        let plan = fake::plan(5);
        let json = serde_json::to_string(&plan).expect("JSON");
        std::fs::write(folder.path().join("ledger/old.json"), json).expect("a file");
        std::fs::write(&path, "mixed 17 bytes — x\nold.json bytes — y\n").expect("a file");
        let cases = cases(&path, &fake::suite()).expect("cases");
        assert_eq!(cases[0].plan(), fake::plan(17));
        assert_eq!(cases[1].plan(), plan);
        std::fs::write(&path, "gone 1 bytes — x\n").expect("a file");
        assert!(super::cases(&path, &fake::suite()).is_err());
    }
}
