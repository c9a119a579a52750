//! The world: one P, one D, requests, and faults drawn from the seed.

use kvbaton_transport_sim::campaign::Scenario;
use kvbaton_transport_sim::plan::{
    EnginePlan, Fleet, Happening, ModelPlan, Plan, Planned, Quirk, RequestPlan, Side,
};
use kvbaton_transport_sim::sites;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Blocks of each engine.
pub const BLOCKS: u32 = 16;
/// P's index in the fleet.
pub const P: u16 = 0;
/// D's.
pub const D: u16 = 1;

/// How plans are made.
pub const SCENARIO: Scenario = Scenario {
    name: "own-scheduler",
    about: "a scheduler of one's own; restarts, cuts, slow links",
    rules: &["P01", "P08"],
    make: plan,
};

fn plan(seed: u64) -> Plan {
    let engine = |side| EnginePlan { blocks: BLOCKS, ..EnginePlan::new(side) };
    // The model is the model engine's; nothing here looks at it.
    let engines = vec![engine(Side::Prefill), engine(Side::Decode)];
    let mut plan = Plan::new(SCENARIO.name, seed, Fleet { model: ModelPlan::Dense, engines });
    let mut chance = StdRng::seed_from_u64(seed);
    plan.odds.bandwidth = 32;
    if chance.random_range(0..2) == 0 {
        plan.sites.insert(sites::EVENTS_LATE.into());
    }
    plan.requests = (0..24)
        .map(|id| RequestPlan {
            id,
            at_ms: 300 + u64::from(id) * 100,
            family: 0,
            prompt_len: chance.random_range(1..=4),
            shared_len: 0,
            max_tokens: 1,
            prefill: P,
            decode: D,
            leaves_at_ms: None,
            retries: 3,
            quirk: Quirk::None,
        })
        .collect();
    for _ in 0..2 {
        let for_ms = [20, 200, 1_000][chance.random_range(0..3)];
        let (from, to) = [(P, D), (D, P)][chance.random_range(0..2)];
        let what = match chance.random_range(0..3) {
            0 => Happening::Kill { engine: from, down_ms: Some(for_ms), moves: false },
            1 => Happening::Cut { from, to, for_ms },
            _ => Happening::Slow { from, to, times: 50, for_ms },
        };
        plan.happenings.push(Planned { at_ms: chance.random_range(300..2_500), what });
    }
    plan.happenings.sort_by_key(|planned| planned.at_ms);
    plan
}
