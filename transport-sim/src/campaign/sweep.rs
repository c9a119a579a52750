//! Runs the plans of a campaign over several threads and takes their results in order.

use super::case::run_alone;
use super::coverage::Coverage;
use super::origin::{Origin, Queue};
use super::suite::Suite;
use crate::oracles::Violation;
use crate::plan::Plan;
use crate::world::RunOptions;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::scope;
use std::time::{Duration, Instant};

/// How to run a campaign.
#[derive(Debug, Clone)]
pub struct Options {
    /// Runs at once; at least 1.
    pub jobs: usize,
    /// Stops after so many failures; at least 1.
    pub failures: usize,
    /// Starts no run after this much time.
    pub budget: Option<Duration>,
    /// How to run each plan.
    pub run: RunOptions,
}

/// One run that is over.
#[derive(Debug, Clone)]
pub struct Done {
    /// Where its plan came from.
    pub origin: Origin,
    /// Hash of its events.
    pub hash: u64,
    /// Virtual time that passed, in nanoseconds.
    pub virtual_ns: u64,
    /// What it reached.
    pub coverage: Coverage,
    /// Its plan and what an oracle found.
    pub failure: Option<(Option<Box<Plan>>, Violation)>,
}

/// A run that failed.
#[derive(Debug, Clone)]
pub struct Failed {
    /// Where its plan came from.
    pub origin: Origin,
    /// Its plan; `None` when making it panicked.
    pub plan: Option<Box<Plan>>,
    /// What an oracle found.
    pub violation: Violation,
}

/// Why a campaign ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Every plan was run.
    Complete,
    /// There were enough failures.
    Failures,
    /// The time was up.
    Time,
}

/// What a campaign came to. All but `elapsed` is the same for any number of jobs, unless
/// the time was up.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// Runs.
    pub runs: u64,
    /// Virtual time of all of them, in nanoseconds.
    pub virtual_ns: u128,
    /// Wall time.
    pub elapsed: Duration,
    /// What failed, in order.
    pub failures: Vec<Failed>,
    /// What was reached.
    pub coverage: Coverage,
    /// Why it ended.
    pub stop: Stop,
}

impl Sweep {
    /// Runs per second of wall time.
    #[must_use]
    pub fn speed(&self) -> f64 {
        self.runs as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Virtual seconds per second of wall time.
    #[must_use]
    pub fn acceleration(&self) -> f64 {
        self.virtual_ns as f64 / 1e9 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Sees a campaign go on.
pub trait Watch {
    /// A run is over; runs come in order. `sweep` includes it.
    fn done(&mut self, done: &Done, sweep: &Sweep);

    /// Time passes; `next` is the oldest run that is not over.
    fn tick(&mut self, sweep: &Sweep, next: Option<&Origin>) {
        let _ = (sweep, next);
    }
}

/// Looks away.
impl Watch for () {
    fn done(&mut self, _: &Done, _: &Sweep) {}
}

const TICK: Duration = Duration::from_millis(200);

/// Runs the plans. When it stops at a failure, every plan before the failing one has been
/// run, and no result of a later one counts.
pub fn sweep(queue: &Queue, suite: &Suite, options: &Options, watch: &mut dyn Watch) -> Sweep {
    let begin = Instant::now();
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut total = Sweep {
        runs: 0,
        virtual_ns: 0,
        elapsed: Duration::ZERO,
        failures: Vec::new(),
        coverage: Coverage::default(),
        stop: Stop::Complete,
    };
    let late = || options.budget.is_some_and(|it| begin.elapsed() >= it);
    let work = |results: Sender<(u64, Done)>| {
        while !stop.load(Ordering::Relaxed) && !late() {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = queue.get(index) else { return };
            let (plan, outcome) = run_alone(suite.run, || case.plan(), &options.run);
            let coverage = plan.as_ref().map(|it| Coverage::of(it, &outcome.events));
            let done = Done {
                origin: case.origin(),
                hash: outcome.hash,
                virtual_ns: outcome.virtual_ns,
                coverage: coverage.unwrap_or_default(),
                failure: outcome.violation.map(|it| (plan.map(Box::new), it)),
            };
            if results.send((index, done)).is_err() {
                return;
            }
        }
    };
    scope(|threads| {
        let (sender, results) = channel();
        for _ in 0..options.jobs.max(1) {
            let sender = sender.clone();
            threads.spawn(|| work(sender));
        }
        drop(sender);
        let mut early = BTreeMap::new();
        loop {
            match results.recv_timeout(TICK) {
                Ok((index, done)) => drop(early.insert(index, done)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            total.elapsed = begin.elapsed();
            while let Some(done) = early.remove(&total.runs) {
                total.take(&done);
                watch.done(&done, &total);
                if total.failures.len() >= options.failures.max(1) {
                    total.stop = Stop::Failures;
                    stop.store(true, Ordering::Relaxed);
                    return;
                }
            }
            let oldest = queue.get(total.runs).map(|it| it.origin());
            watch.tick(&total, oldest.as_ref());
        }
    });
    total.elapsed = begin.elapsed();
    if total.stop == Stop::Complete && total.runs < queue.len() {
        total.stop = Stop::Time;
    }
    total
}

impl Sweep {
    fn take(&mut self, done: &Done) {
        self.runs += 1;
        self.virtual_ns += u128::from(done.virtual_ns);
        self.coverage.add(&done.coverage);
        if let Some((plan, violation)) = &done.failure {
            self.failures.push(Failed {
                origin: done.origin.clone(),
                plan: plan.clone(),
                violation: violation.clone(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::fake;

    #[derive(Default)]
    struct Log(Vec<(String, u64)>);

    impl Watch for Log {
        fn done(&mut self, done: &Done, _: &Sweep) {
            self.0.push((done.origin.to_string(), done.hash));
        }
    }

    fn queue(seeds: &str) -> Queue {
        let seeds = seeds.parse().expect("seeds");
        Queue { first: Vec::new(), scenarios: fake::SCENARIOS.to_vec(), seeds }
    }

    fn options(jobs: usize, failures: usize) -> Options {
        Options { jobs, failures, budget: None, run: RunOptions::default() }
    }

    #[test]
    fn the_number_of_jobs_changes_nothing() {
        for failures in [1, 2, usize::MAX] {
            let sweeps = [1, 2, 7].map(|jobs| {
                let mut log = Log::default();
                let it = sweep(&queue("0..40"), &fake::suite(), &options(jobs, failures), &mut log);
                let failed: Vec<_> = it
                    .failures
                    .iter()
                    .map(|it| (it.origin.clone(), it.violation.clone()))
                    .collect();
                (log.0, it.runs, it.virtual_ns, failed, it.coverage, it.stop)
            });
            assert_eq!(sweeps[0], sweeps[1]);
            assert_eq!(sweeps[0], sweeps[2]);
            assert!(!sweeps[0].3.is_empty());
            assert!(failures == usize::MAX || sweeps[0].3.len() == failures);
        }
    }

    #[test]
    fn without_time_nothing_starts() {
        let options = Options { budget: Some(Duration::ZERO), ..options(2, 1) };
        let it = sweep(&queue("0..40"), &fake::suite(), &options, &mut ());
        assert_eq!((it.runs, it.stop), (0, Stop::Time));
    }
}
