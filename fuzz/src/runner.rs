//! One campaign for a time: kept inputs first, then random ones on every job.

use crate::campaign::{Campaign, Story, Trace};
use crate::corpus::{self, Entry};
use crate::shrink::shrink;
use anyhow::Result;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How to run.
#[derive(Debug, Clone)]
pub struct Plan<'a> {
    /// Time for random inputs; kept inputs come on top.
    pub time: Duration,
    /// Every random input follows from it, the campaign and the job.
    pub seed: u64,
    /// Threads.
    pub jobs: usize,
    /// Where inputs are kept.
    pub corpus: &'a Path,
}

/// What one campaign came to.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Its name.
    pub campaign: &'static str,
    /// Runs.
    pub cases: u64,
    /// Inputs of machines, messages or layouts in them.
    pub steps: u64,
    /// Time that they took.
    pub took: Duration,
    /// Kept inputs that were run first, and those that were added.
    pub corpus: usize,
    /// What did not hold.
    pub found: Vec<Found>,
}

/// One violation.
#[derive(Debug, Clone)]
pub struct Found {
    /// The shrunk input in words.
    pub story: Story,
    /// Its file.
    pub path: PathBuf,
    /// Runs and steps of the job that found it, up to then; 0 for a kept input.
    pub after: (u64, u64),
    /// Bytes before shrinking and after.
    pub bytes: (usize, usize),
}

impl Outcome {
    /// Steps per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.steps as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

/// What the jobs of a campaign share.
#[derive(Default)]
struct Shared {
    cases: AtomicU64,
    steps: AtomicU64,
    stop: AtomicBool,
    /// The first failing input, with cases and steps of its job.
    failed: Mutex<Option<(Vec<u8>, u64, u64)>>,
}

/// Runs a campaign; stops at its first violation. `tick` hears of (cases, steps) now and
/// then.
///
/// # Errors
/// When the corpus cannot be read or written.
pub fn run(campaign: &Campaign, plan: &Plan<'_>, tick: impl Fn(u64, u64)) -> Result<Outcome> {
    let kept = corpus::entries(plan.corpus, campaign)?;
    let begin = Instant::now();
    let mut outcome = Outcome {
        campaign: campaign.name,
        cases: 0,
        steps: 0,
        took: Duration::ZERO,
        corpus: kept.len(),
        found: Vec::new(),
    };
    for entry in &kept {
        let mut trace = Trace::default();
        let failed = campaign.attempt(&entry.input, &mut trace).is_err();
        outcome.cases += 1;
        outcome.steps += trace.steps;
        if let (true, Some(story)) = (failed, campaign.explain(&entry.input)) {
            let (path, len) = (entry.path.clone(), entry.input.len());
            outcome.found.push(Found { story, path, after: (0, 0), bytes: (len, len) });
        }
    }
    if outcome.found.is_empty() {
        let shared = Shared::default();
        random(campaign, plan, &kept, &shared, tick);
        outcome.cases += shared.cases.load(Ordering::Relaxed);
        outcome.steps += shared.steps.load(Ordering::Relaxed);
        outcome.took = begin.elapsed();
        let failed = shared.failed.into_inner().unwrap_or_default();
        if let Some((input, cases, steps)) = failed {
            let small = shrink(campaign, &input);
            if let Some(story) = campaign.explain(&small) {
                let path = corpus::keep(plan.corpus, campaign, &small, &story)?;
                let bytes = (input.len(), small.len());
                outcome.found.push(Found { story, path, after: (cases, steps), bytes });
                outcome.corpus += 1;
            }
        }
    } else {
        outcome.took = begin.elapsed();
    }
    Ok(outcome)
}

fn random(
    campaign: &Campaign,
    plan: &Plan<'_>,
    kept: &[Entry],
    shared: &Shared,
    tick: impl Fn(u64, u64),
) {
    let end = Instant::now() + plan.time;
    thread::scope(|scope| {
        let jobs: Vec<_> = (0..plan.jobs.max(1))
            .map(|job| {
                let name = campaign.name.bytes().fold(job as u64, |sum, byte| {
                    sum.wrapping_mul(31).wrapping_add(u64::from(byte))
                });
                let rng = SmallRng::seed_from_u64(plan.seed ^ name.wrapping_mul(0x9e37_79b9));
                scope.spawn(move || job_runs(campaign, rng, kept, end, shared))
            })
            .collect();
        while jobs.iter().any(|job| !job.is_finished()) {
            thread::park_timeout(Duration::from_millis(20));
            tick(shared.cases.load(Ordering::Relaxed), shared.steps.load(Ordering::Relaxed));
        }
    });
}

/// One thread: random inputs until the time is up or a job has found something.
fn job_runs(campaign: &Campaign, mut rng: SmallRng, kept: &[Entry], end: Instant, shared: &Shared) {
    /// Runs between two looks at the clock.
    const BATCH: u64 = 16;
    let (mut cases, mut steps) = (0, 0);
    let mut input = Vec::new();
    while Instant::now() < end && !shared.stop.load(Ordering::Relaxed) {
        let before = (cases, steps);
        for _ in 0..BATCH {
            make(campaign, &mut rng, kept, &mut input);
            let mut trace = Trace::default();
            let failed = campaign.attempt(&input, &mut trace).is_err();
            cases += 1;
            steps += trace.steps;
            if failed {
                shared.stop.store(true, Ordering::Relaxed);
                if let Ok(mut first) = shared.failed.lock() {
                    first.get_or_insert((input.clone(), cases, steps));
                }
                break;
            }
        }
        shared.cases.fetch_add(cases - before.0, Ordering::Relaxed);
        shared.steps.fetch_add(steps - before.1, Ordering::Relaxed);
    }
}

/// A random input, or one in eight times a kept one with some bytes changed.
fn make(campaign: &Campaign, rng: &mut SmallRng, kept: &[Entry], input: &mut Vec<u8>) {
    input.clear();
    if !kept.is_empty() && rng.random_range(0..8) == 0 {
        input.extend(&kept[rng.random_range(0..kept.len())].input);
        for _ in 0..rng.random_range(0..6) {
            if !input.is_empty() {
                let at = rng.random_range(0..input.len());
                input[at] = rng.random();
            }
        }
        return;
    }
    input.resize(rng.random_range(campaign.bytes.clone()), 0);
    rng.fill_bytes(input);
}
