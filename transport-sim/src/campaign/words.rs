//! Plans in words.

use crate::plan::{
    EnginePlan, Fleet, Happening, Kind, ModelPlan, Plan, Planned, Quirk, RequestPlan, Side,
    WakeOrder,
};
use serde::Serialize;
use serde_json::Value;

/// The fleet: `dense; e0 P 2×1, e1 D stock 0.33`.
#[must_use]
pub fn fleet(fleet: &Fleet) -> String {
    let model = match fleet.model {
        ModelPlan::Dense => "dense",
        ModelPlan::Mla => "latent attention",
        ModelPlan::Hybrid => "hybrid",
    };
    let engines = fleet.engines.iter().enumerate().map(|(index, it)| engine(index, it));
    format!("{model}; {}", engines.collect::<Vec<_>>().join(", "))
}

fn engine(index: usize, it: &EnginePlan) -> String {
    let side = match it.side {
        Side::Prefill => "P",
        Side::Decode => "D",
        Side::Both => "P and D",
    };
    let kind = match it.kind {
        Kind::Ours => "",
        Kind::Stock33 => " stock 0.33",
        Kind::Stock32 => " stock 0.32",
    };
    let mut text = format!("e{index} {side}{kind}");
    if it.ranks() > 1 {
        text += &format!(" TP {} PP {}", it.tp, it.pp);
    }
    text += &format!(" {} blocks", it.blocks);
    if !it.recompute && it.side.loads() {
        text += " no recompute";
    }
    if it.drift_ppm != 0 {
        text += &format!(" drift {} ppm", it.drift_ppm);
    }
    text
}

/// What differs from the default: `loss 40`, `delay_ms 30`.
#[must_use]
pub fn differences<T: Serialize + Default>(it: &T) -> Vec<String> {
    let fields = |it: &T| match serde_json::to_value(it) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let usual = fields(&T::default());
    let differ = fields(it).into_iter().filter(|(name, value)| usual.get(name) != Some(value));
    differ.map(|(name, value)| format!("{name} {value}")).collect()
}

/// A fault or operation: `restart of e0 after 200 ms`.
#[must_use]
pub fn happening(what: &Happening) -> String {
    match what {
        Happening::Kill { engine, down_ms: None, .. } => format!("kill e{engine} for good"),
        Happening::Kill { engine, down_ms: Some(down), moves } => {
            let place = if *moves { " elsewhere" } else { "" };
            format!("kill e{engine}, start it again{place} after {down} ms")
        }
        Happening::Move { engine, down_ms } => {
            format!("move e{engine}, with its id, back after {down_ms} ms")
        }
        Happening::Stop { engine, for_ms } => format!("stop e{engine} for {for_ms} ms"),
        Happening::Cut { from, to, for_ms } => format!("cut e{from} → e{to} for {for_ms} ms"),
        Happening::Slow { from, to, times, for_ms } => {
            format!("slow e{from} ↔ e{to} {times}-fold for {for_ms} ms")
        }
        Happening::Reset { from, to } => format!("reset connections e{from} ↔ e{to}"),
        Happening::ForgetDirectory { engine } => format!("e{engine}'s directory forgets"),
        Happening::Pause { engine, mode, clear, for_ms } => {
            let (mode, clear) = (mode.name(), if *clear { ", clearing" } else { "" });
            format!("pause e{engine} ({mode}{clear}) for {for_ms} ms")
        }
        Happening::Sleep { engine, for_ms, level, mode, wake } => {
            let wake = match wake {
                WakeOrder::All => "",
                WakeOrder::WeightsFirst => ", its weights wake first",
                WakeOrder::KvFirst => ", its KV cache wakes first",
            };
            let mode = mode.name();
            format!("e{engine} sleeps (level {level}, {mode}) for {for_ms} ms{wake}")
        }
        Happening::ReleaseKv { engine, mode, for_ms } => {
            format!("e{engine} gives its KV cache up ({}) for {for_ms} ms", mode.name())
        }
        Happening::Reregister { engine, for_ms } => {
            format!("e{engine} unregisters by itself, for {for_ms} ms")
        }
        Happening::Resume { engine } => format!("e{engine} is resumed"),
        Happening::AbortTransfers { engine } => format!("e{engine} aborts its transfers"),
        Happening::AbortRequests { engine } => format!("e{engine} aborts its requests"),
        Happening::ResetCache { engine, running } => {
            let running = if *running { ", whatever runs" } else { "" };
            format!("e{engine} empties its prefix cache{running}")
        }
        Happening::FailOrder { engine, order, .. } => {
            format!("order {order} of e{engine}'s lifecycle fails")
        }
        Happening::AtOrder { engine, order, then, .. } => {
            format!("during order {order} of e{engine}'s lifecycle: {}", happening(then))
        }
        Happening::UpdateWeights { for_ms, sleep } => {
            let sleep = if *sleep { ", asleep" } else { "" };
            format!("new weights, paused for {for_ms} ms{sleep}")
        }
        Happening::ReleaseAll { engine } => format!("e{engine} releases everything"),
    }
}

fn request(it: &RequestPlan) -> String {
    let mut text = format!(
        "request {} e{} → e{}: prompt {} ({} shared in family {}), {} tokens",
        it.id, it.prefill, it.decode, it.prompt_len, it.shared_len, it.family, it.max_tokens
    );
    if it.retries > 0 {
        text += &format!(", {} retries", it.retries);
    }
    if let Some(leaves) = it.leaves_at_ms {
        text += &format!(", its client leaves at {leaves} ms");
    }
    text += &match it.quirk {
        Quirk::None => String::new(),
        Quirk::PrefillLate(ms) => format!(", P gets it {ms} ms late"),
        Quirk::DecodeLate(ms) => format!(", D gets it {ms} ms late"),
        Quirk::SameTransferAs(id) => format!(", with the transfer id of request {id}"),
        Quirk::SameIdsAs(id) => format!(", with the ids of request {id}"),
        Quirk::NeverPulled => ", D never gets it".into(),
        Quirk::NeverPrefilled => ", P never gets it".into(),
        Quirk::ReleasedEarly => ", released early".into(),
        Quirk::Samples(count) => format!(", {count} samples"),
    };
    text
}

/// Requests, faults and operations in order of time, a line each.
#[must_use]
pub fn schedule(plan: &Plan) -> Vec<String> {
    let requests = plan.requests.iter().map(|it| (it.at_ms, request(it)));
    let happenings =
        plan.happenings.iter().map(|Planned { at_ms, what }| (*at_ms, happening(what)));
    let mut lines: Vec<_> = requests.chain(happenings).collect();
    lines.sort_by_key(|it| it.0);
    lines.into_iter().map(|(at, text)| format!("{at:>7} ms  {text}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::fake;
    use crate::plan::Odds;

    #[test]
    fn a_plan_reads_as_a_schedule() {
        let plan = fake::plan(1);
        let lines = schedule(&plan);
        assert_eq!(lines.len(), 16);
        assert_eq!(lines[1], "     20 ms  stop e1 for 50 ms");
        assert!(lines.contains(&"    210 ms  kill e0, start it again after 200 ms".to_owned()));
        assert_eq!(fleet(&plan.fleet), "dense; e0 P TP 2 PP 1 64 blocks, e1 D 64 blocks");
        assert_eq!(differences(&plan.odds), ["delay_ms 30", "loss 40"]);
        assert!(differences(&Odds::default()).is_empty());
    }
}
