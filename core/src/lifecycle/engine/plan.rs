//! Which steps an operation takes, from how the engine stands.

use super::operation::{
    Operation, OperationError, Outcome, Part, Parts, PauseMode, SleepLevel, Which,
};
use super::order::{EngineOrder, RankOrder, Step};
use super::running::Running;
use super::standing::{Compute, Standing, WeightsAt};
use crate::ids::WeightVersion;
use crate::planted::{self, Bug};

/// What an operation does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Plan {
    /// In order.
    pub steps: Vec<Step>,
    /// What a pause on the way is called.
    pub mode: PauseMode,
    /// [`Standing::asleep`] once all is done.
    pub asleep: Option<bool>,
}

type Planned = Result<Plan, Result<Outcome, OperationError>>;

/// The plan of `operation`; the answer where there is nothing to do.
pub(super) fn plan(operation: &Operation, now: Standing) -> Planned {
    match *operation {
        Operation::Pause { mode, clear } => pause(now, mode, clear),
        Operation::Resume => resume(now),
        Operation::Sleep { level, mode } => sleep(now, level, mode),
        Operation::Wake(parts) => wake(now, parts),
        Operation::ReleaseKv(mode) => release_kv(now, mode),
        Operation::UpdateWeights { version, mode } => update_weights(now, version, mode),
        Operation::ResetPrefixCache { running } => reset(now, running),
        Operation::AbortTransfers => Ok(only(now, vec![Step::Ranks(RankOrder::AbortTransfers)])),
        Operation::AbortRequests(ref which) => {
            Ok(only(now, vec![Step::Engine(EngineOrder::Abort(which.clone()))]))
        }
    }
}

fn only(now: Standing, steps: Vec<Step>) -> Plan {
    let mode = match now.compute {
        Compute::Running => PauseMode::Keep,
        Compute::Paused(mode) => mode,
    };
    Plan { steps, mode, asleep: now.asleep }
}

fn done<T>() -> Result<T, Result<Outcome, OperationError>> {
    Err(Ok(Outcome::Done))
}

fn not_possible<T>(
    operation: &'static str,
    why: &'static str,
) -> Result<T, Result<Outcome, OperationError>> {
    Err(Err(OperationError::NotPossible { operation, why }))
}

/// Stops compute `[R01]`, and takes every block back if asked: release, wait, reset, the one
/// way in which that happens `[R02]`. With the mode that the pause is called by: a weaker one
/// does not undo a stronger one.
fn quiet(now: Standing, mode: PauseMode, clear: bool) -> (Vec<Step>, PauseMode) {
    let freeze = Step::Engine(EngineOrder::Freeze);
    let mut steps = match (mode, now.compute) {
        _ if !now.is_whole() => Vec::new(),
        (PauseMode::Keep, Compute::Paused(_))
        | (PauseMode::Wait, Compute::Paused(PauseMode::Wait | PauseMode::Abort))
        | (PauseMode::Abort, Compute::Paused(PauseMode::Abort)) => Vec::new(),
        (PauseMode::Keep, Compute::Running) => vec![freeze.clone()],
        (PauseMode::Wait, _) => vec![Step::Engine(EngineOrder::Finish), freeze.clone()],
        (PauseMode::Abort, _) => vec![freeze.clone(), Step::Engine(EngineOrder::Abort(Which::All))],
    };
    let called = match now.compute {
        Compute::Paused(before) if steps.is_empty() => before,
        _ => mode,
    };
    if clear {
        if steps.is_empty() {
            steps.push(freeze); // It may run although it was not to, after a way back that failed.
        }
        if mode == PauseMode::Wait && !planted::is(Bug::DrainBudgetSkipped) {
            steps.push(Step::Ranks(RankOrder::AwaitHolds)); // Its drain budget [R03].
        }
        steps.extend([
            Step::Ranks(RankOrder::AbortTransfers),
            Step::Engine(EngineOrder::Preempt),
            Step::Engine(EngineOrder::AwaitBlocks),
            Step::Engine(EngineOrder::ResetCache),
        ]);
    }
    (steps, called)
}

fn unmap(part: Part, keep: bool) -> Step {
    Step::Engine(EngineOrder::Unmap { part, keep })
}

/// The KV cache's memory goes, on every rank or on none `[S05, S06]`.
fn unmap_kv() -> [Step; 3] {
    let (prepare, commit) = (Step::Ranks(RankOrder::Prepare), Step::Ranks(RankOrder::Commit));
    if planted::is(Bug::UnmapBeforeCommit) {
        return [prepare, unmap(Part::Kv, false), commit];
    }
    [prepare, commit, unmap(Part::Kv, false)]
}

fn map_kv() -> [Step; 2] {
    let (map, restore) =
        (Step::Engine(EngineOrder::Map(Part::Kv)), Step::Ranks(RankOrder::Restore));
    if planted::is(Bug::RestoreBeforeMap) { [restore, map] } else { [map, restore] }
}

fn pause(now: Standing, mode: PauseMode, clear: bool) -> Planned {
    let (steps, mode) = quiet(now, mode, clear && now.is_whole());
    if steps.is_empty() {
        return done();
    }
    Ok(Plan { steps, mode, asleep: now.asleep })
}

fn resume(now: Standing) -> Planned {
    if !now.kv || matches!(now.weights, WeightsAt::Offloaded | WeightsAt::Discarded) {
        return not_possible("resume", "the engine sleeps; wake it");
    }
    if now.weights == WeightsAt::Blank {
        return not_possible("resume", "the weights were discarded; update them first");
    }
    if now.compute == Compute::Running {
        return done();
    }
    Ok(Plan { asleep: None, ..only(now, vec![Step::Engine(EngineOrder::Run)]) })
}

