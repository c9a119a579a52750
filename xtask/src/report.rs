//! What `cargo xtask test` says at its end.

use crate::tally::Tally;
use std::fmt::Write;
use std::time::Duration;

/// How one step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A check passed.
    Passed,
    /// A check failed.
    Failed,
    /// Tests ran; `whole` is false when the run itself failed beside them (it did not
    /// build, or a test process died), which counts as one more failure.
    Tests {
        /// Their counts.
        tally: Tally,
        /// Whether the run ended as it should.
        whole: bool,
    },
    /// It could not run.
    NotRun(String),
}

impl Outcome {
    /// Outcome of a test run: what it printed, and whether it exited with 0.
    pub fn of_tests(output: &str, success: bool) -> Self {
        let tally = Tally::of(output);
        Self::Tests { tally, whole: success || tally.failed > 0 }
    }

    /// The same of pytest.
    pub fn of_pytest(output: &str, success: bool) -> Self {
        let tally = Tally::of_pytest(output);
        Self::Tests { tally, whole: success || tally.failed > 0 }
    }

    /// (passed, failed), each test as one, each other step as one.
    pub fn counts(&self) -> (u64, u64) {
        match self {
            Self::Passed => (1, 0),
            Self::Failed => (0, 1),
            Self::Tests { tally, whole } => (tally.passed, tally.failed + u64::from(!whole)),
            Self::NotRun(_) => (0, 0),
        }
    }

    /// Two parts of one step; a part without tests counts when it failed.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (
                Self::Tests { tally: one, whole: first },
                Self::Tests { tally: two, whole: second },
            ) => Self::Tests { tally: one.plus(two), whole: first && second },
            (one, other) if other.failed() && !one.failed() => other,
            (one, _) => one,
        }
    }

    /// Whether anything failed.
    pub fn failed(&self) -> bool {
        self.counts().1 > 0
    }

    fn words(&self) -> String {
        match self {
            Self::Passed => "passed".into(),
            Self::Failed => "FAILED".into(),
            Self::NotRun(_) => "not run".into(),
            Self::Tests { tally, whole } => {
                let mut words = format!("{} passed", tally.passed);
                if tally.failed > 0 {
                    let _ = write!(words, ", {} FAILED", tally.failed);
                }
                if tally.ignored > 0 {
                    let _ = write!(words, ", {} ignored", tally.ignored);
                }
                if !whole {
                    words.push_str(", the run FAILED");
                }
                words
            }
        }
    }
}

/// One finished step.
pub struct Line {
    /// The step's name.
    pub step: &'static str,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

/// The table, what did not run, and the last line.
pub fn render(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines {
        let seconds = line.took.as_secs_f64();
        let _ = writeln!(text, "{:<12} {:>7.1} s  {}", line.step, seconds, line.outcome.words());
    }
    for line in lines {
        if let Outcome::NotRun(reason) = &line.outcome {
            let _ = writeln!(text, "not run: {}: {reason}", line.step);
        }
    }
    let sum = |pick: fn((u64, u64)) -> u64| -> u64 {
        lines.iter().map(|line| pick(line.outcome.counts())).sum()
    };
    let _ = writeln!(text, "{} passed, {} failed", sum(|it| it.0), sum(|it| it.1));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: &'static str, outcome: Outcome) -> Line {
        Line { step, outcome, took: Duration::from_millis(1500) }
    }

    #[test]
    fn a_step_that_did_not_run_is_not_counted_and_comes_just_before_the_last_line() {
        let tests = Outcome::of_tests("test result: ok. 4 passed; 0 failed; 0 ignored", true);
        let text = render(&[
            line("purity", Outcome::NotRun("no target".into())),
            line("format", Outcome::Passed),
            line("tests", tests),
        ]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[lines.len() - 2..], ["not run: purity: no target", "5 passed, 0 failed"]);
    }

    #[test]
    fn the_parts_of_a_step_add_up_and_none_hides_a_failure() {
        let passed = || Outcome::of_tests("test result: ok. 4 passed; 0 failed; 1 ignored", true);
        let broken = || Outcome::of_tests("error: could not compile", false);
        assert_eq!(passed().and(passed()).counts(), (8, 0));
        assert_eq!(passed().and(broken()).counts(), (4, 1));
        assert_eq!(broken().and(passed()).counts(), (4, 1));
    }

    #[test]
    fn a_run_that_does_not_build_fails_though_no_test_did() {
        let broken = Outcome::of_tests("error: could not compile", false);
        assert_eq!(broken.counts(), (0, 1));
        let died = Outcome::of_tests("test result: ok. 9 passed; 0 failed; 0 ignored", false);
        assert_eq!(died.counts(), (9, 1));
    }

    #[test]
    fn failed_tests_are_not_counted_twice() {
        let failed = Outcome::of_tests("test result: FAILED. 3 passed; 2 failed; 0 ignored", false);
        assert_eq!(failed.counts(), (3, 2));
    }
}
