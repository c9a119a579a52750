//! Loads that D gave up.

use crate::sender_driver::{Answered, Ask, SenderDriver};
use kvbaton_core::sender::{Ended, WriteResult};
use kvbaton_core::wire::FailureReason;

const DROPPED: Answered = Answered::Failed(FailureReason::Dropped, true);

#[test]
fn p09_f01_a_drop_answers_who_waits_and_gives_the_blocks_back() {
    for held in [false, true] {
        let mut p = SenderDriver::with(kvbaton_core::sender::SenderConfig {
            senders: 1,
            ..Default::default()
        });
        p.hold("busy").unwrap();
        p.pull(Ask::of(0, &["busy"]));
        if held {
            p.hold("a").unwrap();
        }
        let pull = p.pull(Ask::of(0, &["a"]));
        p.drop_load(0, "a");
        assert_eq!(p.answer(pull), Some(DROPPED));
        if !held {
            p.hold("a").unwrap();
        }
        assert_eq!(p.ended("a"), [Ended::Failed(FailureReason::Dropped)]);
    }
}

#[test]
fn p11_what_ended_before_its_hold_concerns_the_announced_request_alone() {
    let mut p = SenderDriver::new();
    p.started("a").unwrap();
    p.pull(Ask::of(0, &["a"]));
    p.drop_load(0, "a");
    let mut other = p.clone();
    other.hold_as("p-b", "a").unwrap();
    assert_eq!(other.ended("a"), [], "the id is free for another request");
    p.hold("a").unwrap();
    assert_eq!(p.ended("a"), [Ended::Failed(FailureReason::Dropped)]);
}

#[test]
fn p09_f02_a_dropped_write_is_cancelled_and_answered_when_it_has_settled() {
    let mut p = SenderDriver::new();
    p.hold("a").unwrap();
    let pull = p.pull(Ask::of(0, &["a"]));
    p.drop_load(0, "a");
    assert_eq!(p.cancelled, [p.write_of("a")]);
    assert_eq!(p.answer(pull), None, "the write may still land bytes");
    p.write_failed("a", true);
    assert_eq!(p.answer(pull), Some(DROPPED));
}

#[test]
fn p09_f01_a_write_that_completes_before_its_drop_counts_as_sent() {
    let mut p = SenderDriver::new();
    p.hold("a").unwrap();
    let pull = p.pull(Ask::of(0, &["a"]));
    p.drop_load(0, "a");
    p.written("a");
    assert_eq!(p.answer(pull), Some(Answered::Ok));
    assert_eq!(p.ended("a"), [Ended::Sent]);
}

#[test]
fn p09_a_drop_of_one_d_rank_leaves_the_others() {
    let mut p = SenderDriver::new();
    p.hold("a").unwrap();
    let pulls = [0, 1].map(|rank| p.pull(Ask::of(rank, &["a"]).readers(2)));
    p.drop_load(0, "a");
    let (dropped, other) = (p.cancelled[0], *p.running.keys().last().unwrap());
    p.write_done(dropped, WriteResult::Failed { settled: true, message: "cancelled".into() });
    p.write_done(other, WriteResult::Written);
    assert_eq!(pulls.map(|pull| p.answer(pull)), [Some(DROPPED), Some(Answered::Ok)]);
    assert_eq!(p.ended("a"), [Ended::Failed(FailureReason::Dropped)]);
}

#[test]
fn p09_a_drop_that_overtakes_its_pull_is_remembered_and_frees_the_blocks() {
    for order in ["hold, drop, pull", "drop, pull, hold", "drop, hold, pull"] {
        let mut p = SenderDriver::new();
        let mut pull = None;
        for step in order.split(", ") {
            match step {
                "hold" => p.hold("a").unwrap(),
                "drop" => p.drop_load(0, "a"),
                _ => pull = Some(p.pull(Ask::of(0, &["a"]))),
            }
        }
        assert_eq!(p.answer(pull.unwrap()), Some(DROPPED), "{order}");
        assert_eq!(p.ended("a"), [Ended::Failed(FailureReason::Dropped)], "{order}");
        assert_eq!(p.sender.transfers(), 0, "{order}");
    }
}

#[test]
fn p09_a_dropped_rank_counts_as_answered_among_several() {
    let mut p = SenderDriver::new();
    p.hold("a").unwrap();
    p.drop_load(0, "a");
    let pulls = [0, 1].map(|rank| p.pull(Ask::of(rank, &["a"]).readers(2)));
    p.written("a");
    assert_eq!(pulls.map(|pull| p.answer(pull)), [Some(DROPPED), Some(Answered::Ok)]);
    assert_eq!(p.ended("a").len(), 1, "the blocks do not wait for the rank that gave up");
}

#[test]
fn p09_a_drop_needs_the_load_s_own_grant() {
    let mut p = SenderDriver::new();
    let pull = p.pull(Ask::of(0, &["a"]));
    p.drop_load(1, "a");
    assert_eq!(p.answer(pull), None);
}
