//! Requests of every kind.

use crate::support::{Fact, Seen, reaches};
use kvbaton_transport_sim::history::{Event, Lane, LoadFact, What};
use std::collections::BTreeMap;

/// A pull named several requests.
fn pulls_are_shared(events: &[Event]) -> bool {
    events.iter().any(|it| match &it.what {
        What::PullSent { pull, .. } => pull.requests.len() > 1,
        _ => false,
    })
}

/// A node loaded under one request id twice.
fn loads_again_under_its_id(events: &[Event]) -> bool {
    let mut loads = BTreeMap::new();
    events.iter().any(|it| match (&it.lane, &it.what) {
        (Lane::Node(node), What::LoadAsked { request, .. }) => {
            let count = loads.entry((*node, request.clone())).or_insert(0);
            *count += 1;
            *count > 1
        }
        _ => false,
    })
}

/// A load was dropped whose pull named others that were loaded.
fn one_of_a_shared_pull_is_dropped(events: &[Event]) -> bool {
    let mut shared = Vec::new();
    let mut ends = BTreeMap::new();
    for event in events {
        match &event.what {
            What::PullSent { pull, .. } if pull.requests.len() > 1 => {
                shared.push(pull.requests.iter().map(|it| it.0.clone()).collect::<Vec<_>>());
            }
            What::LoadEnded { request, end, .. } => {
                ends.entry(request.clone()).or_insert(end.clone());
            }
            _ => {}
        }
    }
    let ended = |ids: &[_], how: &LoadFact| ids.iter().any(|id| ends.get(id) == Some(how));
    shared.iter().any(|ids| ended(ids, &LoadFact::Dropped) && ended(ids, &LoadFact::Loaded))
}

/// A prompt of which D had a part, so that it pulled fewer blocks than P held.
fn loads_a_part(events: &[Event]) -> bool {
    let bytes = |rows: &[kvbaton_core::region::MemoryRange]| -> u64 {
        rows.iter().map(|row| row.len.0).sum()
    };
    let mut held = BTreeMap::new();
    events.iter().any(|it| match &it.what {
        What::Held { transfer, rows, .. } => {
            held.insert(transfer.clone(), bytes(rows));
            false
        }
        What::LoadEnded { transfer, end: LoadFact::Loaded, .. } => {
            let asked = events.iter().find_map(|it| match &it.what {
                What::LoadAsked { transfer: this, rows, .. } if this == transfer => {
                    Some(bytes(rows))
                }
                _ => None,
            });
            let asked = asked.unwrap_or(0);
            asked > 0 && held.get(transfer).is_some_and(|held| asked < *held)
        }
        _ => false,
    })
}

#[test]
fn l01_l03_l04_g01_p02_x01_calm() {
    reaches(
        "calm",
        &[Fact("pull with layout"), Fact("pull without layout"), Fact("compared bytes")],
    );
}

#[test]
fn p11_g01_f07_f20_f28_duplicate_ids() {
    reaches(
        "duplicate-ids",
        &[
            Fact("load failed: Prefill(AlreadyUsed)"),
            Fact("hold refused"),
            Seen("a request that loads again under its id", loads_again_under_its_id),
            Fact("load ended: Loaded"),
        ],
    );
}

#[test]
fn p11_f23_samples() {
    reaches(
        "samples",
        &[
            Seen("samples share pulls", pulls_are_shared),
            Fact("load ended: Dropped"),
            Fact("answer: tokens"),
        ],
    );
}

#[test]
fn p01_p05_p13_f17_early_release() {
    reaches(
        "early-release",
        &[
            Fact("release before its hold"),
            Fact("release while held"),
            Fact("release while written"),
            Fact("load failed: Prefill(Aborted)"),
            Fact("drop received"),
        ],
    );
}

#[test]
fn p05_p10_f19_one_token() {
    reaches(
        "one-token",
        &[
            Fact("pull before prefill"),
            Fact("prefill before pull"),
            Fact("load ended: Loaded"),
            Fact("answer: tokens"),
        ],
    );
}

#[test]
fn a06_p10_f10_f53_prefix_hits() {
    reaches("prefix-hits", &[Seen("a part that was loaded", loads_a_part), Fact("remote release")]);
}

#[test]
fn a05_a06_p10_f48_f53_hybrid_prefix_hits() {
    reaches(
        "hybrid-prefix-hits",
        &[Seen("a part that was loaded", loads_a_part), Fact("compared bytes")],
    );
}

#[test]
fn p09_p10_p13_f01_f10_f16_f17_disconnects() {
    reaches(
        "disconnects",
        &[
            Fact("client left"),
            Fact("load ended: Dropped"),
            Fact("remote release"),
            Fact("release before its hold"),
            Fact("drop before its pull"),
            Fact("late answer"),
        ],
    );
}

#[test]
fn p02_p09_p11_f07_batches() {
    reaches(
        "batches",
        &[
            Seen("requests share a pull", pulls_are_shared),
            Seen("one of a shared pull is dropped", one_of_a_shared_pull_is_dropped),
            Seen("a request that loads again under its id", loads_again_under_its_id),
        ],
    );
}

#[test]
fn p04_p05_p06_f24_f26_f27_late_halves() {
    reaches(
        "late-halves",
        &[
            Fact("send ended: Expired"),
            Fact("load failed: Prefill(TimedOut)"),
            Fact("load failed: Prefill(Expired)"),
            Fact("load ended: Loaded"),
        ],
    );
}
