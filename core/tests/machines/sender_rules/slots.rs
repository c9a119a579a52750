//! Bounded writes.

use crate::names::transfer;
use crate::sender_driver::{Answered, Ask, SenderDriver};
use kvbaton_core::sender::{SenderConfig, WriteResult};
use kvbaton_core::wire::FailureReason;
use std::time::Duration;

fn one_slot() -> SenderDriver {
    SenderDriver::with(SenderConfig { senders: 1, ..SenderConfig::default() })
}

#[test]
fn p03_writes_wait_for_a_slot_in_order_of_arrival() {
    let mut p = one_slot();
    for name in ["a", "b", "c"] {
        p.hold(name).unwrap();
    }
    for name in ["b", "a", "c"] {
        p.pull(Ask::of(0, &[name]));
    }
    let mut order = Vec::new();
    while let Some(write) = p.running.keys().next().copied() {
        order.push(p.running[&write].transfer.clone());
        p.write_done(write, WriteResult::Written);
    }
    assert_eq!(order, ["b", "a", "c"].map(transfer));
}

#[test]
fn p03_z03_a_d_that_stopped_reading_leaves_slots_for_the_others() {
    let config = SenderConfig { senders: 3, senders_per_peer: 2, ..SenderConfig::default() };
    let mut p = SenderDriver::with(config);
    for name in ["a", "b", "c", "other"] {
        p.hold(name).unwrap();
    }
    for name in ["a", "b", "c"] {
        p.pull(Ask::of(0, &[name]));
    }
    let mut other = Ask::of(0, &["other"]);
    other.reader = crate::names::reader(2, 0);
    p.pull(other);
    let running: Vec<_> = p.running.values().map(|it| it.transfer.clone()).collect();
    assert_eq!(running, ["a", "b", "other"].map(transfer));
    p.written("a");
    assert!(p.running.values().any(|it| it.transfer == transfer("c")), "its turn has come");
}

#[test]
fn p03_a_pull_that_waits_for_its_prefill_takes_no_slot() {
    let mut p = one_slot();
    p.pull(Ask::of(0, &["unready"]));
    p.hold("ready").unwrap();
    let pull = p.pull(Ask::of(0, &["ready"]));
    p.written("ready");
    assert_eq!(p.answer(pull), Some(Answered::Ok));
}

#[test]
fn p03_who_waits_for_a_slot_is_answered_at_once_when_its_transfer_ends() {
    let mut p = one_slot();
    for name in ["runs", "queued", "next"] {
        p.hold(name).unwrap();
        p.pull(Ask::of(0, &[name]));
    }
    assert_eq!(p.sender.queued(), 2);
    p.abort("queued");
    assert_eq!(p.sender.queued(), 1, "the queue forgets whoever left");
    p.written("runs");
    assert_eq!(p.running.values().next().unwrap().transfer, transfer("next"));
}

#[test]
fn p03_the_queue_does_not_grow_with_pulls_that_left_it() {
    let mut p = one_slot();
    p.hold("runs").unwrap();
    p.pull(Ask::of(0, &["runs"]));
    for round in 0..1000 {
        let name = format!("t{round}");
        p.hold(&name).unwrap();
        let pull = p.pull(Ask::of(0, &[&name]));
        p.drop_load(0, &name);
        assert_eq!(p.answer(pull), Some(Answered::Failed(FailureReason::Dropped, true)));
        assert_eq!(p.sender.queued(), 0);
    }
}

#[test]
fn p04_a_write_gets_no_more_time_than_its_pull_has_left() {
    let mut p = one_slot();
    p.hold("a").unwrap();
    p.pull(Ask::of(0, &["a"]).timeout(Duration::from_secs(4)));
    let write = &p.running[&p.write_of("a")];
    assert_eq!(write.timeout, Duration::from_secs(3), "a quarter is the margin");
}

#[test]
fn g01_s04_a_write_carries_its_load_s_grant_and_d_s_generation() {
    let mut p = one_slot();
    p.hold("a").unwrap();
    p.pull(Ask::of(3, &["a"]));
    let write = &p.running[&p.write_of("a")];
    assert_eq!(write.grant, Some(crate::sender_driver::grant(3, "a")));
    assert_eq!(write.generation, Some(kvbaton_core::ids::Generation(7)));
    assert_eq!(write.reader, crate::names::reader(1, 3));
}
