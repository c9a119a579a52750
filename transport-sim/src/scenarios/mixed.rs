//! The swarm: a run turns some faults off and gives the rest wildly different odds.

use super::build::{BEGIN, engines, happen, requests};
use super::draw::Draw;
use super::with_stock::with_stock;
use crate::plan::{
    EnginePlan, Fleet, Happening, ModelPlan, Odds, PauseMode, Plan, Quirk, Side, WakeOrder,
};
use crate::sites;

/// How long requests and faults keep coming, in milliseconds.
const STORY: u64 = 20_000;

/// The plan of a seed.
pub fn plan(seed: u64) -> Plan {
    let mut draw = Draw::new("mixed", seed);
    let fleet = fleet(&mut draw);
    let mut plan = Plan::new("mixed", seed, fleet);
    bounds(&mut plan, &mut draw);
    plan.odds = odds(&mut draw);
    let armed = sites::ALL.iter().filter(|_| draw.one_in(4)).map(|site| (*site).to_owned());
    plan.sites = armed.collect();
    let count = draw.few(6, 30);
    requests(&mut plan, &mut draw, count, (BEGIN, STORY));
    quirks(&mut plan, &mut draw);
    happenings(&mut plan, &mut draw);
    if draw.one_in(4) {
        with_stock(&mut plan, &mut draw);
    }
    plan
}

/// Any number and shape of engines that can exchange KV at all.
pub fn fleet(draw: &mut Draw) -> Fleet {
    let model = draw.pick(&[ModelPlan::Dense, ModelPlan::Dense, ModelPlan::Mla, ModelPlan::Hybrid]);
    let sides = [(Side::Prefill, draw.few(1, 3)), (Side::Decode, draw.few(1, 2))];
    // Recurrent state is not re-sharded over TP, and packed rows do not cross stages.
    let (tp, pp) = (draw.pick(&[1, 1, 2]), draw.pick(&[1, 1, 2]));
    let mut all = Vec::new();
    for (side, count) in sides {
        for _ in 0..count {
            let mut engine = EnginePlan::new(side);
            (engine.tp, engine.pp) = (tp, pp);
            match model {
                ModelPlan::Dense => {
                    engine.tp = draw.pick(&[1, 1, 1, 2, 4]);
                    engine.pp = draw.pick(&[1, 1, 1, 2]);
                }
                ModelPlan::Mla => engine.tp = draw.pick(&[1, 1, 2]),
                ModelPlan::Hybrid => {}
            }
            if draw.one_in(8) {
                engine.side = Side::Both;
            }
            engine.blocks = draw.few(40, 90);
            engine.recompute = !draw.one_in(3);
            if draw.one_in(3) {
                engine.drift_ppm = draw.between(0, 40_000) as i32 - 20_000;
            }
            all.push(engine);
        }
    }
    // Whoever serves both sides needs another to load from.
    if all.iter().filter(|engine| engine.side.loads()).count() < 2 {
        all.iter_mut().filter(|it| it.side == Side::Both).for_each(|it| it.side = Side::Decode);
    }
    if all.iter().all(|engine| !engine.side.sends()) {
        all[0].side = Side::Prefill;
    }
    Fleet { model, engines: all }
}

/// Tables so small that they overflow, now and then.
fn bounds(plan: &mut Plan, draw: &mut Draw) {
    let bounds = &mut plan.bounds;
    if draw.one_in(3) {
        bounds.peer_layouts = draw.few(1, 2) as usize;
    }
    if draw.one_in(3) {
        (bounds.senders, bounds.senders_per_peer) = (draw.few(1, 3) as usize, 1);
    }
    if draw.one_in(5) {
        bounds.max_peers = 1;
    }
    if draw.one_in(5) {
        bounds.max_transfers = draw.few(4, 16) as usize;
        bounds.max_remembered = draw.few(1, 8) as usize;
    }
    if draw.one_in(3) {
        bounds.hold_ms = draw.between(2_000, 10_000);
    }
    if draw.one_in(3) {
        bounds.load_ms = draw.between(1_500, 6_000);
    }
    if draw.one_in(4) {
        bounds.write_ms = draw.between(200, 2_000);
    }
}

