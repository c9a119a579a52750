//! The published matrix: every operation of the lifecycle on P, on D and on both, under 600
//! requests at concurrency 96. All answers are right, nothing fails that the operation does
//! not explain, every block comes back, everything ends.

use crate::support::run;
use kvbaton_core::lifecycle::engine::{OperationError, Outcome};
use kvbaton_transport_sim::history::{Answer, Event, What};
use kvbaton_transport_sim::plan::{
    EnginePlan, Fleet, Happening, ModelPlan, PauseMode, Plan, Planned, Quirk, RequestPlan, Side,
    WakeOrder,
};
use std::collections::BTreeMap;

/// How many requests, and how many at once.
const REQUESTS: u32 = 600;
const CONCURRENCY: u32 = 96;
/// When operations begin, in milliseconds: in the middle of the requests.
const BEGIN: u64 = 420;

const PREFILLS: [u16; 2] = [0, 1];
const DECODES: [u16; 2] = [2, 3];

/// What a case's clients may get besides tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// Tokens alone.
    Tokens,
    /// Some are aborted.
    Aborted,
}

struct Case {
    name: String,
    happenings: Vec<Planned>,
    leave: bool,
    ends: Ends,
}

impl Case {
    fn new(name: impl Into<String>, happenings: Vec<Planned>, ends: Ends) -> Self {
        Self { name: name.into(), happenings, leave: false, ends }
    }
}

fn at(at_ms: u64, what: Happening) -> Planned {
    Planned { at_ms, what }
}

/// On these engines, one after the other: D's first, since their loads need P.
fn on(engines: &[u16], what: impl Fn(u16) -> Happening) -> Vec<Planned> {
    let decodes = engines.iter().filter(|it| DECODES.contains(it)).map(|it| (*it, 0));
    let prefills = engines.iter().filter(|it| PREFILLS.contains(it)).map(|it| (*it, 60));
    let mut all: Vec<_> =
        decodes.chain(prefills).map(|(engine, late)| at(BEGIN + late, what(engine))).collect();
    all.sort_by_key(|it| it.at_ms);
    all
}

fn cases() -> Vec<Case> {
    let both: Vec<u16> = PREFILLS.iter().chain(&DECODES).copied().collect();
    let sides: [(&str, &[u16]); 3] = [("P", &PREFILLS), ("D", &DECODES), ("both", &both)];
    let mut all = Vec::new();
    for mode in PauseMode::ALL {
        for (side, engines) in sides {
            for clear in [false, true] {
                let name = format!(
                    "pause {} on {side}{}",
                    mode.name(),
                    if clear { ", clearing" } else { "" }
                );
                let pause = |engine| Happening::Pause { engine, mode, clear, for_ms: 100 };
                let ends = if mode == PauseMode::Abort { Ends::Aborted } else { Ends::Tokens };
                all.push(Case::new(name, on(engines, pause), ends));
            }
        }
    }
    for level in 0..=2 {
        let (mode, wake) = (PauseMode::Keep, WakeOrder::All);
        let sleep = |engine| Happening::Sleep { engine, for_ms: 100, level, mode, wake };
        all.push(Case::new(format!("sleep {level}"), on(&both, sleep), Ends::Tokens));
    }
    let abort = |engine| Happening::AbortRequests { engine };
    all.push(Case::new("abort requests", on(&both, abort), Ends::Aborted));
    let abort = |engine| Happening::AbortTransfers { engine };
    all.push(Case::new("abort transfers", on(&both, abort), Ends::Tokens));
    let mut resets = on(&both, |engine| Happening::ResetCache { engine, running: false });
    let running = on(&both, |engine| Happening::ResetCache { engine, running: true });
    resets.extend(running.into_iter().map(|it| at(it.at_ms + 80, it.what)));
    all.push(Case::new("reset the prefix cache", resets, Ends::Tokens));
    let release = |engine| Happening::ReleaseKv { engine, mode: PauseMode::Keep, for_ms: 100 };
    all.push(Case::new("release KV memory", on(&both, release), Ends::Tokens));
    let reload = Happening::UpdateWeights { for_ms: 50, sleep: false };
    all.push(Case::new("reload weights in place", vec![at(BEGIN, reload)], Ends::Tokens));
    let leave = Case::new("clients leave", Vec::new(), Ends::Aborted);
    all.push(Case { leave: true, ..leave });
    all
}

