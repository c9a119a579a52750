//! The orders of the operations that the contract names, in order.

use crate::starts::{NEW, start};
use crate::world::World;
use kvbaton_core::lifecycle::engine::{
    Operation, Outcome, Parts, PauseMode, SleepLevel, WeightsAt,
};

fn log(world: &mut World, operation: Operation) -> Vec<String> {
    world.log.clear();
    world.run(operation).unwrap();
    world.log.clone()
}

fn short(log: &[String]) -> Vec<&str> {
    log.iter().map(|it| it.split(['(', '{']).next().unwrap_or(it).trim()).collect()
}

#[test]
fn r01_a_pause_only_stops_compute() {
    let pause = |mode| Operation::Pause { mode, clear: false };
    assert_eq!(log(&mut World::new(2), pause(PauseMode::Keep)), ["Freeze"]);
    assert_eq!(log(&mut World::new(2), pause(PauseMode::Wait)), ["Finish", "Freeze"]);
    assert_eq!(log(&mut World::new(2), pause(PauseMode::Abort)), ["Freeze", "Abort(All)"]);
}

const CLEAR: [&str; 4] = ["rank 0 AbortTransfers", "Preempt", "AwaitBlocks", "ResetCache"];

#[test]
fn r02_what_needs_every_block_releases_waits_and_resets_from_one_place() {
    let keep = PauseMode::Keep;
    for operation in [
        Operation::Pause { mode: keep, clear: true },
        Operation::Sleep { level: SleepLevel::Offload, mode: keep },
        Operation::Sleep { level: SleepLevel::Discard, mode: keep },
        Operation::ReleaseKv(keep),
        Operation::UpdateWeights { version: NEW, mode: keep },
        Operation::ResetPrefixCache { running: true },
    ] {
        let log = log(&mut World::new(1), operation);
        assert_eq!(log[0], "Freeze");
        assert_eq!(log[1..5], CLEAR);
    }
    let level = SleepLevel::Compute;
    let log = log(&mut World::new(1), Operation::Sleep { level, mode: keep });
    assert_eq!(log, ["Freeze"], "level 0 takes nothing");
}

#[test]
fn r03_in_mode_wait_held_requests_have_their_drain_budget_before_they_are_released() {
    let log = log(&mut World::new(1), Operation::Pause { mode: PauseMode::Wait, clear: true });
    assert_eq!(log[..3], ["Finish", "Freeze", "rank 0 AwaitHolds"]);
    assert_eq!(log[3..], CLEAR);
}

#[test]
fn s05_s06_memory_goes_after_every_rank_is_prepared_and_released() {
    let sleep = Operation::Sleep { level: SleepLevel::Offload, mode: PauseMode::Keep };
    let mut world = World::new(2);
    let log_of_sleep = log(&mut world, sleep);
    assert_eq!(
        short(&log_of_sleep[6..]),
        ["rank 0 Prepare", "rank 1 Prepare", "rank 0 Commit", "rank 1 Commit", "Unmap", "Unmap"]
    );
    let log = log(&mut world, Operation::Wake(Parts::ALL));
    assert_eq!(
        log,
        ["Map(Weights)", "Map(Kv)", "rank 0 Restore", "rank 1 Restore", "Run"],
        "map, then register"
    );
}

#[test]
fn s05_a_selective_wake_registers_only_once_the_kv_cache_is_mapped() {
    let sleep = vec![Operation::Sleep { level: SleepLevel::Offload, mode: PauseMode::Keep }];
    let mut world = start(1, &sleep);
    assert_eq!(log(&mut world, Operation::Wake(Parts::WEIGHTS)), ["Map(Weights)"]);
    assert!(!world.facts.ranks[0].registered && !world.facts.computes);
    let rest = log(&mut world, Operation::Wake(Parts::KV));
    assert_eq!(rest, ["Map(Kv)", "rank 0 Restore", "Run"], "the last part resumes");
    let mut world = start(1, &sleep);
    let rest = log(&mut world, Operation::Wake(Parts::KV));
    assert_eq!(rest, ["Map(Kv)", "rank 0 Restore"], "in the other order");
    assert_eq!(log(&mut world, Operation::Wake(Parts::WEIGHTS)), ["Map(Weights)", "Run"]);
}

#[test]
fn an_engine_that_was_paused_when_it_fell_asleep_stays_paused_after_the_wake() {
    let pause = Operation::Pause { mode: PauseMode::Wait, clear: false };
    let sleep = Operation::Sleep { level: SleepLevel::Offload, mode: PauseMode::Keep };
    let mut world = start(1, &[pause, sleep]);
    world.run(Operation::Wake(Parts::ALL)).unwrap();
    assert!(!world.facts.computes);
    assert_eq!(world.machine.standing().name(), "paused_wait");
    assert_eq!(world.run(Operation::Resume), Ok(Outcome::Done));
}

#[test]
fn r07_an_update_tells_every_rank_before_anything_runs() {
    let update = Operation::UpdateWeights { version: NEW, mode: PauseMode::Keep };
    let mut world = World::new(2);
    let all = log(&mut world, update.clone());
    let tail = ["LoadWeights", "rank 0 SetWeights", "rank 1 SetWeights", "Run"];
    assert_eq!(short(&all[6..]), tail);
    assert_eq!(world.machine.standing().version, NEW);
    // Between the two halves of a selective wake there is no KV to clear.
    let sleep = Operation::Sleep { level: SleepLevel::Discard, mode: PauseMode::Keep };
    let mut world = start(2, &[sleep, Operation::Wake(Parts::WEIGHTS)]);
    assert_eq!(world.machine.standing().weights, WeightsAt::Blank);
    assert!(world.run(Operation::Resume).is_err(), "nothing runs without weights");
    let some = log(&mut world, update);
    assert_eq!(short(&some), ["LoadWeights", "rank 0 SetWeights", "rank 1 SetWeights"]);
    let rest = log(&mut world, Operation::Wake(Parts::KV));
    assert_eq!(rest.last().map(String::as_str), Some("Run"));
}

#[test]
fn s02_sleep_and_wake_are_idempotent() {
    let sleep = Operation::Sleep { level: SleepLevel::Offload, mode: PauseMode::Keep };
    let mut world = start(1, std::slice::from_ref(&sleep));
    assert!(log(&mut world, sleep).is_empty());
    world.run(Operation::Wake(Parts::ALL)).unwrap();
    assert!(log(&mut world, Operation::Wake(Parts::ALL)).is_empty());
    assert!(log(&mut world, Operation::Resume).is_empty());
}
