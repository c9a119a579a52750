//! Operations of engines' lifecycles: cut short at any step, one after the other, at once.

use super::build::fleet;
use super::story::{Story, UNTIL, Which};
use crate::plan::{Happening, ModelPlan, PauseMode, Plan, Quirk, WakeOrder};
use crate::sites;

/// How long a plan waits for an order.
const WITHIN: u64 = 8_000;

/// Any operation that has several steps.
fn operation(story: &mut Story, engine: u16) -> Happening {
    let mode = story.draw.pick(&PauseMode::ALL);
    let for_ms = story.draw.pick(&[1, 20, 300]);
    match story.draw.few(0, 5) {
        0 => Happening::Pause { engine, mode, clear: true, for_ms },
        1 => Happening::ReleaseKv { engine, mode, for_ms },
        2 => Happening::ResetCache { engine, running: true },
        3 => Happening::UpdateWeights { for_ms, sleep: story.draw.one_in(2) },
        _ => {
            let all = [WakeOrder::All, WakeOrder::WeightsFirst, WakeOrder::KvFirst];
            let (wake, level) = (story.draw.pick(&all), story.draw.few(1, 2) as u8);
            Happening::Sleep { engine, for_ms, level, mode, wake }
        }
    }
}

/// An operation, and something that happens while one of its orders is carried out, or an order
/// that fails; over several ranks.
pub fn steps(seed: u64) -> Plan {
    let mut story = Story::of("lifecycle-steps", seed, |draw| {
        let mut fleet = fleet(ModelPlan::Dense, 1, 1);
        for engine in &mut fleet.engines {
            engine.tp = draw.pick(&[1, 2, 2, 4]);
            engine.recompute = draw.one_in(2);
        }
        fleet
    })
    .load(16);
    let engine = story.one(Which::Both);
    let what = operation(&mut story, engine);
    story.happens(what);
    // The steps that unregister come after those that clear.
    let tp = story.plan.fleet.engines[usize::from(engine)].tp;
    let order = story.draw.few(0, 5 * tp + 8);
    let down_ms = Some(story.draw.pick(&[20, 300]));
    let other = 1 - engine;
    let then = match story.draw.few(0, 6) {
        0 => Happening::Kill { engine, down_ms, moves: false },
        1 => Happening::Kill { engine: other, down_ms, moves: false },
        2 => Happening::Cut { from: engine, to: other, for_ms: 500 },
        3 => Happening::AbortRequests { engine },
        _ => Happening::Resume { engine },
    };
    let struck = match story.draw.one_in(4) {
        true => Happening::FailOrder { engine, order, within_ms: WITHIN },
        false => Happening::AtOrder { engine, order, within_ms: WITHIN, then: Box::new(then) },
    };
    story.at(0, struck);
    if story.draw.one_in(3) {
        story.sites(&[sites::UNREGISTER_SLOW, sites::MEMORY_SLOW]);
    }
    story.more(6, UNTIL, UNTIL + 1_000);
    story.done()
}

/// An engine of several ranks is resumed while they are being prepared for its sleep: what
/// `resume-keeps-prepared` and `commit-before-prepared` need.
pub fn resumed(seed: u64) -> Plan {
    let mut story = Story::of("sleep-resumed", seed, |draw| {
        let mut fleet = fleet(ModelPlan::Dense, 1, 1);
        fleet.engines.iter_mut().for_each(|engine| engine.tp = draw.pick(&[2, 4]));
        fleet
    })
    .load(30);
    let engine = story.one(Which::Both);
    story.happens(Happening::sleep(engine, 20));
    // To stop, to abort transfers on each rank, to preempt, to wait, to reset come before.
    let tp = story.plan.fleet.engines[usize::from(engine)].tp;
    let order = story.draw.few(tp + 4, 2 * tp + 3);
    let then = Box::new(Happening::Resume { engine });
    story.at(0, Happening::AtOrder { engine, order, within_ms: WITHIN, then });
    story.more(6, UNTIL, UNTIL + 3_000);
    story.done()
}

/// Operations of every kind on all engines, some of them at once; resumes at any moment.
pub fn any(seed: u64) -> Plan {
    let mut story = Story::new("lifecycle-any", seed, 2, 2).load(24);
    for engine in &mut story.plan.fleet.engines {
        engine.recompute = story.draw.one_in(2);
    }
    for _ in 0..story.draw.few(2, 5) {
        let engine = story.one(Which::Both);
        let what = operation(&mut story, engine);
        story.happens(what);
    }
    for _ in 0..story.draw.few(1, 4) {
        let engine = story.one(Which::Both);
        let what = match story.draw.few(0, 3) {
            0 => Happening::AbortTransfers { engine },
            1 => Happening::AbortRequests { engine },
            2 => Happening::ResetCache { engine, running: false },
            _ => Happening::Resume { engine },
        };
        story.happens(what);
    }
    if story.draw.one_in(2) {
        story.sites(&[sites::MEMORY_FAILS, sites::MEMORY_SLOW, sites::REGISTER_REFUSED]);
    }
    story.more(6, UNTIL, UNTIL + 1_000);
    story.done()
}

/// Resets of P and of D under loads, where D computes nothing itself that could not be loaded:
/// what `reset-fails-loads` needs.
pub fn resets(seed: u64) -> Plan {
    let mut story = Story::new("resets", seed, 2, 2).load(24);
    for engine in &mut story.plan.fleet.engines {
        engine.recompute = false;
    }
    for _ in 0..story.draw.few(1, 3) {
        let engine = story.one(Which::Both);
        let (mode, for_ms) = (PauseMode::Keep, story.draw.pick(&[20, 300]));
        let what = match story.draw.few(0, 3) {
            0 => Happening::AbortTransfers { engine },
            1 => Happening::ResetCache { engine, running: true },
            2 => Happening::UpdateWeights { for_ms, sleep: false },
            _ => Happening::Pause { engine, mode, clear: true, for_ms },
        };
        story.happens(what);
    }
    story.more(6, UNTIL, UNTIL + 1_000);
    story.done()
}

/// P pauses in mode `wait`, and clears, with all held and D late: within the drain budget D
/// still gets everything.
pub fn drained(seed: u64) -> Plan {
    let mut story = Story::new("wait-before-pull", seed, 1, 1);
    story.plan.fleet.engines.iter_mut().for_each(|engine| engine.blocks = 400);
    story.more(20, 300, 400);
    for request in &mut story.plan.requests {
        request.quirk = Quirk::DecodeLate(story.draw.between(300, 900));
    }
    let mode = PauseMode::Wait;
    story.plan.bounds.pulls_ms = 4_000;
    story.at(600, Happening::Pause { engine: 0, mode, clear: true, for_ms: 20 });
    story.done()
}