fn fall_asleep(now: Standing, mode: PauseMode, memory: Vec<Step>, clears: bool) -> Planned {
    let (mut steps, mode) = quiet(now, mode, clears);
    steps.extend(memory);
    let asleep = Some(now.asleep.unwrap_or(now.compute == Compute::Running));
    if steps.is_empty() && now.asleep == asleep {
        return done();
    }
    Ok(Plan { steps, mode, asleep })
}

fn sleep(now: Standing, level: SleepLevel, mode: PauseMode) -> Planned {
    let mut memory = Vec::new();
    if level != SleepLevel::Compute && now.kv {
        memory.extend(unmap_kv());
    }
    match (level, now.weights) {
        (SleepLevel::Offload, WeightsAt::Mapped) => memory.push(unmap(Part::Weights, true)),
        (SleepLevel::Offload, WeightsAt::Blank)
        | (SleepLevel::Discard, WeightsAt::Mapped | WeightsAt::Offloaded | WeightsAt::Blank) => {
            memory.push(unmap(Part::Weights, false));
        }
        _ => {}
    }
    fall_asleep(now, mode, memory, level != SleepLevel::Compute && now.kv)
}

fn release_kv(now: Standing, mode: PauseMode) -> Planned {
    if !now.kv {
        return done();
    }
    fall_asleep(now, mode, unmap_kv().to_vec(), true)
}

fn wake(now: Standing, parts: Parts) -> Planned {
    let Some(runs) = now.asleep else { return done() };
    let mut steps = Vec::new();
    let mut after = now;
    if parts.weights && matches!(now.weights, WeightsAt::Offloaded | WeightsAt::Discarded) {
        steps.push(Step::Engine(EngineOrder::Map(Part::Weights)));
        after.weights = match now.weights {
            WeightsAt::Offloaded => WeightsAt::Mapped,
            _ => WeightsAt::Blank,
        };
    }
    if parts.kv && !now.kv {
        steps.extend(map_kv());
        after.kv = true;
    }
    if steps.is_empty() && !now.is_whole() {
        return done();
    }
    Ok(end_of_sleep(now, steps, after, runs))
}

/// With the last part the engine goes on as it did before it slept.
fn end_of_sleep(now: Standing, mut steps: Vec<Step>, after: Standing, runs: bool) -> Plan {
    let asleep = if after.is_whole() { None } else { Some(runs) };
    if asleep.is_none() && runs {
        steps.push(Step::Engine(EngineOrder::Run));
    }
    Plan { asleep, ..only(now, steps) }
}

fn update_weights(now: Standing, version: WeightVersion, mode: PauseMode) -> Planned {
    if matches!(now.weights, WeightsAt::Offloaded | WeightsAt::Discarded) {
        return not_possible("update_weights", "the weights sleep; wake them first");
    }
    let (mut steps, name) = quiet(now, mode, now.kv);
    steps.push(Step::Engine(EngineOrder::LoadWeights(version)));
    steps.push(Step::Ranks(RankOrder::SetWeights(version)));
    let after = Standing { weights: WeightsAt::Mapped, version, ..now };
    let plan = match now.asleep {
        // Woken whole but for its weights: this was the last part.
        Some(runs) if !now.is_whole() => end_of_sleep(now, steps, after, runs),
        _ => {
            if now.compute == Compute::Running {
                steps.push(Step::Engine(EngineOrder::Run));
            }
            only(now, steps)
        }
    };
    Ok(Plan { mode: name, ..plan })
}

fn reset(now: Standing, running: bool) -> Planned {
    if !now.kv {
        return Err(Ok(Outcome::Reset { done: true, users: Vec::new() }));
    }
    if !running {
        return Ok(only(now, vec![Step::Engine(EngineOrder::ResetCache)]));
    }
    let (mut steps, _) = quiet(now, PauseMode::Keep, true);
    if now.compute == Compute::Running {
        steps.push(Step::Engine(EngineOrder::Run));
    }
    Ok(only(now, steps))
}

/// The steps from `now` back to before `running`; what cannot be brought back is left out.
pub(super) fn undo(running: &Running, now: Standing) -> Vec<Step> {
    let before = running.before;
    let mut steps = Vec::new();
    let mut after = now;
    match (before.weights, now.weights) {
        (WeightsAt::Mapped, WeightsAt::Offloaded) => {
            steps.push(Step::Engine(EngineOrder::Map(Part::Weights)));
            after.weights = WeightsAt::Mapped;
        }
        (WeightsAt::Offloaded, WeightsAt::Mapped) => {
            steps.push(unmap(Part::Weights, true));
            after.weights = WeightsAt::Offloaded;
        }
        (WeightsAt::Discarded, WeightsAt::Blank) => {
            steps.push(unmap(Part::Weights, false));
            after.weights = WeightsAt::Discarded;
        }
        _ => {}
    }
    if before.kv && !now.kv {
        steps.extend(map_kv());
        after.kv = true;
    } else if !before.kv && (now.kv || running.mapped) {
        steps.extend(unmap_kv());
        after.kv = false;
    }
    let resumed = matches!(running.failure, Some(OperationError::Resumed { .. }));
    let kept = resumed && planted::is(Bug::ResumeKeepsPrepared);
    if running.prepared && before.kv && !kept {
        steps.insert(0, Step::Ranks(RankOrder::Cancel));
    }
    match before.compute {
        Compute::Running if after.is_whole() => steps.push(Step::Engine(EngineOrder::Run)),
        Compute::Paused(_) if running.opened || now.compute == Compute::Running => {
            steps.push(Step::Engine(EngineOrder::Freeze));
        }
        _ => {}
    }
    steps
}
