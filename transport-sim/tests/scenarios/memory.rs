//! Memory that goes and comes back, weights that change, pauses.

use crate::support::{Fact, Meets, Seen, plans, reaches, run};
use kvbaton_transport_sim::campaign::coverage::State;
use kvbaton_transport_sim::history::{Event, Lane, LoadFact, What};
use kvbaton_transport_sim::plan::Happening;

/// Something was loaded before the first of these events and after the last.
fn loads_around(events: &[Event], is: fn(&What) -> bool) -> bool {
    let loaded = |it: &Event| matches!(it.what, What::LoadEnded { end: LoadFact::Loaded, .. });
    let first = events.iter().position(|it| is(&it.what));
    let last = events.iter().rposition(|it| is(&it.what));
    let (Some(first), Some(last)) = (first, last) else { return false };
    events[..first].iter().any(loaded) && events[last..].iter().any(loaded)
}

fn woke(what: &What) -> bool {
    matches!(what, What::Woke)
}

fn updated(what: &What) -> bool {
    matches!(what, What::WeightsUpdated { .. })
}

#[test]
fn s01_s02_s05_l05_l09_f32_sleep_prefill() {
    reaches(
        "sleep-prefill",
        &[
            Meets("sleep", State::Held),
            Meets("sleep", State::Writing),
            Meets("sleep", State::Waiting),
            Fact("layout miss"),
            Fact("resend after miss"),
            Seen("loads before and after a wake", |it| loads_around(it, woke)),
        ],
    );
}

#[test]
fn s01_s02_s04_l09_l10_f32_sleep_decode() {
    reaches(
        "sleep-decode",
        &[
            Meets("sleep", State::Written),
            Meets("sleep", State::LoadingWithout),
            Fact("write refused"),
            Seen("loads before and after a wake", |it| loads_around(it, woke)),
        ],
    );
}

#[test]
fn l10_s02_g03_f32_sleep_decode_stock_prefill() {
    reaches(
        "sleep-decode-stock-prefill",
        &[
            Fact("stale echo"),
            Fact("grant open to stock peers"),
            Seen("loads before and after a wake", |it| loads_around(it, woke)),
        ],
    );
}

#[test]
fn s01_s02_s05_f32_sleep_both() {
    reaches(
        "sleep-both",
        &[
            Meets("sleep", State::Writing),
            Meets("sleep", State::Asleep),
            Seen("loads before and after a wake", |it| loads_around(it, woke)),
        ],
    );
}

#[test]
fn s01_s06_sleep_refused() {
    reaches(
        "sleep-refused",
        &[
            Fact("sleep failed"),
            Fact("sleep"),
            Seen("loads after a sleep that failed", |events| {
                loads_around(events, |it| matches!(it, What::SleepFailed { .. }))
            }),
        ],
    );
}

#[test]
fn s01_s05_sleep_both_roles() {
    reaches(
        "sleep-both-roles",
        &[
            Meets("sleep", State::Written),
            Meets("sleep", State::Held),
            Fact("sleep failed"),
            Fact("wake"),
            Seen("loads after a sleep that failed", |events| {
                loads_around(events, |it| matches!(it, What::SleepFailed { .. }))
            }),
        ],
    );
}

#[test]
fn r04_r07_f37_weight_updates() {
    reaches(
        "weight-updates",
        &[
            Meets("update weights", State::Held),
            Meets("update weights", State::Written),
            Seen("loads before and after an update", |it| loads_around(it, updated)),
        ],
    );
}

#[test]
fn r04_r07_weight_updates_first() {
    reaches(
        "weight-updates-first",
        &[
            Fact("load failed: WeightsUpdated"),
            Seen("loads before and after an update", |it| loads_around(it, updated)),
        ],
    );
}

#[test]
fn r04_r07_s02_f37_weight_updates_asleep() {
    reaches(
        "weight-updates-asleep",
        &[
            Meets("update weights", State::Held),
            Meets("update weights", State::Written),
            Fact("wake"),
            Seen("loads before and after an update", |it| loads_around(it, updated)),
        ],
    );
}

fn resumed(what: &What) -> bool {
    matches!(what, What::Resumed)
}

