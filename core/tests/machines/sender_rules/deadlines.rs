//! Deadlines of pulls and holds.

use crate::names::seconds;
use crate::sender_driver::{Answered, Ask, SenderDriver};
use kvbaton_core::sender::{Ended, SenderConfig};
use kvbaton_core::time::Timestamp;
use kvbaton_core::wire::FailureReason;
use std::time::Duration;

const TIMED_OUT: Answered = Answered::Failed(FailureReason::TimedOut, true);

#[test]
fn p04_a_pull_is_answered_a_margin_before_d_stops_waiting() {
    for (wait, margin) in [(60, 2), (4, 1)] {
        let mut p = SenderDriver::new();
        let pull = p.pull(Ask::of(0, &["a"]).timeout(Duration::from_secs(wait)));
        p.wait_until(seconds(wait - margin) - Duration::from_nanos(1));
        assert_eq!(p.answer(pull), None);
        p.wait_until(seconds(wait - margin));
        assert_eq!(p.answer(pull), Some(TIMED_OUT));
    }
}

#[test]
fn p04_no_write_starts_after_the_deadline_even_when_the_tick_is_late() {
    let mut p = SenderDriver::new();
    let pull = p.pull(Ask::of(0, &["a"]).timeout(Duration::from_secs(10)));
    p.now = seconds(1000);
    p.hold("a").unwrap();
    assert_eq!(p.running.len(), 0);
    p.wait_until(p.now);
    assert_eq!(p.answer(pull), Some(TIMED_OUT));
    assert_eq!(p.ended("a"), [Ended::Failed(FailureReason::TimedOut)]);
}

#[test]
fn p04_a_write_that_runs_at_the_deadline_decides_its_answer() {
    let mut p = SenderDriver::new();
    p.hold("a").unwrap();
    let pull = p.pull(Ask::of(0, &["a", "b"]).timeout(Duration::from_secs(10)));
    p.wait_until(seconds(11));
    assert_eq!(p.answers(pull).len(), 1, "only the one that is not written is answered");
    p.write_failed("a", false);
    assert!(p.is_over(pull));
    let unsettled = Answered::Failed(FailureReason::WriteFailed, false);
    assert_eq!(p.answers(pull)[1].1, unsettled, "P says that bytes may still land");
}

#[test]
fn p06_f26_held_blocks_come_back_a_timeout_after_the_prefill() {
    let mut p = SenderDriver::new();
    p.hold("a").unwrap();
    let due = Timestamp(0) + p.config.hold_timeout;
    p.wait_until(due - Duration::from_nanos(1));
    assert_eq!(p.ended("a"), []);
    p.wait_until(due);
    assert_eq!(p.ended("a"), [Ended::Failed(FailureReason::Expired)]);
}

#[test]
fn p06_f27_a_pull_for_an_expired_transfer_fails() {
    let mut p = SenderDriver::new();
    p.hold("a").unwrap();
    p.wait_until(Timestamp(0) + p.config.hold_timeout);
    let pull = p.pull(Ask::of(0, &["a"]));
    assert_eq!(p.answer(pull), Some(Answered::Failed(FailureReason::Expired, true)));
}

#[test]
fn p06_nothing_expires_while_a_write_reads_it() {
    let mut p = SenderDriver::new();
    p.hold("a").unwrap();
    p.wait_until(Timestamp(0) + p.config.hold_timeout - Duration::from_secs(1));
    p.pull(Ask::of(0, &["a"]).readers(2));
    p.wait_until(Timestamp(0) + p.config.hold_timeout + Duration::from_secs(5));
    assert_eq!(p.ended("a"), []);
    assert!(p.cancelled.is_empty(), "nor is the write cut short");
    p.written("a");
    p.wait_until(p.now + p.config.write_timeout);
    assert_eq!(p.ended("a"), [Ended::Failed(FailureReason::Expired)], "the second never came");
}

#[test]
fn p06_a_transfer_that_only_d_named_expires_and_a_late_prefill_gets_its_blocks_back() {
    let mut p = SenderDriver::new();
    let pull = p.pull(Ask::of(0, &["a"]).readers(2).timeout(Duration::ZERO));
    p.wait_until(Timestamp(0) + p.config.hold_timeout);
    assert_eq!(p.sender.transfers(), 0);
    assert!(p.is_over(pull));
    p.started("a").unwrap();
    assert_eq!(p.sender.transfers(), 0, "it is over already");
    p.hold("a").unwrap();
    assert_eq!(p.ended("a").len(), 1);
}

#[test]
fn p06_a_request_that_was_announced_does_not_expire_while_it_runs() {
    let mut p = SenderDriver::new();
    p.pull(Ask::of(0, &["a"]).readers(2));
    p.started("a").unwrap();
    p.wait_until(Timestamp(0) + p.config.hold_timeout * 3);
    assert_eq!(p.sender.transfers(), 1);
    p.hold("a").unwrap();
    assert_eq!(p.ended("a"), []);
}

#[test]
fn p06_a_repeated_hold_or_start_does_not_make_blocks_immortal() {
    for again in ["hold", "start"] {
        let mut p = SenderDriver::new();
        p.hold("a").unwrap();
        let repeated = if again == "hold" { p.hold("a") } else { p.started("a") };
        assert!(repeated.is_err(), "{again}: the transfer is in use");
        p.wait_until(Timestamp(0) + p.config.hold_timeout);
        assert_eq!(p.ended("a"), [Ended::Failed(FailureReason::Expired)], "{again}");
    }
}

#[test]
fn f25_everything_that_waits_has_a_deadline_and_a_jump_of_the_clock_ends_it_all() {
    let mut p = SenderDriver::with(SenderConfig { senders: 1, ..SenderConfig::default() });
    p.hold("a").unwrap();
    p.hold("b").unwrap();
    let pull = p.pull(Ask::of(0, &["a", "b", "c"]));
    p.now = seconds(1_000_000);
    p.sender.tick(p.now);
    p.drain();
    assert_eq!(p.answers(pull).len(), 2);
    p.write_failed("a", true);
    assert!(p.is_over(pull));
    assert_eq!((p.sender.transfers(), p.sender.next_deadline()), (0, None));
}

#[test]
fn deadlines_of_zero_do_not_stop_the_clock() {
    let config = SenderConfig {
        write_timeout: Duration::ZERO,
        hold_timeout: Duration::ZERO,
        ..SenderConfig::default()
    };
    let mut p =
        SenderDriver::with(SenderConfig { write_timeout: Duration::from_nanos(1), ..config });
    p.hold("a").unwrap();
    p.pull(Ask::of(0, &["a"]));
    p.sender.tick(seconds(1));
    assert!(p.sender.next_deadline().is_some_and(|due| due > seconds(1)));
}
