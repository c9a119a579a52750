//! Fleets whose engines differ, or are too many.

use super::build::{BEGIN, fleet};
use super::story::{Story, UNTIL, Which};
use super::with_stock::keep_clear;
use crate::plan::{DataKind, Happening, Kind, ModelPlan, Plan, Side};

fn shaped(scenario: &str, seed: u64, tps: &[u32], pps: &[u32], model: ModelPlan) -> Story {
    let mut story = Story::of(scenario, seed, |draw| {
        let mut fleet = fleet(model, 1, 2);
        for engine in &mut fleet.engines {
            (engine.tp, engine.pp) = (draw.pick(tps), draw.pick(pps));
        }
        let (p, d) = (&fleet.engines[0], &fleet.engines[1]);
        let equal = (tps.len() > 1 && p.tp == d.tp) || (pps.len() > 1 && p.pp == d.pp);
        if equal {
            let (most_tp, most_pp) = (tps[tps.len() - 1], pps[pps.len() - 1]);
            let p = &mut fleet.engines[0];
            p.tp = if p.tp == most_tp { tps[0] } else { most_tp };
            p.pp = if p.pp == most_pp { pps[0] } else { most_pp };
        }
        fleet
    });
    story = story.load(14);
    // The ranks of one D pull at different times: the first may have all before the last asks.
    story.plan.odds.latency_max_ms = story.draw.pick(&[3, 60]);
    story.plan.odds.bandwidth = story.draw.pick(&[16, 4_096]);
    story.plan.odds.piece = story.draw.pick(&[512, 4_096]);
    // One of several ranks fails, some writes last longer than others, some loads are dropped;
    // or all is calm, and nothing may fail.
    let stormy = story.draw.one_in(2);
    if stormy {
        story.plan.odds.write_fails = story.draw.few(0, 2_000);
        story.plan.odds.write_stalls = story.draw.few(0, 3_000);
        story.plan.odds.stall_ms = 400;
    }
    for request in &mut story.plan.requests {
        if stormy && story.draw.one_in(6) {
            request.leaves_at_ms = Some(request.at_ms + story.draw.between(5, 300));
        }
    }
    story
}

/// P and D have different numbers of TP ranks: several P ranks write one load, several D ranks
/// read one transfer. What `freed-at-first-failure`, `first-answer-ends-load` and
/// `drop-hits-any-grant` need.
pub fn unequal_tp(seed: u64) -> Plan {
    shaped("unequal-tp", seed, &[1, 2, 4], &[1], ModelPlan::Dense).done()
}

/// Different numbers of pipeline stages: what `stages-miscounted` needs.
pub fn unequal_pp(seed: u64) -> Plan {
    let mut story = shaped("unequal-pp", seed, &[1], &[1, 2], ModelPlan::Dense);
    if story.draw.one_in(2) {
        // One stage of D has all before the next one's write may start.
        story.plan.bounds.senders = 1;
        story.plan.odds.bandwidth = 4_096;
    }
    story.done()
}

/// Both differ.
pub fn unequal_both(seed: u64) -> Plan {
    shaped("unequal-both", seed, &[1, 2, 4], &[1, 2], ModelPlan::Dense).done()
}

/// Latent KV, which every TP rank has whole.
pub fn unequal_mla(seed: u64) -> Plan {
    shaped("unequal-tp-mla", seed, &[1, 2], &[1], ModelPlan::Mla).done()
}

/// More D ranks than P keeps layouts of, each coming back after others: what
/// `layouts-unbounded` and `miss-repeats-for-ever` need.
pub fn eviction_storm(seed: u64) -> Plan {
    let mut story = Story::new("eviction-storm", seed, 1, 4).load(40);
    story.plan.bounds.peer_layouts = story.draw.few(1, 2) as usize;
    for engine in story.engines(Which::Decode) {
        if story.draw.one_in(2) {
            story.plan.fleet.engines[usize::from(engine)].tp = 2;
        }
    }
    story.done()
}

