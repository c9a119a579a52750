//! Networks that lose, break and part.

use crate::support::{Fact, Meets, Seen, reaches};
use kvbaton_transport_sim::campaign::coverage::State;
use kvbaton_transport_sim::history::{Event, LoadFact, What};

/// Something was loaded after the last happening had ended.
fn loads_afterwards(events: &[Event]) -> bool {
    let over = |it: &Event| matches!(it.what, What::Happens { begins: false, .. });
    let Some(at) = events.iter().rposition(over) else { return false };
    events[at..].iter().any(|it| matches!(it.what, What::LoadEnded { end: LoadFact::Loaded, .. }))
}

#[test]
fn p04_p08_p12_f18_f25_partition() {
    reaches(
        "partition",
        &[
            Meets("cut", State::Writing),
            Meets("cut", State::LoadingWithLayout),
            Fact("message lost"),
            Fact("load failed: TimedOut"),
            Seen("loads after it", loads_afterwards),
        ],
    );
}

#[test]
fn p04_p08_p09_f25_asymmetric_partition() {
    reaches(
        "asymmetric-partition",
        &[
            Meets("cut", State::Writing),
            Fact("load failed: TimedOut"),
            Fact("drop received"),
            Seen("loads after it", loads_afterwards),
        ],
    );
}

#[test]
fn p02_p05_p08_l10_f25_lossy_network() {
    reaches(
        "lossy-network",
        &[
            Fact("message lost"),
            Fact("duplicate pull"),
            Fact("drop before its pull"),
            Fact("load ended: Loaded"),
            Fact("load failed: TimedOut"),
        ],
    );
}

#[test]
fn p02_p12_f18_connection_resets() {
    reaches(
        "connection-resets",
        &[
            Fact("connection broken"),
            Meets("reset", State::LoadingWithLayout),
            Fact("load failed: Unreachable"),
            Fact("load ended: Loaded"),
        ],
    );
}

#[test]
fn p12_s02_l04_late_trap() {
    reaches(
        "late-trap",
        &[
            Fact("pull without layout"),
            Seen("a fault after a minute of calm", |events| {
                events.iter().any(|it| {
                    matches!(it.what, What::Happens { begins: true, .. }) && it.at > 60_000_000_000
                })
            }),
            Seen("loads after it", loads_afterwards),
        ],
    );
}
