//! What operations of an engine's lifecycle promise, seen in histories. Oracles judge the same
//! in every run; these say that it came to it.

use crate::support::{plans, run};
use kvbaton_core::lifecycle::engine::{EngineOrder, Operation, OperationError, Outcome, RankOrder};
use kvbaton_transport_sim::history::{Event, Lane, LoadFact, NodeId, What};
use kvbaton_transport_sim::plan::{Happening, Plan, Planned};
use kvbaton_transport_sim::sites;
use std::collections::{BTreeMap, BTreeSet};

/// Plans whose writes are so slow that whatever happens finds some under way.
fn slow(name: &str) -> impl Iterator<Item = Plan> {
    plans(name).map(|mut plan| {
        plan.odds.bandwidth = 2;
        plan
    })
}

/// An operation of a run.
struct Ran<'a> {
    engine: u16,
    what: &'a Operation,
    end: &'a Result<Outcome, OperationError>,
    /// Places of its question and its answer.
    from: usize,
    to: usize,
}

fn operations(events: &[Event]) -> Vec<Ran<'_>> {
    let mut open = BTreeMap::new();
    let mut all = Vec::new();
    for (at, event) in events.iter().enumerate() {
        match (&event.what, event.lane) {
            (What::OperationAsked { id, what }, Lane::Engine(engine)) => {
                open.insert(*id, (engine, what, at));
            }
            (What::OperationEnded { id, end }, _) => {
                let (engine, what, from) = open.remove(id).expect("it was asked");
                all.push(Ran { engine, what, end, from, to: at });
            }
            _ => {}
        }
    }
    all
}

fn node_of(event: &Event, engine: u16) -> Option<NodeId> {
    match event.lane {
        Lane::Node(node) if node.engine == engine => Some(node),
        _ => None,
    }
}

#[test]
fn s06_a_rank_that_cannot_unregister_brings_every_rank_back_under_a_new_generation() {
    let (mut failed, mut back) = (0, 0);
    for mut plan in plans("sleep-refused") {
        plan.sites = BTreeSet::from([sites::UNREGISTER_FAILS.to_owned()]);
        let events = run(&plan);
        for it in operations(&events) {
            let Err(OperationError::Failed { step, .. }) = it.end else { continue };
            if *step != "unregistering memory" {
                continue;
            }
            failed += 1;
            let mut gone = BTreeMap::new();
            for event in &events[it.from..it.to] {
                let Some(node) = node_of(event, it.engine) else { continue };
                match event.what {
                    What::Unregistered { generation } => drop(gone.insert(node, generation)),
                    What::Registered { generation } => {
                        let old = gone.remove(&node).expect("it registers what it gave up");
                        assert_ne!(old, generation, "seed {}", plan.seed);
                        back += 1;
                    }
                    _ => {}
                }
            }
            assert!(gone.is_empty(), "seed {}: {gone:?} stay unregistered", plan.seed);
        }
    }
    assert!(failed > 0 && back > 0, "{failed} releases failed, {back} ranks came back");
}

#[test]
fn r02_a_pause_that_clears_is_done_once_every_block_is_back() {
    let mut met = 0;
    for plan in slow("pause-keep-prefill") {
        let events = run(&plan);
        for it in operations(&events) {
            if !matches!(it.what, Operation::Pause { clear: true, .. }) || it.end.is_err() {
                continue;
            }
            let held = |until: usize| {
                let mut held = BTreeSet::new();
                for event in &events[..until] {
                    let Some(node) = node_of(event, it.engine) else { continue };
                    match &event.what {
                        What::Held { transfer, .. } => drop(held.insert((node, transfer.clone()))),
                        What::SendEnded { transfer, .. } => {
                            held.remove(&(node, transfer.clone()));
                        }
                        What::Killed => held.retain(|it| it.0 != node),
                        _ => {}
                    }
                }
                held
            };
            met += held(it.from).len();
            assert!(held(it.to).is_empty(), "seed {}: {:?}", plan.seed, held(it.to));
        }
    }
    assert!(met > 0, "no pause met a held request");
}

