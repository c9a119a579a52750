//! Processes that die and come back, or do not.

use super::story::{LONG_AFTER, Story, UNTIL, Which};
use crate::plan::{Happening, Plan, Quirk};

fn restart(engine: u16, down_ms: u64) -> Happening {
    Happening::Kill { engine, down_ms: Some(down_ms), moves: false }
}

/// P restarts at its address, and some of D's requests still name the process before it:
/// what `old-run-served` needs.
pub fn prefill(seed: u64) -> Plan {
    let mut story = Story::new("restart-prefill", seed, 2, 1).load(24);
    for request in &mut story.plan.requests {
        if story.draw.one_in(4) {
            request.quirk = Quirk::DecodeLate(story.draw.between(50, 2_000));
        }
    }
    for _ in 0..story.draw.few(1, 3) {
        let (engine, down) = (story.one(Which::Prefill), story.lasts());
        story.happens(restart(engine, down));
    }
    story.done()
}

/// D restarts on the same host and port; `wake-keeps-layout-id` shows in its new pulls.
pub fn decode(seed: u64) -> Plan {
    let mut story = Story::new("restart-decode", seed, 1, 2).load(24);
    story.plan.bounds.hold_ms = 3_000;
    for _ in 0..story.draw.few(1, 3) {
        let (engine, down) = (story.one(Which::Decode), story.lasts());
        story.happens(restart(engine, down));
    }
    story.done()
}

/// Both sides restart, perhaps at once.
pub fn both(seed: u64) -> Plan {
    let mut story = Story::new("restart-both", seed, 2, 2).load(24);
    let at = story.some_time();
    for which in [Which::Prefill, Which::Decode] {
        let (engine, down) = (story.one(which), story.lasts());
        let late = story.draw.pick(&[0, 0, 30, 500]);
        story.at(at + late, restart(engine, down));
    }
    story.done()
}

/// An engine comes back at another address, as another engine.
pub fn elsewhere(seed: u64) -> Plan {
    let mut story = Story::new("restart-elsewhere", seed, 2, 2).load(24);
    for _ in 0..2 {
        let (engine, down) = (story.one(Which::Both), story.lasts());
        story.happens(Happening::Kill { engine, down_ms: Some(down), moves: true });
    }
    story.done()
}

/// P comes back at another address under its engine id, and D remembers the old one:
/// what `engine-kept-when-unreachable` needs.
pub fn moved(seed: u64) -> Plan {
    let mut story = Story::new("moved", seed, 1, 2).load(16);
    let (engine, down_ms) = (story.one(Which::Prefill), story.lasts());
    story.at(UNTIL, Happening::Move { engine, down_ms });
    story.more(8, UNTIL + down_ms, UNTIL + down_ms + 3_000);
    // Each D finds out soon: its first load after the move may still fail.
    for request in story.plan.requests.iter_mut().filter(|it| it.at_ms >= UNTIL) {
        request.decode = 1 + (request.id % 2) as u16;
    }
    story.more(4, LONG_AFTER, LONG_AFTER + 1_000);
    story.done()
}

/// Every engine restarts, one after the other.
pub fn rolling(seed: u64) -> Plan {
    let mut story = Story::new("rolling-restart", seed, 2, 2).load(30);
    let (down, gap) = (story.draw.pick(&[50, 200, 500]), story.draw.between(0, 300));
    let mut at = 500;
    for engine in story.engines(Which::Both) {
        story.at(at, restart(engine, down));
        at += down + gap;
    }
    story.done()
}

/// Random engines are stopped one by one and go on in another order.
pub fn swizzle(seed: u64) -> Plan {
    let mut story = Story::new("swizzle", seed, 2, 3).load(30);
    let (mut at, end) = (story.draw.between(400, 900), story.draw.between(1_500, 6_000));
    for engine in story.engines(Which::Both) {
        if story.draw.one_in(3) {
            continue;
        }
        let goes_on = end + story.draw.between(0, 2_000);
        story.at(at, Happening::Stop { engine, for_ms: goes_on - at });
        at += story.draw.between(0, 200);
    }
    let first = story.one(Which::Decode);
    story.at(at, Happening::Stop { engine: first, for_ms: end + 100 - at });
    story.done()
}

/// A D that stopped reading, with more pulls than P has slots, beside one that reads: what
/// `one-peer-takes-all-slots` needs.
pub fn stopped_decode(seed: u64) -> Plan {
    let mut story = Story::new("stopped-decode", seed, 1, 2).load(30);
    // Pulls that wait for a slot until their deadline.
    story.plan.bounds.load_ms = 5_000;
    let (engine, for_ms) = (story.one(Which::Decode), story.draw.between(3_000, 8_000));
    let at = story.draw.between(400, 1_000);
    // A burst of loads whose writes find a process that does not go on.
    for request in &mut story.plan.requests {
        if request.decode == engine && request.at_ms < UNTIL {
            request.at_ms = at.saturating_sub(story.draw.between(0, 60));
        }
    }
    story.at(at, Happening::Stop { engine, for_ms });
    story.done()
}

/// One engine dies for good; what the others owed it must end.
pub fn one_dead(seed: u64) -> Plan {
    let mut story = Story::new("one-peer-dead", seed, 2, 2).load(24);
    story.plan.bounds.hold_ms = story.draw.pick(&[2_000, 6_000]);
    let engine = story.one(Which::Both);
    story.happens(Happening::Kill { engine, down_ms: None, moves: false });
    story.done()
}

/// Bootstrap servers forget, and a D that knows no P yet asks them afterwards: what
/// `announced-once` needs.
pub fn bootstrap(seed: u64) -> Plan {
    let mut story = Story::new("bootstrap-restarts", seed, 2, 2).load(16);
    for _ in 0..story.draw.few(1, 3) {
        let engine = story.one(Which::Prefill);
        story.happens(Happening::ForgetDirectory { engine });
    }
    for engine in story.engines(Which::Prefill) {
        story.at(UNTIL, Happening::ForgetDirectory { engine });
    }
    let engine = story.one(Which::Decode);
    story.at(UNTIL, restart(engine, 100));
    story.more(10, UNTIL + 200, UNTIL + 6_000);
    story.more(4, LONG_AFTER, LONG_AFTER + 1_000);
    if story.draw.one_in(2) {
        story.sites(&[crate::sites::BOOTSTRAP_REFUSES, crate::sites::BOOTSTRAP_SLOW]);
    }
    story.done()
}
