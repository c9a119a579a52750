//! Weight updates and resets of P's engine.

use crate::names::{request, transfer};
use crate::sender_driver::{Answered, Ask, SenderDriver};
use kvbaton_core::sender::{Ended, SenderConfig};
use kvbaton_core::wire::FailureReason;

const OTHER: Answered = Answered::Failed(FailureReason::OtherWeights, true);
const RESET: Answered = Answered::Failed(FailureReason::Reset, true);
const OLD: Ended = Ended::Failed(FailureReason::OtherWeights);

#[test]
fn r07_p01_holds_of_old_weights_end_at_once_or_with_the_write_that_reads_them() {
    let config = SenderConfig { senders: 1, ..SenderConfig::default() };
    let mut p = SenderDriver::with(config);
    p.set_weights(1);
    for name in ["read", "queued", "unpulled"] {
        p.hold(name).unwrap();
    }
    let pull = p.pull(Ask::of(0, &["read", "queued"]));
    p.set_weights(1);
    assert!(p.finished.is_empty() && p.cancelled.is_empty(), "the same weights again");
    p.set_weights(2);
    assert_eq!((p.ended("unpulled"), p.ended("queued")), (vec![OLD], vec![OLD]));
    assert_eq!(p.answers(pull), [(request("d-queued"), OTHER)]);
    assert_eq!(p.cancelled, [p.write_of("read")]);
    assert_eq!(p.ended("read"), [], "a write reads them");
    p.write_failed("read", true);
    assert_eq!(p.ended("read"), [OLD]);
    assert_eq!(p.answers(pull)[1], (request("d-read"), OTHER));
    let late = p.pull(Ask::of(1, &["unpulled"]));
    assert_eq!(p.answer(late), Some(OTHER));
}

#[test]
fn r07_a_write_that_ends_well_after_the_update_is_not_served() {
    for released in [false, true] {
        let mut p = SenderDriver::new();
        p.hold("a").unwrap();
        let pull = p.pull(Ask::of(0, &["a"]));
        if released {
            p.release("a");
        }
        p.set_weights(2);
        p.written("a");
        assert_eq!(p.answer(pull), Some(OTHER), "released: {released}");
        assert_eq!(p.ended("a"), [OLD]);
    }
}

#[test]
fn r07_what_was_started_under_old_weights_goes_back_with_its_hold() {
    let mut p = SenderDriver::with(SenderConfig { max_remembered: 1, ..SenderConfig::default() });
    p.started("a").unwrap();
    let early = p.pull(Ask::of(0, &["a"]));
    p.set_weights(2);
    assert_eq!(p.answer(early), Some(OTHER), "D is told at once");
    for name in ["b", "c", "d"] {
        p.abort(name); // whatever is only remembered is forgotten
    }
    let late = p.pull(Ask::of(1, &["a"]));
    assert_eq!(p.answer(late), Some(OTHER));
    p.started("a").unwrap();
    p.hold("a").unwrap();
    assert_eq!(p.ended("a"), [OLD]);
    assert_eq!((p.sender.transfers(), p.sender.held_blocks()), (0, 0));
    let after = p.pull(Ask::of(2, &["a"]));
    assert_eq!(p.answer(after), Some(OTHER));
}

#[test]
fn r07_p13_a_request_that_is_aborted_after_the_update_says_why_it_was_not_served() {
    let mut p = SenderDriver::new();
    p.started("a").unwrap();
    p.set_weights(2);
    p.abort("a");
    assert_eq!(p.sender.transfers(), 0);
    let late = p.pull(Ask::of(0, &["a"]));
    assert_eq!(p.answer(late), Some(OTHER));
}

#[test]
fn r07_what_only_d_has_named_waits_for_the_new_weights() {
    let mut p = SenderDriver::new();
    p.set_weights(1);
    let pull = p.pull(Ask::of(0, &["a"]).weights(2));
    p.set_weights(2);
    p.hold("a").unwrap();
    p.written("a");
    assert_eq!(p.answer(pull), Some(Answered::Ok));
    assert_eq!(p.ended("a"), [Ended::Sent]);
}