#[test]
fn r03_in_mode_wait_d_still_gets_what_it_pulls_in_the_drain_budget() {
    let mut pulled = 0;
    for mut plan in slow("pause-wait-prefill") {
        for planned in &mut plan.happenings {
            if let Happening::Pause { clear, .. } = &mut planned.what {
                *clear = true;
            }
        }
        plan.bounds.pulls_ms = 6_000;
        let events = run(&plan);
        for it in operations(&events) {
            let waits = |event: &&Event| {
                let told = &event.what;
                matches!(told, What::RankTold { order: RankOrder::AwaitHolds, .. })
                    && node_of(event, it.engine).is_some()
            };
            let Some(waits) = events[it.from..it.to].iter().find(waits) else { continue };
            let sent = events[it.from..it.to].iter().filter(|event| {
                event.at > waits.at
                    && node_of(event, it.engine).is_some()
                    && matches!(event.what, What::SendEnded { .. })
            });
            pulled += sent.count();
        }
    }
    assert!(pulled > 0, "nothing was pulled in a drain budget");
}

#[test]
fn r05_a_resume_ends_a_sleep_that_is_still_draining_at_once() {
    let mut resumed = 0;
    for mut plan in plans("sleep-prefill") {
        // Writes that go on for longer than blocks may take to come back.
        plan.sites = BTreeSet::from([sites::CANCEL_IGNORED.to_owned()]);
        plan.odds.bandwidth = 1;
        let sleeps = |it: &&Planned| matches!(it.what, Happening::Sleep { .. });
        let Some(first) = plan.happenings.iter().find(sleeps).cloned() else { continue };
        let Happening::Sleep { engine, .. } = first.what else { unreachable!("it sleeps") };
        let at_ms = first.at_ms + 5;
        plan.happenings = vec![first, Planned { at_ms, what: Happening::Resume { engine } }];
        let events = run(&plan);
        let all = operations(&events);
        let Some(sleep) = all.iter().find(|it| matches!(it.what, Operation::Sleep { .. })) else {
            continue;
        };
        let Err(OperationError::Resumed { .. }) = sleep.end else { continue };
        let resume = all.iter().find(|it| *it.what == Operation::Resume).expect("a resume");
        resumed += 1;
        assert_eq!(*resume.end, Ok(Outcome::Done), "seed {}", plan.seed);
        let late = events[sleep.to].at - events[resume.from].at;
        assert!(late < 10_000_000, "seed {}: after {late} ns", plan.seed);
    }
    assert!(resumed > 0, "no sleep was still draining");
}

#[test]
fn r06_a_reset_that_cannot_happen_says_what_has_blocks() {
    let mut refused = 0;
    for mut plan in slow("sleep-prefill") {
        plan.happenings = (0..40)
            .map(|it| Planned {
                at_ms: 400 + it * 60,
                what: Happening::ResetCache { engine: 0, running: false },
            })
            .collect();
        let events = run(&plan);
        for it in operations(&events) {
            let Ok(Outcome::Reset { done, users }) = it.end else { continue };
            assert_eq!(*done, users.is_empty(), "seed {}: {users:?}", plan.seed);
            if !done {
                refused += 1;
                assert!(users.iter().any(|it| it.contains("request ")), "{users:?}");
            }
        }
    }
    assert!(refused > 0, "nothing was in the way of a reset");
}

#[test]
fn r07_a_pull_of_kv_of_other_weights_is_refused_by_name() {
    let mut refused = 0;
    for plan in slow("weight-updates") {
        for event in run(&plan) {
            if let What::LoadEnded { end: LoadFact::Failed(why), .. } = &event.what {
                refused += u32::from(why.message.contains("weights"));
            }
        }
    }
    assert!(refused > 0, "no load was refused for its weights");
}

#[test]
fn s05_memory_is_unmapped_after_every_rank_has_unregistered() {
    let mut unmapped = 0;
    for plan in plans("sleep-refused") {
        let events = run(&plan);
        for (at, event) in events.iter().enumerate() {
            let (What::EngineTold { order, .. }, Lane::Engine(engine)) = (&event.what, event.lane)
            else {
                continue;
            };
            let EngineOrder::Unmap { part, .. } = order else { continue };
            if *part != kvbaton_core::lifecycle::engine::Part::Kv {
                continue;
            }
            unmapped += 1;
            let mut registered: BTreeMap<NodeId, bool> = BTreeMap::new();
            for event in &events[..at] {
                let Some(node) = node_of(event, engine) else { continue };
                match event.what {
                    What::Registered { .. } => drop(registered.insert(node, true)),
                    What::Unregistered { .. } => drop(registered.insert(node, false)),
                    _ => {}
                }
            }
            assert!(registered.values().all(|it| !it), "seed {}: {registered:?}", plan.seed);
        }
    }
    assert!(unmapped > 0, "nothing slept");
}