/// The world of all cases.
pub fn world(name: &str, requests: u32, concurrency: u32) -> Plan {
    let engine = |side| EnginePlan { blocks: 2_500, recompute: false, ..EnginePlan::new(side) };
    let sides = [Side::Prefill, Side::Prefill, Side::Decode, Side::Decode];
    let fleet = Fleet { model: ModelPlan::Dense, engines: sides.map(engine).into() };
    let mut plan = Plan::new(name, 1, fleet);
    plan.concurrency = concurrency;
    plan.odds.bandwidth = 128;
    let bounds = &mut plan.bounds;
    (bounds.senders, bounds.senders_per_peer) = (16, 8);
    (bounds.max_transfers, bounds.max_remembered) = (4_096, 4_096);
    plan.requests = (0..requests)
        .map(|id| RequestPlan {
            id,
            at_ms: 300,
            family: id % 7,
            prompt_len: 8 + id % 29,
            shared_len: if id % 3 == 0 { 8 } else { 0 },
            max_tokens: 1 + id % 12,
            prefill: PREFILLS[id as usize % 2],
            decode: DECODES[id as usize / 2 % 2],
            leaves_at_ms: None,
            retries: 0,
            quirk: Quirk::None,
        })
        .collect();
    plan
}

fn answers(events: &[Event]) -> BTreeMap<&'static str, u32> {
    let mut answers = BTreeMap::new();
    for event in events {
        let What::Answered { answer, .. } = &event.what else { continue };
        let name = match answer {
            Answer::Tokens { .. } => "tokens",
            Answer::Aborted => "aborted",
            Answer::LoadFailed => "load failed",
            Answer::Lost(_) => "lost",
        };
        *answers.entry(name).or_default() += 1;
    }
    answers
}

fn ends(events: &[Event]) -> Vec<&Result<Outcome, OperationError>> {
    events
        .iter()
        .filter_map(|it| match &it.what {
            What::OperationEnded { end, .. } => Some(end),
            _ => None,
        })
        .collect()
}

#[test]
fn r01_r02_r03_r04_s01_the_matrix() {
    let cases = cases();
    assert_eq!(cases.len(), 27);
    for case in cases {
        let Case { name, happenings, leave, ends: allowed } = case;
        let mut plan = world(&name, REQUESTS, CONCURRENCY);
        plan.happenings = happenings;
        if leave {
            for request in plan.requests.iter_mut().filter(|it| it.id % 3 == 0) {
                request.leaves_at_ms = Some(310 + u64::from(request.id));
            }
        }
        let events = run(&plan);
        let got = answers(&events);
        let count = |name| got.get(name).copied().unwrap_or(0);
        let (tokens, aborted) = (count("tokens"), count("aborted"));
        assert_eq!(tokens + aborted, REQUESTS, "{name}: {got:?}");
        assert_eq!(aborted > 0, allowed == Ends::Aborted, "{name}: {got:?}");
        assert!(tokens >= REQUESTS / 2, "{name}: {got:?}");
        for end in ends(&events) {
            assert!(end.is_ok(), "{name}: {end:?}");
        }
    }
}

#[test]
fn r03_64_of_64_are_pulled_though_d_begins_only_after_p_has_paused() {
    let mut plan = world("wait before D pulls", 64, 0);
    for request in &mut plan.requests {
        (request.prefill, request.decode) = (0, 2);
        request.quirk = Quirk::DecodeLate(400);
    }
    plan.bounds.pulls_ms = 4_000;
    // All are held when it is asked, none is pulled.
    let pause = Happening::Pause { engine: 0, mode: PauseMode::Wait, clear: true, for_ms: 50 };
    plan.happenings = vec![at(600, pause)];
    let events = run(&plan);
    let asked = |it: &Event| matches!(it.what, What::OperationAsked { .. });
    let asked = events.iter().position(asked).expect("a pause");
    let before = &events[..asked];
    assert_eq!(before.iter().filter(|it| matches!(it.what, What::Held { .. })).count(), 64);
    assert!(!before.iter().any(|it| matches!(it.what, What::PullReceived { .. })));
    assert_eq!(answers(&events), BTreeMap::from([("tokens", 64)]));
    let loaded = |it: &&Event| {
        use kvbaton_transport_sim::history::LoadFact;
        matches!(it.what, What::LoadEnded { end: LoadFact::Loaded, .. })
    };
    assert_eq!(events.iter().filter(loaded).count(), 64, "none was computed again");
}
