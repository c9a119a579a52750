//! What a campaign is, and one run of it.

use crate::choices::Choices;
use crate::quiet;
use std::fmt;
use std::ops::Range;
use std::panic::AssertUnwindSafe;

/// A rule that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The contract's rule (`P01`), or `panic`.
    pub rule: &'static str,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.rule, self.what)
    }
}

/// The result of a check.
pub type Check<T = ()> = Result<T, Violation>;

/// Returns a [`Violation`] of a rule unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($holds:expr, $rule:expr, $($what:tt)+) => {
        if !$holds {
            return Err($crate::Violation { rule: $rule, what: format!($($what)+) });
        }
    };
}

/// Counts a run's steps and, when asked to, keeps them in words.
#[derive(Debug, Default)]
pub struct Trace {
    /// Inputs so far.
    pub steps: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    /// One input; `words` says which.
    #[inline]
    pub fn step(&mut self, words: impl FnOnce() -> String) {
        self.steps += 1;
        if let Some(lines) = &mut self.lines {
            lines.push(words());
        }
    }

    /// Something to know that is no input.
    #[inline]
    pub fn note(&mut self, words: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(words());
        }
    }
}

/// A way to drive a part of core.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it drives, in a line.
    pub about: &'static str,
    /// How many bytes of choices a random run has.
    pub bytes: Range<usize>,
    /// Shrinking drops whole steps of so many bytes first.
    pub step_bytes: usize,
    /// One run. A step is one input of a machine, or one message or layout.
    pub run: fn(&mut Choices<'_>, &mut Trace) -> Check,
}

impl Campaign {
    /// One run; a panic is a violation like any other.
    ///
    /// # Errors
    /// The rule that did not hold.
    pub fn attempt(&self, input: &[u8], trace: &mut Trace) -> Check {
        let run = AssertUnwindSafe(|| (self.run)(&mut Choices::new(input), trace));
        quiet::catch(run).unwrap_or_else(|what| Err(Violation { rule: "panic", what }))
    }

    /// As [`Self::explain`], but only a run that fails costs words.
    #[must_use]
    pub fn explain_failure(&self, input: &[u8]) -> Option<Story> {
        let failed = self.attempt(input, &mut Trace::default()).is_err();
        if failed { self.explain(input) } else { None }
    }

    /// Runs `input` again for its words: what broke, the steps to it, and their number.
    #[must_use]
    pub fn explain(&self, input: &[u8]) -> Option<Story> {
        let (result, lines, steps) = self.in_words(input);
        Some(Story { violation: result.err()?, steps, lines })
    }

    /// Runs `input` in words: how it ended, its steps in words, and their number.
    pub fn in_words(&self, input: &[u8]) -> (Check, Vec<String>, u64) {
        let mut trace = Trace { steps: 0, lines: Some(Vec::new()) };
        let result = self.attempt(input, &mut trace);
        (result, trace.lines.unwrap_or_default(), trace.steps)
    }
}

/// A failing run in words.
#[derive(Debug, Clone)]
pub struct Story {
    /// What did not hold.
    pub violation: Violation,
    /// Inputs up to there.
    pub steps: u64,
    /// The inputs in words.
    pub lines: Vec<String>,
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.violation)?;
        for line in &self.lines {
            writeln!(f, "    {line}")?;
        }
        write!(f, "    -> {}", self.violation)
    }
}