#[test]
fn r07_a_d_of_other_weights_is_told_both_versions_and_who_does_not_say_is_served() {
    let fits = [(0, 0), (0, 7), (7, 0), (7, 7)];
    for (ours, theirs) in fits.into_iter().chain([(7, 8), (8, 7)]) {
        for order in ["hold, pull", "start, pull, hold", "pull, start, hold", "pull, hold"] {
            let mut p = SenderDriver::new();
            p.set_weights(ours);
            let mut pull = None;
            for step in order.split(", ") {
                match step {
                    "hold" => p.hold("a").unwrap(),
                    "start" => p.started("a").unwrap(),
                    _ => pull = Some(p.pull(Ask::of(0, &["a"]).weights(theirs))),
                }
            }
            let pull = pull.unwrap();
            if fits.contains(&(ours, theirs)) {
                p.written("a");
                assert_eq!(p.answer(pull), Some(Answered::Ok), "{order} {ours} {theirs}");
                continue;
            }
            assert_eq!(p.answer(pull), Some(OTHER), "{order} {ours} {theirs}");
            assert_eq!(p.ended("a"), [OLD], "nobody else will pull it: {order}");
            let text = p.replies[&pull][0].message.clone().unwrap();
            for version in [ours, theirs] {
                assert!(text.contains(&format!("weights {version}")), "{text}");
            }
        }
    }
}

#[test]
fn r07_p02_a_d_of_other_weights_is_told_with_the_start_and_not_only_with_the_hold() {
    let mut p = SenderDriver::new();
    p.set_weights(7);
    let pull = p.pull(Ask::of(0, &["a"]).weights(8));
    assert_eq!(p.answer(pull), None, "P's engine has not named it: it may be updated first");
    p.started("a").unwrap();
    assert_eq!(p.answer(pull), Some(OTHER));
}

#[test]
fn r07_the_other_d_ranks_of_a_transfer_are_served_and_a_release_needs_no_weights() {
    let mut p = SenderDriver::new();
    p.set_weights(1);
    p.hold("a").unwrap();
    let wrong = p.pull(Ask::of(0, &["a"]).readers(2).weights(2));
    let right = p.pull(Ask::of(1, &["a"]).readers(2).weights(1));
    p.written("a");
    assert_eq!((p.answer(wrong), p.answer(right)), (Some(OTHER), Some(Answered::Ok)));
    p.hold("b").unwrap();
    let release = p.pull(Ask::release(0, "b").weights(2));
    assert_eq!(p.answer(release), Some(Answered::Ok));
}

#[test]
fn r03_r04_aborting_transfers_gives_held_blocks_back_and_tells_d_to_recompute() {
    let config = SenderConfig { senders: 1, ..SenderConfig::default() };
    let mut p = SenderDriver::with(config);
    for name in ["read", "queued", "unpulled"] {
        p.hold(name).unwrap();
    }
    p.started("runs").unwrap();
    let names = ["read", "queued", "runs", "named by d"];
    let pull = p.pull(Ask::of(0, &names));
    p.abort_transfers();
    let told = ["d-queued", "d-named by d", "d-runs"].map(|name| (request(name), RESET));
    assert_eq!(p.answers(pull), told, "all that is not being written");
    let reset = Ended::Failed(FailureReason::Reset);
    assert_eq!((p.ended("unpulled"), p.ended("queued")), (vec![reset], vec![reset]));
    assert_eq!(p.cancelled, [p.write_of("read")]);
    assert_eq!(p.ended("read"), []);
    p.write_failed("read", true);
    assert_eq!(p.ended("read"), [reset]);
    assert!(p.is_over(pull));
    p.hold("runs").unwrap();
    assert_eq!(p.ended("runs"), [reset], "D recomputes it");
    let late = p.pull(Ask::of(1, &["unpulled"]));
    assert_eq!(p.answer(late), Some(RESET));
    assert_eq!((p.sender.held(), p.sender.transfers()), (0, 0));
}

#[test]
fn r03_a_request_that_nobody_waits_for_goes_on_over_a_reset() {
    let mut p = SenderDriver::new();
    p.started("a").unwrap();
    p.abort_transfers();
    p.hold("a").unwrap();
    let pull = p.pull(Ask::of(0, &["a"]));
    p.written("a");
    assert_eq!(p.answer(pull), Some(Answered::Ok));
    assert!(p.sender.in_use().all(|it| *it.transfer != transfer("a")));
}
