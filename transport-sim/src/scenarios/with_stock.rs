//! Stock peers in a plan, and what a world may do to them.
//!
//! A stock peer has no grants, so some faults make it lose KV whatever its peer does. A plan
//! that has stock peers keeps clear of them:
//!
//! - A stock P serves pulls of one transfer id together, and frees its blocks when as many
//!   have ended as D ranks read it: no request of such a world shares another's transfer.
//! - What a stock P writes late is kept off by closing the blocks to it for a while; that
//!   while is as long as the plan can hold a write up, and loads take longer than that.
//! - A stock D that gave up or was told of a failure uses its blocks again at once: nothing
//!   may hold a message up beyond the margin between P's deadline and D's, and no write may
//!   break off or stall, or be stopped on its way.
//! - A stock peer knows no weights: nothing lets one run while the trainer has stopped it.
//! - The directory of a stock P lives in its own process and forgets nothing.

use super::draw::Draw;
use crate::plan::{Happening, Kind, Plan, Quirk, Side};

/// Makes some engines of one side stock peers.
pub fn with_stock(plan: &mut Plan, draw: &mut Draw) {
    let side = draw.pick(&[Side::Prefill, Side::Decode]);
    let all: Vec<usize> = plan
        .fleet
        .engines
        .iter()
        .enumerate()
        .filter(|(_, it)| it.side == side)
        .map(|(index, _)| index)
        .collect();
    if all.is_empty() {
        return; // Everybody plays both sides, as no stock peer does here.
    }
    let surely = draw.pick(&all);
    for index in all {
        if index == surely || draw.one_in(2) {
            plan.fleet.engines[index].kind =
                draw.pick(&[Kind::Stock33, Kind::Stock33, Kind::Stock32]);
        }
    }
    keep_clear(plan);
}

/// Takes out of a plan what its stock peers cannot live with.
pub fn keep_clear(plan: &mut Plan) {
    let stock = |side| plan.fleet.engines.iter().any(|it| it.side == side && it.kind.is_stock());
    let (prefill, decode) = (stock(Side::Prefill), stock(Side::Decode));
    if prefill || decode {
        plan.happenings.retain(|it| !matches!(it.what, Happening::Resume { .. }));
    }
    if prefill {
        for request in &mut plan.requests {
            if matches!(request.quirk, Quirk::SameTransferAs(_) | Quirk::SameIdsAs(_)) {
                request.quirk = Quirk::None;
            }
        }
        forget_nothing(plan);
        one_slow_link(plan);
        plan.bounds.quarantine_ms = held_up_ms(plan);
        let least = plan.bounds.quarantine_ms + plan.bounds.write_ms + 2_000;
        plan.bounds.load_ms = plan.bounds.load_ms.max(least);
        // Else what waits for closed blocks expires before it is pulled, and closes others.
        plan.bounds.hold_ms = plan.bounds.hold_ms.max(plan.bounds.load_ms);
    }
    if decode {
        let holds_up = |what: &Happening| {
            matches!(what, Happening::Stop { .. } | Happening::Cut { .. } | Happening::Slow { .. })
        };
        plan.happenings.retain(|it| !holds_up(&it.what));
        let odds = &mut plan.odds;
        (odds.write_fails, odds.write_stalls) = (0, 0);
        odds.delay_ms = odds.delay_ms.min(20);
        odds.latency_max_ms = odds.latency_max_ms.min(10);
        odds.bandwidth = odds.bandwidth.max(64);
        plan.bounds.load_ms = plan.bounds.load_ms.max(4_000);
        plan.bounds.write_ms = plan.bounds.write_ms.max(2_000);
    }
}

fn forget_nothing(plan: &mut Plan) {
    let stock = |engine: u16| plan.fleet.engines[usize::from(engine)].kind.is_stock();
    plan.happenings
        .retain(|it| !matches!(it.what, Happening::ForgetDirectory { engine } if stock(engine)));
}

/// Slow links multiply, without an end to what they hold up.
fn one_slow_link(plan: &mut Plan) {
    let mut first = true;
    plan.happenings.retain_mut(|it| match &mut it.what {
        Happening::Slow { times, .. } => {
            *times = (*times).min(20);
            std::mem::take(&mut first)
        }
        _ => true,
    });
}

/// How long this plan can hold up what a stock P has sent.
fn held_up_ms(plan: &Plan) -> u64 {
    let faults = plan.happenings.iter().map(|it| match it.what {
        Happening::Stop { for_ms, .. } | Happening::Cut { for_ms, .. } => for_ms,
        Happening::Slow { .. } => 3_000,
        _ => 0,
    });
    2_000 + plan.odds.stall_ms + plan.odds.delay_ms + faults.sum::<u64>()
}
