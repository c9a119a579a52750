//! What scenarios are put together from.

use super::draw::Draw;
use crate::plan::{
    EnginePlan, Fleet, Happening, ModelPlan, Plan, Planned, Quirk, RequestPlan, Side,
};

/// A fleet of so many engines of ours, unsharded.
pub fn fleet(model: ModelPlan, prefills: u32, decodes: u32) -> Fleet {
    let side = |side, count| (0..count).map(move |_| EnginePlan::new(side));
    let engines = side(Side::Prefill, prefills).chain(side(Side::Decode, decodes)).collect();
    Fleet { model, engines }
}

/// Indices of the engines that play a side, those of both sides included.
pub fn engines(fleet: &Fleet, side: Side) -> Vec<u16> {
    let plays = |engine: &EnginePlan| engine.side == side || engine.side == Side::Both;
    let all = fleet.engines.iter().enumerate();
    all.filter(|(_, engine)| plays(engine)).map(|(index, _)| index as u16).collect()
}

/// When requests begin, in milliseconds: by then every engine has been announced.
pub const BEGIN: u64 = 300;

/// Adds ordinary requests, spread over a time in milliseconds.
pub fn requests(plan: &mut Plan, draw: &mut Draw, count: u32, (from, to): (u64, u64)) {
    let (p, d) = (engines(&plan.fleet, Side::Prefill), engines(&plan.fleet, Side::Decode));
    let first = plan.requests.len() as u32;
    let mut times: Vec<u64> = (0..count).map(|_| draw.between(from, to)).collect();
    times.sort_unstable();
    for (id, at_ms) in (first..).zip(times) {
        let prompt_len = draw.few(1, 40);
        let shared_len = if draw.one_in(2) { draw.few(0, 24) } else { 0 };
        let prefill = draw.pick(&p);
        let others: Vec<u16> = d.iter().copied().filter(|engine| *engine != prefill).collect();
        plan.requests.push(RequestPlan {
            id,
            at_ms,
            family: draw.few(0, 2),
            prompt_len,
            shared_len: shared_len.min(prompt_len),
            max_tokens: draw.few(1, 4),
            prefill,
            decode: draw.pick(&others),
            leaves_at_ms: None,
            retries: 2,
            quirk: Quirk::None,
        });
    }
    plan.requests.sort_by_key(|request| (request.at_ms, request.id));
}

/// Adds a happening.
pub fn happen(plan: &mut Plan, at_ms: u64, what: Happening) {
    plan.happenings.push(Planned { at_ms, what });
    plan.happenings.sort_by_key(|planned| planned.at_ms);
}
