//! Every state that an engine can be found in, and every operation.

use crate::world::World;
use kvbaton_core::ids::WeightVersion;
use kvbaton_core::lifecycle::engine::{Operation, Parts, PauseMode, SleepLevel, Which};

pub const NEW: WeightVersion = WeightVersion(2);

/// Every operation, with a name for each.
pub fn operations() -> Vec<(String, Operation)> {
    let mut all = Vec::new();
    for mode in PauseMode::ALL {
        for clear in [false, true] {
            let name = format!("pause {}{}", mode.name(), if clear { ", clear" } else { "" });
            all.push((name, Operation::Pause { mode, clear }));
        }
    }
    all.push(("resume".into(), Operation::Resume));
    for level in SleepLevel::ALL {
        let name = format!("sleep {}", level.number());
        all.push((name, Operation::Sleep { level, mode: PauseMode::Keep }));
    }
    all.push(("wake".into(), Operation::Wake(Parts::ALL)));
    all.push(("wake weights".into(), Operation::Wake(Parts::WEIGHTS)));
    all.push(("wake KV".into(), Operation::Wake(Parts::KV)));
    all.push(("release KV".into(), Operation::ReleaseKv(PauseMode::Keep)));
    let update = Operation::UpdateWeights { version: NEW, mode: PauseMode::Keep };
    all.push(("update weights".into(), update));
    all.push(("abort transfers".into(), Operation::AbortTransfers));
    all.push(("abort requests".into(), Operation::AbortRequests(Which::All)));
    all.push(("reset".into(), Operation::ResetPrefixCache { running: false }));
    all.push(("reset, running".into(), Operation::ResetPrefixCache { running: true }));
    all
}

fn sleep(level: SleepLevel) -> Operation {
    Operation::Sleep { level, mode: PauseMode::Keep }
}

fn pause(mode: PauseMode) -> Operation {
    Operation::Pause { mode, clear: false }
}

/// Every state at rest, by how it is reached.
pub fn states() -> Vec<(&'static str, Vec<Operation>)> {
    let paused = pause(PauseMode::Keep);
    vec![
        ("running", vec![]),
        ("paused abort", vec![pause(PauseMode::Abort)]),
        ("paused wait", vec![pause(PauseMode::Wait)]),
        ("paused keep", vec![paused.clone()]),
        ("asleep 0", vec![sleep(SleepLevel::Compute)]),
        ("asleep 1", vec![sleep(SleepLevel::Offload)]),
        ("asleep 2", vec![sleep(SleepLevel::Discard)]),
        ("paused, asleep 1", vec![paused, sleep(SleepLevel::Offload)]),
        ("weights awake", vec![sleep(SleepLevel::Offload), Operation::Wake(Parts::WEIGHTS)]),
        ("KV awake", vec![sleep(SleepLevel::Offload), Operation::Wake(Parts::KV)]),
        ("weights blank", vec![sleep(SleepLevel::Discard), Operation::Wake(Parts::ALL)]),
        ("blank, KV asleep", vec![sleep(SleepLevel::Discard), Operation::Wake(Parts::WEIGHTS)]),
    ]
}

/// An engine in that state.
pub fn start(ranks: usize, steps: &[Operation]) -> World {
    let mut world = World::new(ranks);
    for step in steps {
        world.run(step.clone()).expect("nothing goes wrong");
    }
    world.log.clear();
    world.answers.clear();
    world
}
