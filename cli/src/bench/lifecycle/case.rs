//! One case: requests run, the operator acts, requests go on to their end.

use super::answers::Answers;
use super::cases::{Act, Case};
use super::setup::{LifecycleArgs, Load, Policy, SHORT_DRAIN};
use super::traffic::{D, P, Traffic};
use crate::demo::message::Operated;
use crate::engine::{Measured, Mode, Operate};
use anyhow::Result;
use serde::Serialize;
use std::time::Duration;

/// How long engines stay paused or asleep.
const MOMENT: Duration = Duration::from_millis(100);
/// How long everything may take to come back at the end.
const SETTLE: Duration = Duration::from_secs(20);
/// Requests of the case in which P waits for D.
const HELD: usize = 64;

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CaseResult {
    pub case: String,
    /// What D does with a request whose load failed.
    pub policy: &'static str,
    pub requests: u64,
    pub right: u64,
    pub recomputed: u64,
    pub retried: u64,
    pub aborted: u64,
    pub failed: u64,
    pub wrong: u64,
    pub loads: u64,
    pub bytes_compared: u64,
    /// Until everything asked for was done, in milliseconds.
    pub down_ms: f64,
    /// Until the engines ran again, in milliseconds.
    pub up_ms: f64,
    /// KV and weights in memory before and in between, P's and D's together, in bytes.
    pub awake_bytes: u64,
    /// In between.
    pub asleep_bytes: u64,
    /// The same of the two processes as a whole.
    pub awake_process_bytes: u64,
    /// In between.
    pub asleep_process_bytes: u64,
    /// What went wrong.
    pub problems: Vec<String>,
}

impl CaseResult {
    /// Whether everything was right.
    pub const fn is_right(&self) -> bool {
        self.problems.is_empty() && self.wrong == 0 && self.failed == 0
    }
}

/// Runs it.
pub fn run(
    args: &LifecycleArgs,
    answers: &mut Answers,
    case: &Case,
    policy: Policy,
    progress: &mut dyn FnMut(u64),
) -> CaseResult {
    let mut result =
        CaseResult { case: case.name.clone(), policy: policy.name(), ..CaseResult::default() };
    let requests = args.requests as usize;
    let load = Load {
        policy,
        concurrency: args.concurrency as usize,
        requests: Some(requests),
        time: Duration::from_secs(args.timeout),
        drain: SHORT_DRAIN,
    };
    let ended = args.start(answers, &load).and_then(|mut traffic| {
        traffic.aborts = case.aborts;
        let acted = act(&mut traffic, case, requests, &mut result, progress);
        finish(traffic, &mut result, requests as u64, acted)
    });
    if let Err(error) = ended {
        result.problems.push(format!("{error:#}"));
    }
    let unasked = [
        (case.aborts, result.aborted, "aborted"),
        (case.aborts_on_p, result.retried, "tried again: a load that was cut short failed [R04]"),
        (case.cuts_short, result.recomputed, "recomputed"),
    ];
    for (asked, count, what) in unasked {
        if !asked && count > 0 {
            result.problems.push(format!("{count} requests were {what}; nobody asked for that"));
        }
    }
    result
}

fn act(
    traffic: &mut Traffic<'_>,
    case: &Case,
    requests: usize,
    result: &mut CaseResult,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let third = requests as u64 / 3;
    traffic.run_until(|it| it.count.ended >= third)?;
    progress(third);
    let awake = traffic.measure()?;
    let mut problems = Vec::new();
    for act in &case.down {
        result.down_ms += carry_out(traffic, act, &mut problems)?;
    }
    let asleep = traffic.measure()?;
    traffic.run_for(MOMENT)?;
    for act in &case.up {
        result.up_ms += carry_out(traffic, act, &mut problems)?;
    }
    (result.awake_bytes, result.awake_process_bytes) = memory(&awake);
    (result.asleep_bytes, result.asleep_process_bytes) = memory(&asleep);
    problems.extend(given_back(case, &awake, &asleep));
    result.problems.extend(problems);
    traffic.run_until(Traffic::is_over)?;
    progress(requests as u64);
    Ok(())
}

