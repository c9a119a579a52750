//! Cuts a failing plan down to what it needs to fail.
//!
//! Only plans to which the same oracle still objects are kept. Without a time limit the
//! result is a function of the plan.

mod events;
mod steps;

use super::case::run_alone;
use super::suite::Run;
use crate::plan::Plan;
use crate::world::{Outcome, RunOptions};
use serde::Serialize;
use std::time::{Duration, Instant};

/// How much to spend.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most runs.
    pub runs: u32,
    /// Longest time.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { runs: 400, time: Duration::from_secs(120) }
    }
}

/// How large a plan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Size {
    /// Client requests.
    pub requests: usize,
    /// Faults and operations.
    pub happenings: usize,
    /// Armed sites.
    pub sites: usize,
    /// Ranks of all engines.
    pub ranks: usize,
}

impl Size {
    /// Of a plan.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let ranks = plan.fleet.engines.iter().map(|it| it.ranks() as usize).sum();
        Self {
            requests: plan.requests.len(),
            happenings: plan.happenings.len(),
            sites: plan.sites.len(),
            ranks,
        }
    }

    /// Requests, faults and operations.
    #[must_use]
    pub const fn events(self) -> usize {
        self.requests + self.happenings
    }
}

/// A plan, cut down.
#[derive(Debug, Clone)]
pub struct Shrunk {
    /// The smallest plan found.
    pub plan: Plan,
    /// Its run.
    pub outcome: Outcome,
    /// Runs it took.
    pub runs: u32,
    /// Size before.
    pub before: Size,
    /// Size after.
    pub after: Size,
    /// Whether runs or time ended before nothing more could be taken away.
    pub cut_short: bool,
}

/// Cuts `plan` down. `None` when its run does not fail as `oracle` says: it is no function
/// of the plan then.
pub fn shrink(
    plan: &Plan,
    oracle: &str,
    run: &Run,
    options: &RunOptions,
    limits: Limits,
    progress: &mut dyn FnMut(u32, Size),
) -> Option<Shrunk> {
    let outcome = run_alone(run, || plan.clone(), options).1;
    let mut search = Search {
        run,
        options,
        oracle,
        limits,
        begin: Instant::now(),
        runs: 1,
        cut_short: false,
        plan: plan.clone(),
        outcome,
        progress,
    };
    if !search.fails(&search.outcome) {
        return None;
    }
    loop {
        let before = search.plan.clone();
        steps::large(&mut search);
        events::fewer(&mut search);
        steps::simpler(&mut search);
        if search.plan == before || search.is_over() {
            break;
        }
    }
    let (before, after) = (Size::of(plan), Size::of(&search.plan));
    let Search { plan, outcome, runs, cut_short, .. } = search;
    Some(Shrunk { plan, outcome, runs, before, after, cut_short })
}

/// The smallest plan so far, and what is left to spend.
struct Search<'a> {
    run: &'a Run,
    options: &'a RunOptions,
    oracle: &'a str,
    limits: Limits,
    begin: Instant,
    runs: u32,
    cut_short: bool,
    plan: Plan,
    outcome: Outcome,
    progress: &'a mut dyn FnMut(u32, Size),
}

impl Search<'_> {
    fn fails(&self, outcome: &Outcome) -> bool {
        outcome.violation.as_ref().is_some_and(|it| it.oracle == self.oracle)
    }

    fn is_over(&mut self) -> bool {
        let over = self.runs >= self.limits.runs || self.begin.elapsed() >= self.limits.time;
        self.cut_short |= over;
        over
    }

    /// Takes the smaller plan if it still fails.
    fn attempt(&mut self, plan: Plan) -> bool {
        if plan == self.plan || self.is_over() {
            return false;
        }
        self.runs += 1;
        let outcome = run_alone(self.run, || plan.clone(), self.options).1;
        let fails = self.fails(&outcome);
        if fails {
            (self.plan, self.outcome) = (plan, outcome);
        }
        (self.progress)(self.runs, Size::of(&self.plan));
        fails
    }

    /// Changes a copy of the plan, and takes it if it still fails.
    fn change(&mut self, change: impl FnOnce(&mut Plan)) -> bool {
        let mut plan = self.plan.clone();
        change(&mut plan);
        self.attempt(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::fake;
    use crate::plan::Happening;

    fn failing() -> Plan {
        let fails =
            |seed: &u64| fake::run(&fake::plan(*seed), &RunOptions::default()).violation.is_some();
        fake::plan((0..).find(fails).expect("a failing seed"))
    }

    fn cut(plan: &Plan, oracle: &str, limits: Limits) -> Option<Shrunk> {
        shrink(plan, oracle, &fake::run, &RunOptions::default(), limits, &mut |_, _| {})
    }

    #[test]
    fn what_the_failure_needs_is_left_and_nothing_else() {
        let plan = failing();
        let shrunk = cut(&plan, "bytes", Limits::default()).expect("it fails");
        let left = &shrunk.plan;
        assert_eq!(shrunk.before.events(), 16);
        assert_eq!(shrunk.after, Size { requests: 1, happenings: 1, sites: 0, ranks: 2 });
        assert_eq!(left.requests[0].family, 7);
        assert!(matches!(left.happenings[0].what, Happening::Kill { engine: 0, .. }));
        assert!(left.odds.is_calm());
        assert_eq!((left.requests[0].prompt_len, left.requests[0].max_tokens), (1, 1));
        assert!(shrunk.outcome.violation.is_some());
        assert!(!shrunk.cut_short, "{} runs", shrunk.runs);
        let again = cut(&plan, "bytes", Limits::default()).expect("it fails");
        assert_eq!((again.plan, again.runs), (shrunk.plan, shrunk.runs));
    }

    #[test]
    fn another_oracle_is_another_failure() {
        assert!(cut(&failing(), "tables", Limits::default()).is_none());
        let calm = Plan { happenings: Vec::new(), ..failing() };
        assert!(cut(&calm, "bytes", Limits::default()).is_none());
    }

    #[test]
    fn the_number_of_runs_is_bounded() {
        let limits = Limits { runs: 5, ..Limits::default() };
        let shrunk = cut(&failing(), "bytes", limits).expect("it fails");
        assert!(shrunk.cut_short);
        assert_eq!(shrunk.runs, 5);
    }
}
