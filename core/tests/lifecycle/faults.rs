//! Every fault at every order of every operation in every state, enumerated.

use crate::starts::{operations, start, states};
use crate::world::{Fault, World};
use kvbaton_core::lifecycle::engine::{
    Bounds, Compute, Operation, OperationError, Outcome, Parts, PauseMode,
};
use std::time::Duration;

/// Calls `check` with the world before, the operation's name, the world after a run of it in
/// which the order of that number met the fault, and its answer.
fn each_fault(ranks: usize, faults: &[Fault], check: impl Fn(&str, &World, &Operation, World)) {
    let mut runs = 0;
    for (state, steps) in states() {
        let before = start(ranks, &steps);
        for (name, operation) in operations() {
            let mut calm = before.clone();
            calm.run(operation.clone()).ok();
            for number in 0..calm.log.len() {
                for &fault in faults {
                    let mut world = before.clone();
                    world.faults.insert(number, fault);
                    let id = world.ask(operation.clone());
                    world.settle();
                    assert_eq!(world.answers[&id].len(), 1, "one answer");
                    let what = format!("{name} in {state}: {fault:?} at {}", calm.log[number]);
                    check(&what, &before, &operation, world);
                    runs += 1;
                }
            }
        }
    }
    assert!(runs > 300, "{runs} runs");
}

fn answer(world: &World) -> crate::world::Answer {
    world.answers.values().next().expect("it was asked")[0].clone()
}

#[test]
fn s06_an_operation_that_fails_leaves_the_engine_and_every_rank_as_they_were() {
    for ranks in [1, 2, 4] {
        each_fault(ranks, &[Fault::Fail, Fault::Hang], |what, before, _, after| {
            match answer(&after) {
                Err(OperationError::NotUndone { why, .. }) => {
                    // Only weights that were overwritten or thrown away do not come back.
                    assert!(why.contains("the weights are"), "{what}: {why}");
                }
                Err(_) | Ok(Outcome::Reset { done: false, .. }) => {
                    assert_eq!(after.machine.standing(), before.machine.standing(), "{what}");
                    assert_eq!(after.facts, before.facts, "{what}");
                }
                // What was only to be waited for a while.
                Ok(_) => assert!(what.contains("Hang at rank") && what.contains("AwaitHolds")),
            }
        });
    }
}

#[test]
fn r05_a_resume_at_any_step_ends_what_is_pending_and_the_engine_runs() {
    each_fault(2, &[Fault::ResumeBefore, Fault::ResumeAfter], |what, _, operation, after| {
        let (answer, resume) = (answer(&after), after.answer(after.resumes[0]));
        match (&answer, &resume) {
            (_, Ok(_)) => {
                assert_eq!(after.machine.standing().compute, Compute::Running, "{what}");
                assert!(after.facts.computes && after.facts.admits, "{what}");
            }
            // It came too late, or the engine slept anyway.
            (_, Err(OperationError::NotPossible { .. })) => {
                assert!(!after.machine.standing().is_whole(), "{what}");
            }
            other => panic!("{what}: {other:?}"),
        }
        let quick = matches!(operation, Operation::AbortTransfers | Operation::AbortRequests(_));
        let pending = ["Freeze", "Finish", "Preempt", "AwaitBlocks", "Prepare", "ResetCache"];
        if !quick
            && *operation != Operation::Resume
            && what.contains("ResumeBefore")
            && pending.iter().any(|it| what.contains(it))
        {
            assert!(matches!(answer, Err(OperationError::Resumed { .. })), "{what}: {answer:?}");
        }
    });
}

#[test]
fn every_operation_ends_in_bounded_time_whatever_hangs() {
    let bounds = Bounds::default();
    let all = bounds.finish + bounds.drain + bounds.blocks + bounds.release + bounds.order * 12;
    each_fault(2, &[Fault::Hang], |what, before, _, after| {
        let took = after.now.since(before.now);
        assert!(took <= all + bounds.memory, "{what}: {took:?}");
    });
}