/// Tables so small that they are full all the time.
pub fn full_tables(seed: u64) -> Plan {
    let mut story = Story::new("full-tables", seed, 2, 2).load(40);
    let bounds = &mut story.plan.bounds;
    bounds.max_transfers = story.draw.few(2, 6) as usize;
    bounds.max_remembered = story.draw.few(1, 3) as usize;
    bounds.max_peers = 1;
    bounds.peer_layouts = 1;
    (bounds.senders, bounds.senders_per_peer) = (1, 1);
    for request in &mut story.plan.requests {
        request.at_ms = BEGIN + (request.at_ms - BEGIN) / 4;
    }
    story.more(6, UNTIL, UNTIL + 2_000);
    story.done()
}

/// P runs `prefill`, D runs `decode`, and an engine of ours of each side takes part as well.
/// Loads are cut short and their blocks used again, P and D sleep, restart and evict.
///
/// Stock D: what `miss-to-old-peer` needs. Stock P: what `finish-taken-as-echo`,
/// `quarantine-skipped` and `stale-echo-accepted` need.
pub fn versions(scenario: &str, seed: u64, prefill: Kind, decode: Kind) -> Plan {
    let mut story = Story::new(scenario, seed, 2, 2).load(20);
    for (side, kind) in [(Side::Prefill, prefill), (Side::Decode, decode)] {
        let first = story.plan.fleet.engines.iter_mut().find(|engine| engine.side == side);
        first.expect("both sides have engines").kind = kind;
    }
    let (p, d) = (story.engines(Which::Prefill)[0], story.engines(Which::Decode)[0]);
    for request in &mut story.plan.requests {
        if story.draw.one_in(2) {
            (request.prefill, request.decode) = (p, d);
        }
        if story.draw.one_in(6) {
            request.leaves_at_ms = Some(request.at_ms + story.draw.between(5, 300));
        }
    }
    if story.draw.one_in(3) {
        story.plan.bounds.peer_layouts = 1;
    }
    let (engine, for_ms) = (story.one(Which::Both), story.lasts());
    let what = match story.draw.few(0, 3) {
        0 => Happening::Kill { engine, down_ms: Some(for_ms), moves: false },
        1 => Happening::sleep(engine, for_ms),
        2 => Happening::Reset { from: p, to: d },
        _ => Happening::Stop { engine, for_ms },
    };
    story.happens(what);
    story.more(6, UNTIL, UNTIL + 2_000);
    story.done()
}

/// Data planes that check remote keys only; grants are ended by fencing. D sleeps and wakes, and
/// loads are dropped under writes: what `keys-not-refreshed` needs.
pub fn adapter(seed: u64) -> Plan {
    let mut story = Story::new("adapter", seed, 2, 2).load(24);
    story.plan.data = DataKind::Keys;
    story.plan.odds.stale_lands = story.draw.one_in(2);
    story.plan.odds.write_stalls = story.draw.pick(&[0, 2_000]);
    story.plan.odds.stall_ms = 300;
    for request in &mut story.plan.requests {
        if story.draw.one_in(4) {
            request.leaves_at_ms = Some(request.at_ms + story.draw.between(5, 300));
        }
    }
    let (engine, for_ms) = (story.one(Which::Decode), story.draw.pick(&[20, 300, 1_000]));
    story.happens(Happening::sleep(engine, for_ms));
    let engine = story.one(Which::Both);
    story.happens(Happening::Kill { engine, down_ms: Some(for_ms), moves: false });
    story.more(8, UNTIL, UNTIL + 2_000);
    story.done()
}

/// A stock P whose writes stall; D gives loads up and uses their blocks again at once, so that
/// only closed blocks keep late writes out: what `quarantine-skipped` needs.
pub fn stock_late_writes(seed: u64) -> Plan {
    let mut story = Story::new("stock-late-writes", seed, 1, 1).load(30);
    for engine in &mut story.plan.fleet.engines {
        match engine.side {
            Side::Prefill => engine.kind = Kind::Stock33,
            _ => engine.blocks = 30,
        }
    }
    story.plan.odds.write_stalls = 5_000;
    story.plan.odds.stall_ms = story.draw.pick(&[300, 1_000]);
    story.plan.odds.piece = 64;
    for request in &mut story.plan.requests {
        if story.draw.one_in(2) {
            request.leaves_at_ms = Some(request.at_ms + story.draw.between(10, 120));
        }
    }
    keep_clear(&mut story.plan);
    story.done()
}
