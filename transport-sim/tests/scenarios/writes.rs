//! Writes that are slow, stall, fail, or come late.

use crate::support::{Fact, Meets, Seen, plans, reaches, run};
use kvbaton_actors::transport::Rejection;
use kvbaton_transport_sim::campaign::coverage::State;
use kvbaton_transport_sim::history::{Event, SendFact, What};
use std::collections::BTreeMap;

#[test]
fn p01_p03_p04_p06_f05_f27_slow_writers() {
    reaches(
        "slow-writers",
        &[
            Fact("send ended: Expired"),
            Fact("load failed: Prefill(Expired)"),
            Fact("write failed, not settled"),
            Fact("release while written"),
            Fact("revoke while a write was landing"),
            Meets("release all", State::Writing),
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

#[test]
fn p06_f27_a_hold_outlives_its_time_while_it_is_written() {
    let mut outlived = 0;
    for plan in plans("slow-writers") {
        let mut held = BTreeMap::new();
        for event in run(&plan) {
            match event.what {
                What::Held { transfer, .. } => drop(held.insert((event.lane, transfer), event.at)),
                What::SendEnded { transfer, ended: SendFact::Sent, .. } => {
                    let since = held[&(event.lane, transfer)];
                    outlived += u32::from(event.at - since > plan.bounds.hold_ms * 1_000_000);
                }
                _ => {}
            }
        }
    }
    assert!(outlived > 0, "every write ended in its hold's time");
}

/// A write without a grant came for rows that no load had opened to such writers.
fn late_stock_write(event: &Event) -> bool {
    let late = Rejection::GrantRequired.to_string();
    matches!(&event.what, What::Refused { why, .. } if **why == *late)
}

#[test]
fn g03_p09_z02_stock_late_writes() {
    reaches(
        "stock-late-writes",
        &[
            Seen("a stock write is refused", |events| events.iter().any(late_stock_write)),
            Fact("load ended: Dropped"),
            Fact("load ended: Loaded"),
        ],
    );
}
