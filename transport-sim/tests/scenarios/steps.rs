//! Every fault at every step of every operation, one world for each.

use crate::support::run;
use kvbaton_core::lifecycle::engine::{EngineOrder, RankOrder};
use kvbaton_transport_sim::history::{Event, Lane, What};
use kvbaton_transport_sim::plan::{
    EnginePlan, Fleet, Happening, ModelPlan, PauseMode, Plan, Planned, Quirk, RequestPlan, Side,
    WakeOrder,
};

/// When the operation begins, in milliseconds: requests run, are held, are loaded.
const BEGIN: u64 = 340;
/// How long the plan waits for an order.
const WITHIN: u64 = 4_000;

const P: u16 = 0;
const D: u16 = 1;

/// One P, one D, a dozen requests.
fn world(tp: u32, what: Happening) -> Plan {
    let engine = |side| EnginePlan { tp, recompute: false, ..EnginePlan::new(side) };
    let engines = vec![engine(Side::Prefill), engine(Side::Decode)];
    let mut plan = Plan::new("steps", 1, Fleet { model: ModelPlan::Dense, engines });
    plan.odds.bandwidth = 16;
    plan.happenings = vec![Planned { at_ms: BEGIN, what }];
    plan.requests = (0..12)
        .map(|id| RequestPlan {
            id,
            at_ms: 300 + u64::from(id) * 6,
            family: 0,
            prompt_len: 10 + id % 9,
            shared_len: 0,
            max_tokens: 2,
            prefill: P,
            decode: D,
            leaves_at_ms: None,
            retries: 3,
            quirk: Quirk::None,
        })
        .collect();
    plan
}

/// The orders that an engine and its ranks are given, and whether each may fail.
fn orders(events: &[Event], engine: u16) -> Vec<bool> {
    let mut orders = Vec::new();
    for event in events {
        let (number, may_fail) = match (&event.what, event.lane) {
            (What::EngineTold { number, order }, Lane::Engine(this)) if this == engine => {
                let never = matches!(
                    order,
                    EngineOrder::Run
                        | EngineOrder::Freeze
                        | EngineOrder::Preempt
                        | EngineOrder::Abort(_)
                );
                (*number, !never)
            }
            (What::RankTold { number, order }, Lane::Node(node)) if node.engine == engine => {
                (*number, *order != RankOrder::Cancel)
            }
            _ => continue,
        };
        assert_eq!(number as usize, orders.len(), "orders are counted");
        orders.push(may_fail);
    }
    orders
}

/// What happens while an order is carried out.
fn faults(engine: u16) -> Vec<Vec<Happening>> {
    let other = P + D - engine;
    let kill = |engine| Happening::Kill { engine, down_ms: Some(50), moves: false };
    let cut = |from, to| Happening::Cut { from, to, for_ms: 500 };
    vec![
        vec![Happening::Resume { engine }],
        vec![kill(engine)],
        vec![kill(other)],
        vec![cut(engine, other), cut(other, engine)],
        vec![Happening::AbortRequests { engine }],
    ]
}

/// Runs a world for each order and each fault; how many.
fn every_step(tp: u32, operation: &Happening, engine: u16) -> u32 {
    let calm = world(tp, operation.clone());
    let orders = orders(&run(&calm), engine);
    assert!(orders.len() > 1, "{operation}: {} orders", orders.len());
    let mut worlds = 0;
    for (order, may_fail) in (0..).zip(orders) {
        let mut all: Vec<Vec<Happening>> = Vec::new();
        for then in faults(engine) {
            let at = |then| Happening::AtOrder {
                engine,
                order,
                within_ms: WITHIN,
                then: Box::new(then),
            };
            all.push(then.into_iter().map(at).collect());
        }
        if may_fail {
            all.push(vec![Happening::FailOrder { engine, order, within_ms: WITHIN }]);
        }
        for faults in all {
            let mut plan = calm.clone();
            let first = faults.iter().cloned().map(|what| Planned { at_ms: 0, what });
            plan.happenings.splice(0..0, first);
            let events = run(&plan);
            let sprung = |it: &Event| match &it.what {
                What::Happens { begins: true, index, .. } => {
                    *index < faults.len() && it.at < WITHIN * 1_000_000
                }
                _ => false,
            };
            assert!(events.iter().any(sprung), "{}", faults[0]);
            worlds += 1;
        }
    }
    worlds
}

fn sleep(engine: u16, level: u8, mode: PauseMode, wake: WakeOrder) -> Happening {
    Happening::Sleep { engine, for_ms: 30, level, mode, wake }
}

fn pause(engine: u16, mode: PauseMode, clear: bool) -> Happening {
    Happening::Pause { engine, mode, clear, for_ms: 30 }
}

#[test]
fn r05_s01_every_step_of_a_pause() {
    let mut worlds = 0;
    for engine in [P, D] {
        for mode in PauseMode::ALL {
            worlds += every_step(1, &pause(engine, mode, true), engine);
        }
        worlds += every_step(1, &Happening::ResetCache { engine, running: true }, engine);
    }
    assert!(worlds > 200, "{worlds} worlds");
}

#[test]
fn s01_s05_s06_every_step_of_a_sleep() {
    let mut worlds = 0;
    for engine in [P, D] {
        worlds += every_step(1, &sleep(engine, 1, PauseMode::Keep, WakeOrder::KvFirst), engine);
        worlds +=
            every_step(1, &sleep(engine, 2, PauseMode::Wait, WakeOrder::WeightsFirst), engine);
        let release = Happening::ReleaseKv { engine, mode: PauseMode::Abort, for_ms: 30 };
        worlds += every_step(1, &release, engine);
    }
    assert!(worlds > 200, "{worlds} worlds");
}

#[test]
fn r07_every_step_of_a_weight_update() {
    let mut worlds = 0;
    for (engine, sleep) in [(P, false), (D, false), (P, true), (D, true)] {
        worlds += every_step(1, &Happening::UpdateWeights { for_ms: 30, sleep }, engine);
    }
    assert!(worlds > 100, "{worlds} worlds");
}

#[test]
fn s06_every_step_of_a_sleep_over_several_ranks() {
    let mut worlds = 0;
    for (tp, engine) in [(2, P), (2, D), (4, D)] {
        worlds += every_step(tp, &sleep(engine, 1, PauseMode::Keep, WakeOrder::All), engine);
    }
    assert!(worlds > 200, "{worlds} worlds");
}
