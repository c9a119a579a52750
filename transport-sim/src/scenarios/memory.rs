//! Memory that goes and comes back, and weights that change.

use super::build::fleet;
use super::story::{LONG_AFTER, Story, UNTIL, Which};
use crate::plan::{Happening, Kind, ModelPlan, Plan, Quirk, Side};
use crate::sites;

fn asleep(scenario: &str, seed: u64, which: Which) -> Story {
    let mut story = Story::new(scenario, seed, 2, 2).load(24);
    for _ in 0..story.draw.few(1, 2) {
        let (at, for_ms) = (story.some_time(), story.draw.pick(&[1, 20, 300, 2_000]));
        for engine in story.engines(which) {
            let late = story.draw.pick(&[0, 0, 50]);
            let what = match story.draw.one_in(4) {
                true => Happening::Reregister { engine, for_ms },
                false => Happening::sleep(engine, for_ms),
            };
            story.at(at + late, what);
        }
    }
    story.plan.odds.latency_max_ms = story.draw.pick(&[3, 60]);
    story.plan.odds.stale_lands = story.draw.one_in(2);
    if story.draw.one_in(3) {
        story.sites(&[sites::UNREGISTER_SLOW, sites::REGISTER_REFUSED]);
    }
    if story.draw.one_in(2) {
        story.sites(&[sites::COMPUTE_SLOW, sites::HOLD_LATE]);
    }
    story.more(8, UNTIL, UNTIL + 3_000);
    story
}

/// P sleeps with requests held and pulls under way, and wakes with new memory: what
/// `layouts-outlive-registration`, `miss-repeats-for-ever` and `unregister-without-drain` need.
pub fn prefill(seed: u64) -> Plan {
    asleep("sleep-prefill", seed, Which::Prefill).done()
}

/// D sleeps with loads under way; answers of P and pieces of writes come late, after the wake:
/// what `stale-echo-accepted`, `echoes-outlive-registration`, `wake-keeps-layout-id`,
/// `generation-not-checked` and `pages-kept-over-wake` need.
pub fn decode(seed: u64) -> Plan {
    let mut story = asleep("sleep-decode", seed, Which::Decode);
    let odds = &mut story.plan.odds;
    (odds.reordering, odds.delay_ms) = (story.draw.pick(&[0, 3_000]), 1_500);
    odds.write_stalls = story.draw.pick(&[0, 3_000]);
    odds.stall_ms = story.draw.pick(&[200, 1_500]);
    if story.draw.one_in(2) {
        story.sites(&[sites::WRITE_STALE]);
    }
    story.done()
}

/// D sleeps again and again, for moments, beside a stock P that knows no drops: its answers to
/// loads that were cut short come after the wake, and their blocks are used again. What
/// `stale-echo-accepted` and `quarantine-skipped` need.
pub fn decode_of_stock(seed: u64) -> Plan {
    let mut story = Story::new("sleep-decode-stock-prefill", seed, 1, 2).load(30);
    story.plan.fleet.engines[0].kind = Kind::Stock33;
    story.plan.odds.bandwidth = story.draw.pick(&[2, 8]);
    for engine in story.engines(Which::Decode) {
        story.plan.fleet.engines[usize::from(engine)].blocks = story.draw.few(20, 64);
        for _ in 0..3 {
            let for_ms = story.draw.pick(&[1, 10, 100]);
            story.happens(Happening::sleep(engine, for_ms));
        }
    }
    for request in &mut story.plan.requests {
        if story.draw.one_in(3) {
            request.quirk = Quirk::PrefillLate(story.draw.between(20, 600));
        }
        if story.draw.one_in(4) {
            request.leaves_at_ms = Some(request.at_ms + story.draw.between(20, 300));
        }
    }
    story.done()
}

/// All engines sleep at about the same time.
pub fn both(seed: u64) -> Plan {
    asleep("sleep-both", seed, Which::Both).done()
}

/// Several ranks sleep together, and now and then one of them cannot: all stay as they were.
pub fn refused(seed: u64) -> Plan {
    let mut story = asleep("sleep-refused", seed, Which::Both);
    for engine in &mut story.plan.fleet.engines {
        engine.tp = 2;
    }
    story.plan.bounds.drain_ms = story.draw.pick(&[50, 4_000]);
    story.sites(&[sites::UNREGISTER_FAILS, sites::CANCEL_IGNORED]);
    story.done()
}

/// Engines that prefill and decode fall asleep while loads hold memory for longer than the drain
/// may take, stay awake, and must still hold what they prefill: what `freeze-not-thawed` needs.
pub fn both_roles(seed: u64) -> Plan {
    let mut story = Story::of("sleep-both-roles", seed, |_| {
        let mut fleet = fleet(ModelPlan::Dense, 1, 2);
        fleet.engines.iter_mut().for_each(|engine| engine.side = Side::Both);
        fleet
    })
    .load(40);
    story.plan.bounds.drain_ms = story.draw.pick(&[5, 10, 50, 4_000]);
    story.sites(&[sites::REVOKE_SLOW]);
    for _ in 0..12 {
        let engine = story.one(Which::Both);
        let for_ms = story.draw.pick(&[20, 300]);
        // A sleep clears everything first: only this drains beside what runs.
        let what = match story.draw.one_in(4) {
            true => Happening::sleep(engine, for_ms),
            false => Happening::Reregister { engine, for_ms },
        };
        story.happens(what);
    }
    story.more(10, LONG_AFTER, LONG_AFTER + 1_000);
    story.done()
}

fn weights(scenario: &str, seed: u64, sleep: bool) -> Plan {
    let mut story = Story::new(scenario, seed, 2, 2).load(20);
    for _ in 0..story.draw.few(1, 2) {
        let for_ms = story.draw.pick(&[10, 200, 1_500]);
        story.happens(Happening::UpdateWeights { for_ms, sleep });
    }
    if story.draw.one_in(2) {
        story.sites(&[sites::WEIGHTS_FIRST]);
    }
    // The same prompts before and after.
    for request in &mut story.plan.requests {
        request.shared_len = request.prompt_len;
        request.family = 0;
    }
    story.more(6, UNTIL, UNTIL + 2_000);
    story.done()
}

/// Weights change under load, memory stays.
pub fn updates(seed: u64) -> Plan {
    weights("weight-updates", seed, false)
}

/// Nodes hear of new weights while slow loads go on: what `load-outlives-weights` needs.
pub fn updates_first(seed: u64) -> Plan {
    let mut story = Story::new("weight-updates-first", seed, 2, 2).load(30);
    story.plan.odds.bandwidth = story.draw.pick(&[2, 4]);
    for _ in 0..5 {
        story.happens(Happening::UpdateWeights { for_ms: 1, sleep: false });
    }
    story.sites(&[sites::WEIGHTS_FIRST]);
    story.more(6, UNTIL, UNTIL + 2_000);
    story.done()
}

/// Weights change under load, while memory sleeps.
pub fn updates_asleep(seed: u64) -> Plan {
    weights("weight-updates-asleep", seed, true)
}