/// Milliseconds that it took.
fn carry_out(traffic: &mut Traffic<'_>, act: &Act, problems: &mut Vec<String>) -> Result<f64> {
    Ok(match act {
        Act::Do(orders) => longest(&traffic.operate(orders)?),
        Act::Disconnect => {
            traffic.disconnect();
            0.0
        }
        Act::Reset(running) => {
            let operate = Operate::ResetPrefixCache { running: *running };
            let ended = traffic.operate(&[(P, operate), (D, operate)])?;
            if *running && ended.iter().any(|it| it.emptied != Some(true)) {
                problems.push("a prefix cache was not emptied".into());
            }
            if !running && ended.iter().all(|it| it.emptied != Some(false)) {
                problems.push("a prefix cache was emptied under running requests".into());
            }
            longest(&ended)
        }
    })
}

fn longest(ended: &[Operated]) -> f64 {
    ended.iter().map(|it| it.took_us).max().unwrap_or(0) as f64 / 1000.0
}

fn memory(of: &[Measured; 2]) -> (u64, u64) {
    let own: u64 = of.iter().map(|it| it.kv_resident + it.weights_resident).sum();
    (own, of.iter().map(|it| it.process_resident).sum())
}

/// What sleeps must be the system's again, by its own count and by the process'.
fn given_back(case: &Case, awake: &[Measured; 2], asleep: &[Measured; 2]) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, awake, asleep) in [("P", &awake[P], &asleep[P]), ("D", &awake[D], &asleep[D])] {
        let mut wrong = |what: &str, bytes: u64| {
            if bytes > 0 {
                problems.push(format!("{name}: {bytes} bytes of {what} did not go to sleep"));
            }
        };
        if case.asleep.kv {
            wrong("KV", asleep.kv_resident);
            let (before, after) = (awake.process_resident, asleep.process_resident);
            // Half of it: the process itself may have grown meanwhile.
            wrong("the process", (after + awake.kv_resident / 2).saturating_sub(before));
        }
        if case.asleep.weights {
            wrong("weights", asleep.weights_resident);
        }
    }
    problems
}

/// Everything must come back, and the engines must stop in good order.
fn finish(
    mut traffic: Traffic<'_>,
    result: &mut CaseResult,
    requests: u64,
    acted: Result<()>,
) -> Result<()> {
    let count = std::mem::take(&mut traffic.count);
    result.requests = requests;
    result.right = count.right;
    result.recomputed = count.recomputed;
    result.retried = count.retried;
    result.aborted = count.aborted;
    result.failed = count.failed;
    result.wrong = count.wrong;
    result.loads = count.loads;
    result.bytes_compared = count.compared.0;
    result.problems.extend(count.problems);
    acted?;
    if count.right + count.aborted + count.failed + count.wrong < requests {
        result.problems.push("requests are missing".into());
    }
    for (slot, snapshot) in traffic.fleet.settle(SETTLE)?.into_iter().enumerate() {
        let name = traffic.fleet.name(slot);
        let left = snapshot.leftovers.into_iter().map(|it| format!("{name}: {it} at the end"));
        result.problems.extend(left);
    }
    result.problems.extend(traffic.fleet.stop());
    Ok(())
}

/// P holds requests that D has not begun to pull when P is paused in mode `wait` with
/// clearing: each is still pulled, within the drain budget `[R03]`.
pub fn wait_for_d(args: &LifecycleArgs, answers: &mut Answers) -> CaseResult {
    let case = format!("pause wait P, clear, before D pulls {HELD}");
    let mut result = CaseResult { case, policy: "fail", ..CaseResult::default() };
    let load = Load {
        policy: Policy::Fail,
        concurrency: HELD,
        requests: Some(HELD),
        time: Duration::from_secs(args.timeout),
        drain: Duration::from_secs(args.timeout),
    };
    let ended = args.start(answers, &load).and_then(|mut traffic| {
        let acted = hold_then_pull(&mut traffic, &mut result);
        finish(traffic, &mut result, HELD as u64, acted)
    });
    if let Err(error) = ended {
        result.problems.push(format!("{error:#}"));
    }
    if result.loads != HELD as u64 || result.recomputed + result.retried > 0 {
        result.problems.push(format!("{} of {HELD} were pulled", result.loads));
    }
    result
}

fn hold_then_pull(traffic: &mut Traffic<'_>, result: &mut CaseResult) -> Result<()> {
    traffic.held_back = true;
    traffic.run_until(|it| it.held() == HELD)?;
    traffic.begin(&[(P, Operate::Pause { mode: Mode::Wait, clear: true })]);
    traffic.run_for(MOMENT)?;
    traffic.ask_decode();
    result.down_ms = longest(&traffic.finish()?);
    traffic.run_until(Traffic::is_over)?;
    result.up_ms = longest(&traffic.operate(&[(P, Operate::Resume)])?);
    Ok(())
}
