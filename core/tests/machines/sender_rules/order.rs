//! Any order of prefill, pull and release.

use crate::sender_driver::{Answered, Ask, SenderDriver};
use kvbaton_core::sender::{Ended, SenderConfig};
use kvbaton_core::wire::FailureReason;
use std::time::Duration;

#[test]
fn p05_f19_pull_before_prefill_and_prefill_before_pull_are_both_in_order() {
    for announced in [false, true] {
        for pull_first in [false, true] {
            let mut p = SenderDriver::new();
            if announced {
                p.started("a").unwrap();
            }
            let mut pull = None;
            if pull_first {
                pull = Some(p.pull(Ask::of(0, &["a"])));
            }
            p.hold("a").unwrap();
            let pull = pull.unwrap_or_else(|| p.pull(Ask::of(0, &["a"])));
            p.written("a");
            assert_eq!(p.answer(pull), Some(Answered::Ok));
            assert_eq!(p.ended("a"), [Ended::Sent]);
        }
    }
}

#[test]
fn p05_p10_a_release_by_d_that_comes_first_ends_the_hold_at_once() {
    let mut p = SenderDriver::new();
    let release = p.pull(Ask::release(0, "a"));
    assert_eq!(p.answer(release), Some(Answered::Ok));
    p.started("a").unwrap();
    p.hold("a").unwrap();
    assert_eq!(p.ended("a"), [Ended::Failed(FailureReason::Released)]);
    assert_eq!(p.sender.transfers(), 0);
}

#[test]
fn p05_f17_a_release_by_the_router_that_comes_first_ends_the_hold_at_once() {
    let mut p = SenderDriver::new();
    p.release("a");
    let pull = p.pull(Ask::of(0, &["a"]));
    assert_eq!(p.answer(pull), Some(Answered::Failed(FailureReason::Released, true)));
    p.hold("a").unwrap();
    assert_eq!(p.ended("a"), [Ended::Failed(FailureReason::Released)]);
}

#[test]
fn p05_what_is_remembered_is_bounded_and_the_oldest_goes_first() {
    let mut p = SenderDriver::with(SenderConfig { max_remembered: 2, ..SenderConfig::default() });
    for name in ["a", "b", "c"] {
        p.release(name);
    }
    p.hold("c").unwrap();
    assert_eq!(p.ended("c").len(), 1);
    p.hold("a").unwrap();
    assert_eq!(p.ended("a"), [], "forgotten: it is held until it expires");
}

#[test]
fn p10_a_release_gives_the_blocks_back_and_one_of_two_readers_keeps_them() {
    let mut p = SenderDriver::new();
    p.hold("a").unwrap();
    p.pull(Ask::release(0, "a").readers(2));
    assert_eq!(p.ended("a"), []);
    let pull = p.pull(Ask::of(1, &["a"]).readers(2));
    p.written("a");
    assert_eq!(p.answer(pull), Some(Answered::Ok));
    assert_eq!(p.ended("a"), [Ended::Sent], "the one that wanted it has it");
}

#[test]
fn p10_a_release_does_not_cut_a_reader_short() {
    let mut p = SenderDriver::new();
    p.hold("a").unwrap();
    let pull = p.pull(Ask::of(0, &["a"]).readers(1));
    p.pull(Ask::release(1, "a").readers(1));
    assert!(p.cancelled.is_empty());
    p.written("a");
    assert_eq!(p.answer(pull), Some(Answered::Ok));
}

#[test]
fn f19_f24_an_abort_tells_who_waits_and_who_comes_late() {
    let mut p = SenderDriver::new();
    p.started("a").unwrap();
    let waits = p.pull(Ask::of(0, &["a"]).readers(2));
    p.abort("a");
    let aborted = Some(Answered::Failed(FailureReason::Aborted, true));
    assert_eq!(p.answer(waits), aborted);
    let late = p.pull(Ask::of(1, &["a"]).readers(2));
    assert_eq!(p.answer(late), aborted);
    assert_eq!(p.sender.transfers(), 0);
}

#[test]
fn p13_aborting_or_releasing_what_is_gone_or_was_never_there_fails_nothing() {
    let mut p = SenderDriver::new();
    for _ in 0..2 {
        p.abort("never");
        p.release("never");
        p.drop_load(0, "never");
    }
    p.hold("sent").unwrap();
    p.pull(Ask::of(0, &["sent"]));
    p.written("sent");
    p.abort("sent");
    p.release("sent");
    p.drop_load(0, "sent");
    assert_eq!(p.ended("sent"), [Ended::Sent]);
    let late = p.pull(Ask::of(1, &["sent"]));
    assert_eq!(p.answer(late), Some(Answered::Failed(FailureReason::AlreadyUsed, true)));
    p.hold("never").unwrap();
    assert_eq!(p.ended("never"), [], "an abort of what was never scheduled binds nobody");
}

#[test]
fn p13_what_ends_twice_is_cancelled_once_and_keeps_its_first_reason() {
    let mut p = SenderDriver::new();
    p.hold("a").unwrap();
    let pull = p.pull(Ask::of(0, &["a"]));
    p.drop_load(0, "a");
    p.drop_load(0, "a");
    p.abort("a");
    p.release("a");
    p.sender.release_all(p.now);
    p.drain();
    assert_eq!(p.cancelled.len(), 1);
    p.write_failed("a", true);
    assert_eq!(p.answer(pull), Some(Answered::Failed(FailureReason::Dropped, true)));
    assert_eq!(p.ended("a"), [Ended::Failed(FailureReason::Aborted)]);
}

#[test]
fn r03_f38_releasing_everything_leaves_what_still_runs() {
    let mut p = SenderDriver::new();
    p.hold("held").unwrap();
    p.started("runs").unwrap();
    let pull = p.pull(Ask::of(0, &["runs"]).timeout(Duration::from_secs(30)));
    p.sender.release_all(p.now);
    p.drain();
    assert_eq!(p.ended("held"), [Ended::Failed(FailureReason::Released)]);
    p.hold("runs").unwrap();
    p.written("runs");
    assert_eq!(p.answer(pull), Some(Answered::Ok));
}
