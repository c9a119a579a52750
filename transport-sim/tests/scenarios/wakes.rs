//! The first transfer after a wake: the same messages as in a steady transfer, but for the
//! layout in the pull.

use crate::support::run;
use kvbaton_transport_sim::history::{Event, LoadFact, What};
use kvbaton_transport_sim::plan::{
    EnginePlan, Fleet, Happening, ModelPlan, Plan, Planned, Quirk, RequestPlan, Side,
};

/// Milliseconds between requests: each is alone.
const EVERY: u64 = 400;
/// Requests before and after the wake.
const BEFORE: u32 = 4;
const AFTER: u32 = 3;

const P: u16 = 0;
const D: u16 = 1;

/// Requests one by one, and an engine that sleeps between two of them.
fn world(engine: u16, seed: u64) -> Plan {
    let engines = vec![EnginePlan::new(Side::Prefill), EnginePlan::new(Side::Decode)];
    let mut plan = Plan::new("wakes", seed, Fleet { model: ModelPlan::Dense, engines });
    plan.requests = (0..BEFORE + AFTER)
        .map(|id| RequestPlan {
            id,
            at_ms: 300 + u64::from(id) * EVERY + if id < BEFORE { 0 } else { 2 * EVERY },
            family: 0,
            prompt_len: 20,
            shared_len: 0,
            max_tokens: 1,
            prefill: P,
            decode: D,
            leaves_at_ms: None,
            // P holds it before D pulls, so that nothing waits for the prefill.
            quirk: Quirk::DecodeLate(100),
            retries: 0,
        })
        .collect();
    let at_ms = 300 + u64::from(BEFORE) * EVERY;
    plan.happenings = vec![Planned { at_ms, what: Happening::sleep(engine, 100) }];
    plan
}

/// What a load exchanged: pulls, answers, layouts, connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Exchanged {
    pulls: u32,
    layouts: u32,
    answers: u32,
    writes: u32,
    refused: u32,
}

fn exchanged(events: &[Event]) -> Vec<Exchanged> {
    let mut all = Vec::new();
    let mut now = None;
    for event in events {
        if let What::LoadAsked { .. } = event.what {
            now = Some(Exchanged::default());
        }
        let Some(it) = &mut now else { continue };
        match &event.what {
            What::PullSent { pull, .. } => {
                it.pulls += 1;
                it.layouts += u32::from(pull.with_layout);
            }
            What::ReplyReceived { .. } => it.answers += 1,
            What::WriteStarted { .. } => it.writes += 1,
            What::Refused { .. } => it.refused += 1,
            What::LoadEnded { end, .. } => {
                assert_eq!(*end, LoadFact::Loaded);
                all.push(*it);
                now = None;
            }
            _ => {}
        }
    }
    all
}

/// Compares the first load after the wake with a steady one, but for `more`.
fn first_after_wake(engine: u16, more: Exchanged) {
    for seed in 0..30 {
        let events = run(&world(engine, seed));
        assert!(events.iter().any(|it| it.what == What::Woke), "seed {seed}: it slept");
        let all = exchanged(&events);
        assert_eq!(all.len(), (BEFORE + AFTER) as usize);
        let steady = all[BEFORE as usize - 1];
        assert_eq!((steady.pulls, steady.layouts, steady.refused), (1, 0, 0));
        let first = all[BEFORE as usize];
        let expected = Exchanged {
            pulls: steady.pulls + more.pulls,
            layouts: steady.layouts + more.layouts,
            answers: steady.answers + more.answers,
            ..steady
        };
        assert_eq!(first, expected, "seed {seed}");
        assert_eq!(all[BEFORE as usize + 1], steady, "seed {seed}");
    }
}

#[test]
fn s04_a_woken_d_pays_nothing_but_its_layout() {
    first_after_wake(D, Exchanged { layouts: 1, ..Exchanged::default() });
}

#[test]
fn s04_l05_l09_a_woken_p_pays_for_no_stale_key_but_misses_the_layout_once() {
    // It has forgotten D's layout with its own registration: one miss, one resend.
    let miss = Exchanged { pulls: 1, layouts: 1, answers: 1, ..Exchanged::default() };
    first_after_wake(P, miss);
}