#[test]
fn s06_a_way_back_that_fails_too_leaves_an_engine_that_a_wake_brings_back() {
    let mut stuck = 0;
    for (state, steps) in states() {
        let before = start(2, &steps);
        for (name, operation) in operations() {
            let mut calm = before.clone();
            calm.run(operation.clone()).ok();
            for first in 0..calm.log.len() {
                let mut once = before.clone();
                once.faults.insert(first, Fault::Fail);
                once.run(operation.clone()).ok();
                for second in first + 1..once.log.len() {
                    let mut world = before.clone();
                    world.faults.extend([(first, Fault::Fail), (second, Fault::Fail)]);
                    let answer = world.run(operation.clone());
                    stuck += u32::from(matches!(answer, Err(OperationError::NotUndone { .. })));
                    world.faults.clear();
                    let what = format!("{name} in {state}: {:?}", world.log);
                    let update = Operation::UpdateWeights {
                        version: before.facts.version,
                        mode: PauseMode::Keep,
                    };
                    for operation in [Operation::Wake(Parts::ALL), update, Operation::Resume] {
                        world.run(operation).unwrap_or_else(|error| panic!("{what}: {error}"));
                    }
                    assert!(world.facts.computes && world.facts.admits, "{what}");
                }
            }
        }
    }
    assert!(stuck > 20, "{stuck}");
}

#[test]
fn a_timeout_names_what_was_waited_for_and_for_how_long() {
    let mut world = World::new(2);
    let pause = Operation::Pause { mode: PauseMode::Keep, clear: true };
    let mut calm = world.clone();
    calm.run(pause.clone()).unwrap();
    let number = calm.log.iter().position(|it| it == "AwaitBlocks").unwrap();
    world.faults.insert(number, Fault::Hang);
    let error = world.run(pause).unwrap_err();
    let OperationError::TimedOut { waited, ref users, .. } = error else { panic!("{error}") };
    assert_eq!(waited, Bounds::default().blocks);
    assert_eq!(*users, ["request r waits"]);
    let words = error.to_string();
    for part in ["pause", "30.0 s", "waiting for every block", "request r waits", "taken back"] {
        assert!(words.contains(part), "{words}");
    }
}

#[test]
fn r06_a_reset_that_cannot_happen_says_false_and_what_is_in_the_way() {
    let mut world = World::new(1);
    let answer = world.run(Operation::ResetPrefixCache { running: false });
    let users = vec!["request r waits".to_owned()];
    assert_eq!(answer, Ok(Outcome::Reset { done: false, users: users.clone() }));
    let number = 4; // Freeze, AbortTransfers, Preempt, AwaitBlocks, ResetCache
    world.log.clear();
    world.faults.insert(number - 1, Fault::Hang);
    let answer = world.run(Operation::ResetPrefixCache { running: true });
    assert_eq!(answer, Ok(Outcome::Reset { done: false, users }));
    assert!(world.facts.computes, "it runs again");
    world.faults.clear();
    let answer = world.run(Operation::ResetPrefixCache { running: true });
    assert_eq!(answer, Ok(Outcome::Reset { done: true, users: vec![] }));
}

#[test]
fn a_second_operation_is_told_what_the_engine_is_busy_with() {
    let mut world = World::new(1);
    let sleep = crate::starts::states()[5].1[0].clone();
    let first = world.ask(sleep.clone());
    let same = world.ask(sleep);
    world.now = world.now + Duration::from_secs(2);
    let other = world.ask(Operation::Pause { mode: PauseMode::Abort, clear: false });
    world.settle();
    assert_eq!(world.answer(first), Ok(Outcome::Done));
    assert_eq!(world.answer(same), Ok(Outcome::Done), "asked twice, done once");
    let error = world.answer(other).unwrap_err().to_string();
    assert!(error.contains("busy with sleep") && error.contains("2.0 s"), "{error}");
}