#[test]
fn r01_r03_p13_f24_pause_abort_on_either_side_and_both() {
    for (name, state) in [
        ("pause-abort-prefill", State::Waiting),
        ("pause-abort-decode", State::Written),
        ("pause-abort-both", State::Writing),
    ] {
        reaches(
            name,
            &[
                Meets("pause abort", state),
                Seen("loads before and after a pause", |it| loads_around(it, resumed)),
            ],
        );
    }
}

#[test]
fn r01_pause_wait_on_either_side_and_both() {
    for (name, state) in [
        ("pause-wait-prefill", State::Held),
        ("pause-wait-decode", State::Written),
        ("pause-wait-both", State::Writing),
    ] {
        reaches(
            name,
            &[
                Meets("pause wait", state),
                Seen("loads before and after a pause", |it| loads_around(it, resumed)),
            ],
        );
    }
}

#[test]
fn r01_f38_pause_keep_on_either_side_and_both() {
    for (name, state) in [
        ("pause-keep-prefill", State::Held),
        ("pause-keep-decode", State::Written),
        ("pause-keep-both", State::Writing),
    ] {
        reaches(
            name,
            &[
                Meets("pause keep", state),
                Seen("loads before and after a pause", |it| loads_around(it, resumed)),
            ],
        );
    }
}

#[test]
fn r01_f38_a_pause_that_keeps_waits_for_no_export() {
    let mut over_held = 0;
    for plan in plans("pause-keep-prefill") {
        let events = run(&plan);
        for (index, planned) in plan.happenings.iter().enumerate() {
            let Happening::Pause { engine, for_ms, clear: false, .. } = planned.what else {
                continue;
            };
            let ends = events.iter().find(|it| match it.what {
                What::Happens { index: this, begins: false, .. } => this == index,
                _ => false,
            });
            let ends = ends.expect("it ends").at / 1_000_000;
            let alone = plan.happenings.iter().enumerate().all(|(other, it)| {
                other == index
                    || !matches!(it.what, Happening::Pause { engine: this, .. } if this == engine)
            });
            if alone {
                assert!(ends <= planned.at_ms + for_ms + 15, "{} seed {}", planned.what, plan.seed);
            }
            over_held += events
                .iter()
                .filter(|it| matches!(it.lane, Lane::Node(node) if node.engine == engine))
                .filter(|it| matches!(it.what, What::Held { .. }) && it.at / 1_000_000 < ends)
                .count();
        }
    }
    assert!(over_held > 0, "no pause met a held request");
}

#[test]
fn s06_r05_lifecycle_steps() {
    reaches(
        "lifecycle-steps",
        &[
            Fact("operation: resumed"),
            Fact("order failed"),
            Meets("resume", State::Draining),
            Seen("loads before and after", |it| loads_around(it, resumed)),
        ],
    );
}

#[test]
fn s06_r05_sleep_resumed() {
    reaches(
        "sleep-resumed",
        &[
            Fact("operation: resumed"),
            Meets("resume", State::Draining),
            Seen("loads before and after", |it| loads_around(it, resumed)),
        ],
    );
}

#[test]
fn s06_r02_r05_r06_lifecycle_any() {
    reaches(
        "lifecycle-any",
        &[
            Fact("operation done"),
            Fact("operation: busy"),
            Fact("operation: failed"),
            Fact("reset refused"),
            Fact("wake"),
            Seen("loads before and after", |it| loads_around(it, resumed)),
        ],
    );
}

#[test]
fn r03_r04_r06_resets() {
    reaches(
        "resets",
        &[
            Fact("load failed: Prefill(Reset)"),
            Fact("load failed: Reset"),
            Seen("nothing fails for a reset", |events| {
                events.iter().any(|it| matches!(it.what, What::OperationEnded { .. }))
            }),
        ],
    );
}

#[test]
fn r03_wait_before_pull() {
    reaches(
        "wait-before-pull",
        &[Fact("load ended: Loaded"), Fact("send ended: Sent"), Fact("operation done")],
    );
    for plan in plans("wait-before-pull") {
        let failed =
            |it: &Event| matches!(it.what, What::LoadEnded { end: LoadFact::Failed(_), .. });
        assert!(!run(&plan).iter().any(failed), "seed {}", plan.seed);
    }
}
