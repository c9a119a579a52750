//! What became of the mutants, and what is accepted.

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Mutants by what became of them, as cargo-mutants names them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcomes {
    /// A test failed.
    pub caught: BTreeSet<String>,
    /// Tests did not end: as good as caught.
    pub timed_out: BTreeSet<String>,
    /// No test failed.
    pub missed: BTreeSet<String>,
    /// They do not build.
    pub unviable: BTreeSet<String>,
}

impl Outcomes {
    /// What one run of cargo-mutants wrote into `folder`.
    ///
    /// # Errors
    /// When it wrote nothing.
    pub fn read(folder: &Path) -> Result<Self> {
        let lines = |name: &str| -> Result<BTreeSet<String>> {
            let path = folder.join("mutants.out").join(name);
            let text =
                fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
            Ok(text.lines().map(str::to_owned).collect())
        };
        Ok(Self {
            caught: lines("caught.txt")?,
            timed_out: lines("timeout.txt")?,
            missed: lines("missed.txt")?,
            unviable: lines("unviable.txt")?,
        })
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: Self) {
        self.caught.extend(other.caught);
        self.timed_out.extend(other.timed_out);
        self.missed.extend(other.missed);
        self.unviable.extend(other.unviable);
    }

    /// Mutants that build.
    pub fn viable(&self) -> usize {
        self.caught.len() + self.timed_out.len() + self.missed.len()
    }

    /// Caught of the viable, in percent; 100 when there are none.
    pub fn score(&self) -> f64 {
        let viable = self.viable();
        let caught = viable - self.missed.len();
        if viable == 0 { 100.0 } else { 100.0 * caught as f64 / viable as f64 }
    }
}

/// Survivors that are accepted, by [`key`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Accepted(BTreeSet<String>);

impl Accepted {
    /// Reads the list: `FILE: MUTANT # REASON`, one a line; lines with a `#` first say nothing.
    ///
    /// # Errors
    /// For a line without a reason.
    pub fn read(text: &str) -> Result<Self> {
        let mut accepted = BTreeSet::new();
        let lines = text.lines().map(str::trim).filter(|it| !it.is_empty() && !it.starts_with('#'));
        for line in lines {
            let (mutant, reason) = line.split_once(" # ").unwrap_or((line, ""));
            anyhow::ensure!(!reason.trim().is_empty(), "a survivor without a reason: {line}");
            accepted.insert(mutant.trim().to_owned());
        }
        Ok(Self(accepted))
    }

    /// Those of the missed that are not in the list.
    pub fn unlisted<'a>(&self, outcomes: &'a Outcomes) -> Vec<&'a str> {
        let missed = outcomes.missed.iter().map(String::as_str);
        missed.filter(|mutant| !self.0.contains(&key(mutant))).collect()
    }
}

/// A mutant's name without line and column, which move.
fn key(mutant: &str) -> String {
    let mut parts = mutant.splitn(4, ':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(file), Some(_), Some(_), Some(what)) => format!("{file}: {}", what.trim()),
        _ => mutant.to_owned(),
    }
}

/// The verdict in words. `planned` mutants were to be tested.
pub fn render(outcomes: &Outcomes, planned: usize, unlisted: &[&str]) -> String {
    let mut text = String::new();
    for mutant in &outcomes.missed {
        let listed = if unlisted.contains(&mutant.as_str()) { "survived" } else { "accepted" };
        let _ = writeln!(text, "{listed}: {mutant}");
    }
    let tested = outcomes.viable() + outcomes.unviable.len();
    let _ = writeln!(
        text,
        "{tested} of {planned} mutants: {} caught, {} timed out, {} survived ({} of them not \
         accepted), {} do not build",
        outcomes.caught.len(),
        outcomes.timed_out.len(),
        outcomes.missed.len(),
        unlisted.len(),
        outcomes.unviable.len(),
    );
    if tested < planned {
        let _ = writeln!(
            text,
            "time was up: about one in {:.1} was tested, spread evenly over core",
            planned as f64 / tested.max(1) as f64
        );
    }
    let _ = writeln!(text, "score: {:.1} % of {} viable", outcomes.score(), outcomes.viable());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|it| (*it).to_owned()).collect()
    }

    fn some() -> Outcomes {
        Outcomes {
            caught: set(&["a.rs:1:1: replace a", "a.rs:2:1: replace b"]),
            timed_out: set(&["a.rs:3:1: replace c"]),
            missed: set(&["b.rs:4:9: replace d -> bool with true"]),
            unviable: set(&["b.rs:5:1: replace e"]),
        }
    }

    #[test]
    fn timeouts_count_as_caught_and_what_does_not_build_does_not_count() {
        assert_eq!((some().viable(), some().score()), (4, 75.0));
        assert_eq!(Outcomes::default().score(), 100.0);
        assert!(render(&some(), 50, &[]).contains("time was up"));
    }

    #[test]
    fn a_survivor_is_accepted_wherever_its_line_has_moved() {
        let accepted = Accepted::read("# why\nb.rs: replace d -> bool with true # no effect\n");
        assert_eq!(accepted.expect("a list").unlisted(&some()), Vec::<&str>::new());
        assert_eq!(Accepted::default().unlisted(&some()).len(), 1);
        assert!(Accepted::read("b.rs: replace d").is_err(), "no reason");
    }
}