/// Odds of which some are nothing, some small, some large.
fn odds(draw: &mut Draw) -> Odds {
    let mut some = |most: u32| match draw.few(0, 3) {
        0 | 1 => 0,
        2 => draw.few(1, most / 10 + 1),
        _ => draw.few(1, most),
    };
    let (loss, duplication, reordering) = (some(1_500), some(1_500), some(3_000));
    let (reset, write_fails, write_stalls) = (some(800), some(1_500), some(3_000));
    let latency_max_ms = draw.pick(&[2, 3, 10, 60]);
    Odds {
        latency_min_ms: 1,
        latency_max_ms,
        loss,
        duplication,
        reordering,
        delay_ms: draw.pick(&[20, 200, 1_500]),
        reset,
        write_fails,
        write_stalls,
        stall_ms: draw.pick(&[50, 500, 5_000]),
        piece: draw.pick(&[64, 512, 4_096]),
        bandwidth: draw.pick(&[8, 64, 512, 4_096]),
        stale_lands: draw.one_in(2),
    }
}

fn quirks(plan: &mut Plan, draw: &mut Draw) {
    let often = draw.pick(&[3, 8, 1_000]);
    for request in &mut plan.requests {
        if draw.one_in(often + 2) {
            request.leaves_at_ms = Some(request.at_ms + draw.between(1, 300));
        }
        if !draw.one_in(often) {
            continue;
        }
        let earlier = (request.id > 0).then(|| draw.few(0, request.id - 1));
        request.quirk = match (draw.few(0, 7), earlier) {
            (0, _) => Quirk::PrefillLate(draw.between(1, 3_000)),
            (1, _) => Quirk::DecodeLate(draw.between(1, 6_000)),
            (2, Some(earlier)) => Quirk::SameTransferAs(earlier),
            (3, Some(earlier)) => Quirk::SameIdsAs(earlier),
            (4, _) => Quirk::NeverPulled,
            (5, _) => Quirk::NeverPrefilled,
            (6, _) => Quirk::ReleasedEarly,
            _ => Quirk::Samples(draw.few(2, 4)),
        };
    }
}

/// Any sleep.
fn asleep(draw: &mut Draw, engine: u16, mode: PauseMode, for_ms: u64) -> Happening {
    if draw.one_in(4) {
        return Happening::ReleaseKv { engine, mode, for_ms };
    }
    let wake = draw.pick(&[WakeOrder::All, WakeOrder::WeightsFirst, WakeOrder::KvFirst]);
    Happening::Sleep { engine, for_ms, level: draw.few(0, 2) as u8, mode, wake }
}

fn happenings(plan: &mut Plan, draw: &mut Draw) {
    let all = plan.fleet.engines.len() as u16;
    let prefills = engines(&plan.fleet, Side::Prefill);
    // Kinds that this run knows at all.
    let kinds: Vec<u32> = (0..16).filter(|_| draw.one_in(3)).collect();
    if kinds.is_empty() {
        return;
    }
    for _ in 0..draw.few(0, 7) {
        let at_ms = draw.between(0, STORY);
        let engine = draw.few(0, u32::from(all) - 1) as u16;
        let other = draw.few(0, u32::from(all) - 1) as u16;
        let for_ms = draw.pick(&[20, 200, 1_000, 5_000]);
        let mode = draw.pick(&[PauseMode::Abort, PauseMode::Wait, PauseMode::Keep]);
        let what = match draw.pick(&kinds) {
            0 => Happening::Kill { engine, down_ms: Some(for_ms), moves: draw.one_in(3) },
            1 => Happening::Stop { engine, for_ms },
            2 => Happening::Cut { from: engine, to: other, for_ms },
            3 => Happening::Slow { from: engine, to: other, times: draw.few(2, 200), for_ms },
            4 => Happening::Reset { from: engine, to: other },
            5 => Happening::ForgetDirectory { engine: draw.pick(&prefills) },
            6 => Happening::Pause { engine, mode, clear: draw.one_in(2), for_ms },
            7 => Happening::sleep(engine, for_ms),
            8 => asleep(draw, engine, mode, for_ms),
            9 => Happening::UpdateWeights { for_ms, sleep: draw.one_in(2) },
            10 => Happening::ReleaseAll { engine: draw.pick(&prefills) },
            11 => Happening::Resume { engine },
            12 => Happening::AbortTransfers { engine },
            13 => Happening::AbortRequests { engine },
            14 => Happening::Reregister { engine, for_ms },
            _ => Happening::ResetCache { engine, running: draw.one_in(2) },
        };
        happen(plan, at_ms, what);
    }
    if draw.one_in(12) {
        let engine = draw.few(0, u32::from(all) - 1) as u16;
        let at_ms = draw.between(0, STORY);
        happen(plan, at_ms, Happening::Kill { engine, down_ms: None, moves: false });
    }
}
