//! Writes that are slow, stall, fail, or come late.

use super::story::{Story, UNTIL, Which};
use crate::plan::{Happening, Plan};
use crate::sites;

/// Slow and stalled writes: they outlive their timeouts and the holds that they read, engines
/// release what is being written, and D gives up under them. What `expiry-during-write`,
/// `abort-acked-before-drained`, `write-after-deadline` and `grant-outlives-revoke` need.
pub fn slow(seed: u64) -> Plan {
    let mut story = Story::new("slow-writers", seed, 2, 2).load(20);
    let odds = &mut story.plan.odds;
    odds.bandwidth = story.draw.pick(&[1, 2, 8]);
    odds.write_stalls = story.draw.pick(&[300, 1_000, 4_000]);
    odds.stall_ms = story.draw.pick(&[200, 2_000, 6_000]);
    let bounds = &mut story.plan.bounds;
    (bounds.hold_ms, bounds.load_ms, bounds.write_ms) =
        (story.draw.between(600, 7_000), story.draw.between(1_500, 5_000), 3_000);
    if story.draw.one_in(3) {
        bounds.write_ms = story.draw.between(100, 800);
    }
    bounds.senders = story.draw.few(1, 4) as usize;
    bounds.senders_per_peer = 1;
    for request in &mut story.plan.requests {
        if story.draw.one_in(4) {
            request.leaves_at_ms = Some(request.at_ms + story.draw.between(100, 2_000));
        }
    }
    for _ in 0..story.draw.few(0, 3) {
        let engine = story.one(Which::Prefill);
        story.happens(Happening::ReleaseAll { engine });
    }
    if story.draw.one_in(2) {
        story.sites(&[sites::CANCEL_IGNORED, sites::WRITE_LATE]);
    }
    story.done()
}

/// Writes fail again and again, or lose their last acknowledgement, and few may run at once:
/// what `slot-lost-on-failure` needs.
pub fn failing(seed: u64) -> Plan {
    let mut story = Story::new("failing-writes", seed, 1, 2).load(30);
    story.plan.odds.write_fails = story.draw.few(1_000, 5_000);
    let bounds = &mut story.plan.bounds;
    (bounds.senders, bounds.senders_per_peer) = (story.draw.few(1, 3) as usize, 1);
    if story.draw.one_in(3) {
        story.sites(&[sites::ACK_LOST]);
        story.plan.bounds.write_ms = 500;
    }
    if story.draw.one_in(3) {
        story.sites(&[sites::GRANT_REFUSED]);
    }
    story.done()
}

/// D gives loads up while late pieces of them still fly, and uses the blocks again at once:
/// what `grant-not-revoked` and `grant-outlives-revoke` need. Some go astray: what
/// `rows-not-checked` needs.
pub fn late(seed: u64) -> Plan {
    let mut story = Story::new("late-pieces", seed, 1, 2).load(30);
    story.plan.odds.write_stalls = 4_000;
    story.plan.odds.stall_ms = story.draw.pick(&[100, 1_000]);
    story.plan.odds.piece = 64;
    for engine in story.engines(Which::Decode) {
        story.plan.fleet.engines[usize::from(engine)].blocks = 20;
    }
    for request in &mut story.plan.requests {
        if story.draw.one_in(2) {
            request.leaves_at_ms = Some(request.at_ms + story.draw.between(10, 500));
        }
    }
    story.sites(&[sites::CANCEL_IGNORED, sites::REVOKE_SLOW, sites::PIECES_REVERSED]);
    if story.draw.one_in(2) {
        story.sites(&[sites::WRITE_STRAYS]);
    }
    story.more(6, UNTIL, UNTIL + 500);
    story.done()
}
