//! Sleep and wake, again and again, under requests that never end.

use super::answers::Answers;
use super::setup::{FIRST_VERSION, LifecycleArgs, Load, Policy, SHORT_DRAIN};
use super::traffic::{D, P, Traffic};
use crate::engine::{Awake, Measured, Mode, Operate};
use anyhow::Result;
use serde::Serialize;
use std::time::Duration;

/// How long everything may take to come back at the end.
const SETTLE: Duration = Duration::from_secs(20);
/// A process may grow by this much, and by a twentieth, from early to late cycles: allocators
/// and page granularity, not a leak.
const MAY_GROW: u64 = 8 << 20;

/// What came of all cycles.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CyclesResult {
    pub cycles: u32,
    pub policy: &'static str,
    /// Requests that have ended.
    pub requests: u64,
    pub right: u64,
    pub recomputed: u64,
    pub retried: u64,
    pub failed: u64,
    pub wrong: u64,
    pub loads: u64,
    pub bytes_compared: u64,
    /// Going to sleep and waking, mean, in milliseconds.
    pub sleep_ms: f64,
    pub wake_ms: f64,
    /// P's and D's process while asleep with its KV given up: early and late, in bytes.
    pub asleep_early: [u64; 2],
    pub asleep_late: [u64; 2],
    /// The same just before each sleep, KV included: the most seen early and late.
    pub awake_early: [u64; 2],
    pub awake_late: [u64; 2],
    /// KV in memory while asleep, the most seen; 0 when it was given back each time.
    pub kv_asleep: u64,
    pub problems: Vec<String>,
}

impl CyclesResult {
    pub const fn is_right(&self) -> bool {
        self.problems.is_empty() && self.wrong == 0 && self.failed == 0
    }
}

/// How a cycle goes down and up: full, or in parts in either order.
fn parts(cycle: u32) -> (Operate, &'static [Operate]) {
    const ALL: Operate = Operate::Wake { parts: Awake::All };
    const WEIGHTS: Operate = Operate::Wake { parts: Awake::Weights };
    const KV: Operate = Operate::Wake { parts: Awake::Kv };
    let mode = Mode::Keep;
    match cycle / 3 % 5 {
        0 => (Operate::Sleep { level: 1, mode }, &[ALL]),
        1 => (Operate::Sleep { level: 1, mode }, &[WEIGHTS, KV]),
        2 => (Operate::Sleep { level: 1, mode }, &[KV, WEIGHTS]),
        3 => (Operate::ReleaseKv { mode }, &[ALL]),
        _ => (Operate::Sleep { level: 2, mode }, &[ALL]),
    }
}

/// Samples of one process.
#[derive(Default)]
struct Samples {
    awake: Vec<u64>,
    asleep: Vec<u64>,
}

/// Runs them.
pub fn run(
    args: &LifecycleArgs,
    answers: &mut Answers,
    progress: &mut dyn FnMut(u64),
) -> CyclesResult {
    let policy = if args.policy == Policy::Recompute { args.policy } else { Policy::Fail };
    let mut result =
        CyclesResult { cycles: args.cycles, policy: policy.name(), ..CyclesResult::default() };
    let most = args.concurrency as usize * 8 / 3;
    let load = Load {
        policy,
        concurrency: most,
        requests: None,
        time: Duration::from_secs(args.timeout + 2 * u64::from(args.cycles)),
        drain: SHORT_DRAIN,
    };
    let ended = args.start(answers, &load).and_then(|mut traffic| {
        let least = (args.concurrency as usize * 2 / 3).max(1);
        let cycled = cycle(&mut traffic, args.cycles, (least, most), &mut result, progress);
        finish(traffic, &mut result, cycled)
    });
    if let Err(error) = ended {
        result.problems.push(format!("{error:#}"));
    }
    result
}

