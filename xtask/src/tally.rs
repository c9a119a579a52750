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
    fn other_lines_do_not_count() {
        let output = "3 passed; 2 failed\nerror: test result unknown\n";
        assert_eq!(Tally::of(output), Tally::default());
    }
}
