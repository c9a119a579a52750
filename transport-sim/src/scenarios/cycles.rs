//! Engines that fall asleep and wake again and again, under load all the time.

use crate::plan::{
    EnginePlan, Fleet, Happening, ModelPlan, PauseMode, Plan, Planned, Quirk, RequestPlan, Side,
    WakeOrder,
};

/// Milliseconds from one sleep to the next.
const EVERY: u64 = 40;
/// When the first begins.
const BEGIN: u64 = 400;
/// About how many requests end in a cycle, per request at once: enough that there are some
/// until the last cycle, and few more.
const PER_CYCLE: f64 = 0.32;

/// Two P, two D, `concurrency` requests at once, and so many sleeps in turn on D, on P, on
/// both; of all memory at levels 1 and 2 or of the KV cache alone, waking whole or part by part
/// in either order.
#[must_use]
pub fn plan(seed: u64, cycles: u32, concurrency: u32) -> Plan {
    let engine = |side| EnginePlan { blocks: 4_096, recompute: false, ..EnginePlan::new(side) };
    let sides = [Side::Prefill, Side::Prefill, Side::Decode, Side::Decode];
    let fleet = Fleet { model: ModelPlan::Dense, engines: sides.map(engine).into() };
    let mut plan = Plan::new("cycles", seed, fleet);
    plan.concurrency = concurrency;
    plan.odds.bandwidth = 512;
    let bounds = &mut plan.bounds;
    (bounds.senders, bounds.senders_per_peer) = (16, 8);
    (bounds.max_transfers, bounds.max_remembered) = (2_048, 1_024);
    for cycle in 0..cycles {
        let at_ms = BEGIN + u64::from(cycle) * EVERY;
        let (p, d) = ((cycle / 3 % 2) as u16, 2 + (cycle / 3 % 2) as u16);
        let engines = match cycle % 3 {
            0 => vec![d],
            1 => vec![p],
            _ => vec![p, d],
        };
        for engine in engines {
            plan.happenings.push(Planned { at_ms, what: sleep(engine, cycle / 3) });
        }
    }
    let requests = (f64::from(cycles) * f64::from(concurrency) * PER_CYCLE) as u32 + concurrency;
    plan.requests = (0..requests).map(request).collect();
    plan
}

fn sleep(engine: u16, kind: u32) -> Happening {
    let (for_ms, mode) = (5, PauseMode::Keep);
    let asleep = |level, wake| Happening::Sleep { engine, for_ms, level, mode, wake };
    match kind % 7 {
        0 => asleep(1, WakeOrder::All),
        1 => asleep(2, WakeOrder::All),
        2 => asleep(1, WakeOrder::WeightsFirst),
        3 => asleep(1, WakeOrder::KvFirst),
        4 => asleep(2, WakeOrder::WeightsFirst),
        5 => asleep(2, WakeOrder::KvFirst),
        _ => Happening::ReleaseKv { engine, mode, for_ms },
    }
}

fn request(id: u32) -> RequestPlan {
    RequestPlan {
        id,
        at_ms: 300,
        family: id % 7,
        prompt_len: 8 + id % 29,
        shared_len: if id.is_multiple_of(3) { 8 } else { 0 },
        max_tokens: 24 + id % 49,
        prefill: (id % 2) as u16,
        decode: 2 + (id / 2 % 2) as u16,
        leaves_at_ms: None,
        retries: 0,
        quirk: Quirk::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn cycles_rotate_over_engines_and_kinds() {
        let plan = plan(1, 84, 64);
        let names: BTreeSet<_> = plan.happenings.iter().map(|it| it.what.name()).collect();
        assert_eq!(names, BTreeSet::from(["release kv", "sleep", "sleep 2"]));
        assert_eq!(plan.happenings.len(), 84 / 3 * 4);
        assert!(plan.happenings.is_sorted_by_key(|it| it.at_ms));
    }
}
