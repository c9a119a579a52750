//! Ids that are used again.

use crate::names::request;
use crate::sender_driver::{Answered, Ask, SenderDriver};
use kvbaton_core::sender::{Ended, SendError};
use kvbaton_core::wire::FailureReason;

const USED: Answered = Answered::Failed(FailureReason::AlreadyUsed, true);

#[test]
fn p11_f20_a_transfer_id_in_use_is_refused_and_its_owner_loses_nothing() {
    for ready in [false, true] {
        let mut p = SenderDriver::new();
        p.started("a").unwrap();
        if ready {
            p.hold("a").unwrap();
        }
        let error = p.hold_as("p-other", "a").unwrap_err();
        let SendError::TransferInUse { owner, .. } = error else { panic!("{error}") };
        assert_eq!(owner, request("p-a"));
        if !ready {
            p.hold("a").unwrap();
        }
        p.pull(Ask::of(0, &["a"]));
        p.written("a");
        assert_eq!(p.ended("a"), [Ended::Sent]);
    }
}

#[test]
fn p11_f20_a_transfer_id_may_be_used_again_after_it_ended() {
    let mut p = SenderDriver::new();
    p.hold("a").unwrap();
    p.pull(Ask::of(0, &["a"]));
    p.written("a");
    p.hold_as("p-second", "a").unwrap();
    let pull = p.pull(Ask::of(0, &["a"]));
    p.written("a");
    assert_eq!(p.answer(pull), Some(Answered::Ok));
    p.started("b").unwrap();
    p.abort("b");
    p.hold("b").unwrap();
    let pull = p.pull(Ask::of(0, &["b"]));
    p.written("b");
    assert_eq!(p.answer(pull), Some(Answered::Ok), "the first was aborted: the id is free");
}

#[test]
fn p11_f07_a_late_end_of_an_old_write_does_not_touch_the_new_transfer() {
    let mut p = SenderDriver::new();
    p.hold("a").unwrap();
    p.pull(Ask::of(0, &["a"]));
    let old = p.write_of("a");
    p.abort("a");
    assert!(p.hold_as("p-second", "a").is_err(), "a write still reads the first one's blocks");
    p.write_failed("a", true);
    p.hold_as("p-second", "a").unwrap();
    p.sender.write_done(old, kvbaton_core::sender::WriteResult::Written, p.now);
    p.drain();
    assert_eq!(p.ended("a"), [Ended::Failed(FailureReason::Aborted)]);
}

#[test]
fn p11_f28_a_transfer_that_was_sent_is_not_sent_again() {
    let mut p = SenderDriver::new();
    p.hold("a").unwrap();
    p.pull(Ask::of(0, &["a"]));
    p.written("a");
    let again = p.pull(Ask::of(0, &["a"]));
    assert_eq!(p.answer(again), Some(USED));
}

#[test]
fn p11_one_rank_pulls_a_transfer_once() {
    let mut p = SenderDriver::new();
    p.hold("a").unwrap();
    let first = p.pull(Ask::of(0, &["a"]).readers(2));
    let again = p.pull(Ask::of(0, &["a"]).readers(2));
    assert_eq!(p.answer(again), Some(USED));
    p.written("a");
    assert_eq!(p.answer(first), Some(Answered::Ok));
    let late = p.pull(Ask::of(0, &["a"]).readers(2));
    assert_eq!(p.answer(late), Some(USED));
    assert_eq!(p.ended("a"), [], "the second rank may still come");
}

#[test]
fn p11_one_pull_may_name_a_transfer_or_a_request_twice() {
    let mut p = SenderDriver::new();
    p.hold("a").unwrap();
    p.hold("b").unwrap();
    let mut ask = Ask::of(0, &["a", "a", "b"]);
    ask.requests[2].request_id = request("d-a");
    let pull = p.pull(ask);
    p.written("a");
    p.written("b");
    let answers: Vec<_> = p.answers(pull).into_iter().map(|(_, answer)| answer).collect();
    assert_eq!(answers, [USED, Answered::Ok, Answered::Ok]);
}

#[test]
fn p11_f23_two_samples_of_one_request_are_two_transfers() {
    let mut p = SenderDriver::new();
    p.hold_as("p-request", "sample 0").unwrap();
    p.hold_as("p-request", "sample 1").unwrap();
    p.pull(Ask::of(0, &["sample 0", "sample 1"]));
    p.written("sample 0");
    assert_eq!(p.ended("sample 1"), []);
    p.written("sample 1");
    assert_eq!(p.ended("sample 1"), [Ended::Sent]);
}
