//! Networks that lose, break and part.

use super::build::BEGIN;
use super::story::{Story, UNTIL, Which};
use crate::plan::{Happening, Plan};
use crate::sites;

/// Nothing passes between the sides, in either direction, more than once.
pub fn partition(seed: u64) -> Plan {
    let mut story = Story::new("partition", seed, 2, 2).load(24);
    for _ in 0..story.draw.few(1, 2) {
        let (at, for_ms) = (story.some_time(), story.draw.pick(&[200, 1_000, 5_000, 12_000]));
        for p in story.engines(Which::Prefill) {
            for d in story.engines(Which::Decode) {
                story.at(at, Happening::Cut { from: p, to: d, for_ms });
                story.at(at, Happening::Cut { from: d, to: p, for_ms });
            }
        }
    }
    story.done()
}

/// One direction is cut: pulls arrive and answers do not, or writes do not; or pulls vanish.
pub fn asymmetric(seed: u64) -> Plan {
    let mut story = Story::new("asymmetric-partition", seed, 2, 2).load(24);
    for _ in 0..story.draw.few(1, 3) {
        let (p, d) = (story.one(Which::Prefill), story.one(Which::Decode));
        let (from, to) = if story.draw.one_in(2) { (p, d) } else { (d, p) };
        let for_ms = story.draw.pick(&[300, 2_000, 10_000]);
        story.happens(Happening::Cut { from, to, for_ms });
    }
    story.done()
}

/// Messages are lost, doubled and overtaken.
pub fn lossy(seed: u64) -> Plan {
    let mut story = Story::new("lossy-network", seed, 2, 2).load(24);
    let odds = &mut story.plan.odds;
    (odds.loss, odds.duplication, odds.reordering) =
        (story.draw.few(100, 1_500), story.draw.few(0, 1_500), story.draw.few(0, 3_000));
    (odds.latency_max_ms, odds.delay_ms) =
        (story.draw.pick(&[3, 30]), story.draw.pick(&[20, 500, 2_000]));
    story.done()
}

/// Connections break by chance, and all of a pair at once; some cannot be made.
pub fn resets(seed: u64) -> Plan {
    let mut story = Story::new("connection-resets", seed, 2, 2).load(24);
    story.plan.odds.reset = story.draw.few(0, 1_500);
    for _ in 0..story.draw.few(3, 8) {
        let (p, d) = (story.one(Which::Prefill), story.one(Which::Decode));
        let (from, to) = if story.draw.one_in(2) { (p, d) } else { (d, p) };
        story.happens(Happening::Reset { from, to });
    }
    if story.draw.one_in(2) {
        story.sites(&[sites::CONNECT_REFUSED]);
    }
    story.done()
}

/// Everything is well for long; then, when caches are warm and nobody looks, one fault.
pub fn late_trap(seed: u64) -> Plan {
    const LATE: u64 = 60_000;
    let mut story = Story::new("late-trap", seed, 2, 2);
    story.plan.odds.bandwidth = story.draw.pick(&[8, 32, 128]);
    story.more(6, BEGIN, UNTIL);
    story.more(10, LATE, LATE + 1_000);
    let (p, d) = (story.one(Which::Prefill), story.one(Which::Decode));
    let (engine, for_ms) = (story.draw.pick(&[p, d]), story.lasts());
    let what = match story.draw.few(0, 6) {
        0 => Happening::Kill { engine, down_ms: Some(for_ms), moves: false },
        1 => Happening::Stop { engine, for_ms },
        2 => Happening::Cut { from: p, to: d, for_ms },
        3 => Happening::Reset { from: p, to: d },
        4 => Happening::sleep(engine, for_ms),
        5 => Happening::Move { engine: p, down_ms: for_ms },
        _ => Happening::UpdateWeights { for_ms, sleep: true },
    };
    let at = LATE + story.draw.between(0, 700);
    story.at(at, what);
    story.more(6, LATE + 5_000, LATE + 8_000);
    story.done()
}
