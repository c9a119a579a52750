//! Writes that are slow, stall, fail, or come late.

use crate::support::{Fact, Meets, Seen, reaches};
use kvbaton_transport_sim::campaign::coverage::State;
use kvbaton_transport_sim::history::{Event, What};
use std::collections::BTreeMap;

/// A hold expired in the moment in which a write that read it ended: it had waited for it.
fn expires_after_its_write(events: &[Event]) -> bool {
    let mut ended = BTreeMap::new();
    events.iter().any(|it| match &it.what {
        What::WriteEnded { .. } => {
            ended.insert(it.lane, it.at);
            false
        }
        What::SendEnded {
            ended: kvbaton_transport_sim::history::SendFact::Failed(why), ..
        } => &**why != "Released" && ended.get(&it.lane) == Some(&it.at),
        _ => false,
    })
}

#[test]
fn p01_p03_p04_p06_f05_f27_slow_writers() {
    reaches(
        "slow-writers",
        &[
            Fact("send ended: Expired"),
            Fact("load failed: Prefill(Expired)"),
            Fact("load failed: TimedOut"),
            Fact("load failed: Prefill(TimedOut)"),
            Fact("write failed, not settled"),
            Fact("release while written"),
            Fact("revoke while a write was landing"),
            Meets("release all", State::Writing),
            Seen("a hold that waits for its write", expires_after_its_write),
        ],
    );
}

#[test]
fn p03_p07_f04_f22_failing_writes() {
    reaches(
        "failing-writes",
        &[
            Fact("write failed, settled"),
            Fact("write failed, not settled"),
            Fact("load failed: Prefill(WriteFailed)"),
            Fact("load ended: Loaded"),
        ],
    );
}

#[test]
fn g02_p09_f01_f02_late_pieces() {
    reaches(
        "late-pieces",
        &[
            Fact("revoke while a write was landing"),
            Fact("write refused"),
            Fact("load ended: Dropped"),
            Fact("compared bytes"),
        ],
    );
}