fn cycle(
    traffic: &mut Traffic<'_>,
    cycles: u32,
    (least, most): (usize, usize),
    result: &mut CyclesResult,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let mut samples = [Samples::default(), Samples::default()];
    let mut version = FIRST_VERSION;
    for cycle in 0..cycles {
        traffic.concurrency = least + (most - least) * (cycle as usize % 7) / 6;
        // Requests run, with blocks in use, before each sleep.
        let until = traffic.count.ended + traffic.concurrency as u64 / 4 + 1;
        traffic.run_until(|it| it.count.ended >= until)?;
        let slots: &[usize] = [&[D][..], &[P], &[P, D]][cycle as usize % 3];
        let (down, up) = parts(cycle);
        // New weights go to both engines: KV of one is of no use to the other before.
        let slots = if let Operate::Sleep { level: 2, .. } = down { &[P, D] } else { slots };
        let on = |operate| slots.iter().map(move |&slot| (slot, operate)).collect::<Vec<_>>();
        let awake = traffic.measure()?;
        let mut ended = traffic.operate(&on(down))?;
        result.sleep_ms += longest(&ended) / f64::from(cycles);
        let asleep = traffic.measure()?;
        for &slot in slots {
            result.kv_asleep = result.kv_asleep.max(asleep[slot].kv_resident);
            samples[slot].asleep.push(own(&asleep[slot]));
            samples[slot].awake.push(awake[slot].process_resident);
        }
        for &operate in up {
            ended = traffic.operate(&on(operate))?;
            result.wake_ms += longest(&ended) / f64::from(cycles);
        }
        if let Operate::Sleep { level: 2, .. } = down {
            version += 1;
            traffic.operate(&on(Operate::UpdateWeights { version, mode: Mode::Keep }))?;
        }
        progress(u64::from(cycle) + 1);
    }
    judge(&samples, result);
    traffic.stop_starting();
    traffic.run_until(Traffic::is_over)
}

fn longest(ended: &[crate::demo::message::Operated]) -> f64 {
    ended.iter().map(|it| it.took_us).max().unwrap_or(0) as f64 / 1000.0
}

/// The process without its weights, wherever they are: those come and go with the level.
const fn own(measured: &Measured) -> u64 {
    let weights = measured.weights_resident + measured.weights_kept;
    measured.process_resident.saturating_sub(weights)
}

/// Memory is flat: late cycles have no more than early ones.
fn judge(samples: &[Samples; 2], result: &mut CyclesResult) {
    for slot in [P, D] {
        let name = ["P", "D"][slot];
        let Samples { awake, asleep } = &samples[slot];
        let (Some(early), Some(late)) = (part(asleep, 1), part(asleep, 3)) else { continue };
        (result.asleep_early[slot], result.asleep_late[slot]) = (median(early), median(late));
        let grown = result.asleep_late[slot].saturating_sub(result.asleep_early[slot]);
        if grown > MAY_GROW + result.asleep_early[slot] / 20 {
            result.problems.push(format!("{name} grew by {grown} bytes"));
        }
        if let (Some(early), Some(late)) = (part(awake, 1), part(awake, 3)) {
            let most = |of: &[u64]| of.iter().copied().max().unwrap_or(0);
            (result.awake_early[slot], result.awake_late[slot]) = (most(early), most(late));
        }
    }
    if result.kv_asleep > 0 {
        result.problems.push(format!("{} bytes of KV did not go to sleep", result.kv_asleep));
    }
}

/// The `number`th quarter, from 0.
fn part(samples: &[u64], number: usize) -> Option<&[u64]> {
    let quarter = samples.len() / 4;
    (quarter > 0).then(|| &samples[number * quarter..(number + 1) * quarter])
}

fn median(samples: &[u64]) -> u64 {
    let mut samples = samples.to_vec();
    samples.sort_unstable();
    samples[samples.len() / 2]
}

fn finish(mut traffic: Traffic<'_>, result: &mut CyclesResult, cycled: Result<()>) -> Result<()> {
    let count = std::mem::take(&mut traffic.count);
    result.requests = count.ended;
    result.right = count.right;
    result.recomputed = count.recomputed;
    result.retried = count.retried;
    result.failed = count.failed;
    result.wrong = count.wrong;
    result.loads = count.loads;
    result.bytes_compared = count.compared.0;
    result.problems.extend(count.problems);
    if result.retried > 0 {
        result.problems.push("loads that a sleep cut short failed [R04]".into());
    }
    cycled?;
    for (slot, snapshot) in traffic.fleet.settle(SETTLE)?.into_iter().enumerate() {
        let name = traffic.fleet.name(slot);
        let left = snapshot.leftovers.into_iter().map(|it| format!("{name}: {it} at the end"));
        result.problems.extend(left);
    }
    result.problems.extend(traffic.fleet.stop());
    Ok(())
}
