//! Counting tests in what `cargo test` prints.

/// Tests of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that are marked as ignored and did not run.
    pub ignored: u64,
}

impl Tally {
    /// Sums the `test result:` lines of a run.
    pub fn of(output: &str) -> Self {
        let mut sum = Self::default();
        for line in output.lines() {
            let Some(counts) = line.trim_start().strip_prefix("test result: ") else { continue };
            for count in counts.split([';', '.']) {
                let mut words = count.split_whitespace();
                let (Some(number), Some(what)) = (words.next(), words.next()) else { continue };
                let Ok(number) = number.parse::<u64>() else { continue };
                match what {
                    "passed" => sum.passed += number,
                    "failed" => sum.failed += number,
                    "ignored" => sum.ignored += number,
                    _ => {}
                }
            }
        }
        sum
    }

    /// The last line of a pytest run: `3 passed, 1 failed, 1 skipped in 0.12s`. An error
    /// outside of a test counts as one that failed.
    pub fn of_pytest(output: &str) -> Self {
        let mut found = Self::default();
        let summary =
            output.lines().rev().find(|line| line.contains(" in ") && line.ends_with('s'));
        let counts = summary.unwrap_or_default().split([',', '=']);
        for count in counts {
            let mut words = count.split_whitespace();
            let (Some(number), Some(what)) = (words.next(), words.next()) else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what {
                "passed" => found.passed += number,
                "failed" | "error" | "errors" => found.failed += number,
                "skipped" => found.ignored += number,
                _ => {}
            }
        }
        found
    }

    /// The sum of two.
    pub const fn plus(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            ignored: self.ignored + other.ignored,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_line_counts() {
        let output = "\
running 2 tests
test a ... ok
test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.12s

     Running tests/b.rs
test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 4.00s
";
        assert_eq!(Tally::of(output), Tally { passed: 15, failed: 2, ignored: 1 });
    }

    #[test]
    fn pytest_counts_in_its_last_line() {
        let output = "....F\n1 failed, 39 passed, 2 skipped, 1 warning, 1 error in 13.09s\n";
        assert_eq!(Tally::of_pytest(output), Tally { passed: 39, failed: 2, ignored: 2 });
        assert_eq!(Tally::of_pytest("no such file"), Tally::default());
    }

    #[test]
    fn other_lines_do_not_count() {
        let output = "3 passed; 2 failed\nerror: test result unknown\n";
        assert_eq!(Tally::of(output), Tally::default());
    }
}
