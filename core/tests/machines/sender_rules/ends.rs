//! How transfers end, and how every pull is answered.

use crate::names::{request, seconds, session, transfer};
use crate::planner::Planner;
use crate::sender_driver::{Answered, Ask, RUN, SenderDriver};
use kvbaton_core::ids::Incarnation;
use kvbaton_core::sender::{Ended, PullId, SendInUse, SendUse, SenderAction};
use kvbaton_core::wire::{FailureReason, Status};
use std::time::Duration;

#[test]
fn p01_a_transfer_waits_is_ready_and_ends_once_its_blocks_are_read() {
    let mut p = SenderDriver::new();
    p.started("a").unwrap();
    let pull = p.pull(Ask::of(0, &["a"]));
    assert_eq!((p.sender.held(), p.running.len()), (0, 0));
    p.hold("a").unwrap();
    assert_eq!((p.sender.held(), p.running.len()), (1, 1));
    assert_eq!(p.answer(pull), None);
    p.written("a");
    assert_eq!(p.answer(pull), Some(Answered::Ok));
    assert_eq!(p.ended("a"), [Ended::Sent]);
    assert_eq!(p.sender.transfers(), 0);
}

#[test]
fn p01_blocks_stay_until_the_last_write_has_ended_however_the_transfer_ends() {
    for end in ["abort", "release", "release all", "sibling", "drop", "expiry"] {
        let mut p = SenderDriver::new();
        p.hold("a").unwrap();
        let pulls = [0, 1].map(|rank| p.pull(Ask::of(rank, &["a"]).readers(2)));
        let writes: Vec<_> = p.running.keys().copied().collect();
        let failed = kvbaton_core::sender::WriteResult::Failed {
            settled: true,
            message: "cut short".into(),
        };
        match end {
            "abort" => p.abort("a"),
            "release" => p.release("a"),
            "release all" => {
                p.sender.release_all(p.now);
                p.drain();
            }
            "drop" => (0..2).for_each(|rank| p.drop_load(rank, "a")),
            "sibling" => p.write_done(writes[0], failed.clone()),
            _ => p.wait_until(p.now + p.config.hold_timeout + Duration::from_secs(100)),
        }
        assert_eq!(p.ended("a"), [], "{end}: a write still reads the blocks");
        for write in writes {
            if p.running.contains_key(&write) {
                p.write_done(write, failed.clone());
            }
        }
        assert_eq!(p.ended("a").len(), 1, "{end}");
        assert!(pulls.iter().all(|pull| p.is_over(*pull)), "{end}");
    }
}

#[test]
fn p02_every_request_of_a_pull_is_answered_when_it_is_decided_and_not_later() {
    let mut p = SenderDriver::new();
    p.hold("sent").unwrap();
    p.abort("aborted");
    p.release("released");
    let all = ["sent", "aborted", "released", "waits", "late"];
    let pull = p.pull(Ask::of(0, &all));
    let failed = |why| Answered::Failed(why, true);
    assert_eq!(
        p.answers(pull),
        [
            (request("d-aborted"), failed(FailureReason::Aborted)),
            (request("d-released"), failed(FailureReason::Released)),
        ]
    );
    p.written("sent");
    p.abort("waits");
    assert!(!p.is_over(pull));
    p.hold("late").unwrap();
    p.written("late");
    assert!(p.is_over(pull));
    let statuses: Vec<Status> = p.replies[&pull].iter().map(|reply| reply.status).collect();
    assert_eq!(
        statuses,
        [Status::Continue, Status::Continue, Status::Continue, Status::Finish],
        "one answer per piece of news"
    );
}

#[test]
fn p02_an_empty_pull_is_answered_too() {
    let mut p = SenderDriver::new();
    let pull = p.pull(Ask::of(0, &[]));
    assert!(p.is_over(pull));
    assert_eq!(p.replies[&pull][0].status, Status::Finish);
    assert_eq!(p.sender.next_deadline(), None);
}

#[test]
fn p02_an_answer_waits_for_no_other_pull() {
    let mut p = SenderDriver::new();
    let slow = p.pull(Ask::of(0, &["slow", "shared"]).readers(2));
    p.hold("shared").unwrap();
    let quick = p.pull(Ask::of(1, &["shared"]).readers(2));
    let second = *p.running.keys().last().unwrap();
    p.write_done(second, kvbaton_core::sender::WriteResult::Written);
    assert_eq!(p.answer(quick), Some(Answered::Ok));
    assert!(!p.is_over(slow));
}

#[test]
fn p02_l03_answers_echo_the_layout_and_tell_our_own_d_what_has_settled() {
    let mut p = SenderDriver::new();
    let ours = p.pull(Ask::of(0, &["a"]));
    let mut ask = Ask::of(1, &["a"]);
    ask.requests[0].grant = None; // a stock D
    let stock = p.pull(ask);
    p.abort("a");
    let (ours, stock) = (&p.replies[&ours][0], &p.replies[&stock][0]);
    assert_eq!(ours.layout_id, kvbaton_core::ids::LayoutId(9));
    assert_eq!(ours.extension.as_ref().unwrap().incarnation, RUN);
    assert_eq!(stock.extension, None, "a stock D never sees our fields");
    assert!(stock.message.as_ref().unwrap().contains("aborted"));
}

#[test]
fn p07_a_failed_write_ends_the_transfer_for_every_d_rank_at_once() {
    let mut p = SenderDriver::new();
    p.hold("a").unwrap();
    let first = p.pull(Ask::of(0, &["a"]).readers(3));
    p.write_failed("a", false);
    assert_eq!(p.answer(first), Some(Answered::Failed(FailureReason::WriteFailed, false)));
    assert_eq!(p.ended("a"), [Ended::Failed(FailureReason::WriteFailed)]);
    let late = p.pull(Ask::of(1, &["a"]).readers(3));
    assert_eq!(p.answer(late), Some(Answered::Failed(FailureReason::WriteFailed, true)));
}

#[test]
fn p07_f44_a_transfer_ends_when_each_of_its_d_ranks_has_been_answered() {
    let mut p = SenderDriver::new();
    p.hold("a").unwrap();
    p.pull(Ask::of(0, &["a"]).readers(3));
    p.written("a");
    p.pull(Ask::of(1, &["a"]).readers(3));
    p.written("a");
    assert_eq!(p.ended("a"), [], "the third rank has yet to read");
    let mut nothing = Ask::of(2, &["a"]).readers(3);
    nothing.layout = Planner::NoSharedLayer;
    let pull = p.pull(nothing);
    assert_eq!(p.answer(pull), Some(Answered::Ok), "nothing to copy is done at once");
    assert_eq!(p.ended("a"), [Ended::Sent]);
}

#[test]
fn p07_d_ranks_that_name_different_numbers_of_readers_are_all_served() {
    let mut p = SenderDriver::new();
    p.hold("a").unwrap();
    p.pull(Ask::of(0, &["a"]).readers(2));
    p.written("a");
    p.pull(Ask::of(1, &["a"]).readers(1));
    p.written("a");
    assert_eq!(p.ended("a"), [Ended::Sent]);
    p.hold("b").unwrap();
    let pulls = [0, 1].map(|rank| p.pull(Ask::of(rank, &["b"]).readers(1)));
    p.written("b");
    assert_eq!(p.ended("b"), [], "a rank beyond the expected number still reads");
    p.written("b");
    assert_eq!(p.ended("b"), [Ended::Sent]);
    assert_eq!(pulls.map(|pull| p.answer(pull)), [Some(Answered::Ok); 2]);
}

#[test]
fn f04_f22_a_failed_rank_is_answered_and_its_siblings_are_cut_short_and_settled() {
    let mut p = SenderDriver::new();
    p.hold("a").unwrap();
    let pulls = [0, 1].map(|rank| p.pull(Ask::of(rank, &["a"]).readers(2)));
    p.write_failed("a", true);
    assert_eq!(p.cancelled.len(), 1);
    assert!(!p.is_over(pulls[1]), "the sibling is answered once its write has settled");
    p.write_failed("a", true);
    assert_eq!(p.answer(pulls[1]), Some(Answered::Failed(FailureReason::WriteFailed, true)));
}

#[test]
fn a06_blocks_that_do_not_fit_fail_that_request_alone() {
    let mut p = SenderDriver::new();
    p.hold("small").unwrap();
    p.hold("fits").unwrap();
    let mut ask = Ask::of(0, &["small", "fits"]);
    ask.requests[0].groups = crate::names::blocks(0, 3);
    let pull = p.pull(ask);
    p.written("fits");
    assert_eq!(
        p.answers(pull),
        [
            (request("d-small"), Answered::Failed(FailureReason::BlocksDiffer, true)),
            (request("d-fits"), Answered::Ok),
        ]
    );
    assert!(p.replies[&pull][0].message.as_ref().unwrap().contains("P holds 2 blocks, D wants 3"));
}

#[test]
fn p12_f62_a_pull_for_another_run_of_p_is_refused_at_once() {
    let mut p = SenderDriver::new();
    assert!(p.sender.is_meant(RUN) && p.sender.is_meant(Incarnation::default()));
    assert!(!p.sender.is_meant(Incarnation(RUN.0 + 1)));
    let why = FailureReason::UnknownIncarnation;
    p.sender.refuse_pull(PullId(7), &[request("d-a")], why, "restarted", true);
    let Some(SenderAction::Answer { pull: PullId(7), reply }) = p.sender.next_action() else {
        panic!("no answer")
    };
    assert_eq!(reply.status, Status::Finish);
    assert_eq!(reply.failed, Some(vec![request("d-a")]));
    assert_eq!(reply.extension.unwrap().outcomes, [(request("d-a"), why, true)]);
    assert_eq!(p.sender.transfers(), 0);
}

#[test]
fn p12_a_drop_for_another_run_of_p_changes_nothing() {
    let mut p = SenderDriver::new();
    let pull = p.pull(Ask::of(0, &["a"]));
    let drop = kvbaton_core::wire::DropTransfers {
        incarnation: Incarnation(1),
        tp_rank: 0,
        transfers: vec![(request("d-a"), transfer("a"), crate::sender_driver::grant(0, "a"))],
    };
    p.sender.drop_transfers(&drop, p.now);
    p.drain();
    assert_eq!(p.answer(pull), None);
}

#[test]
fn s01_only_held_and_read_transfers_keep_memory_in_use() {
    let mut p = SenderDriver::new();
    p.pull(Ask::of(0, &["named by d"]));
    p.started("runs").unwrap();
    assert_eq!(p.sender.in_use().count(), 0);
    p.wait_until(seconds(3));
    p.hold("held").unwrap();
    p.hold("expires").unwrap();
    p.wait_until(seconds(5));
    p.pull(Ask::of(0, &["held"]));
    let names = ["expires", "held"].map(|name| (transfer(name), request(&format!("p-{name}"))));
    let to = session(1);
    let uses = [(SendUse::WaitsForD, seconds(3)), (SendUse::WrittenTo(&to), seconds(5))];
    let of = |((transfer, request), (state, since))| SendInUse {
        transfer,
        request: Some(request),
        state,
        since,
    };
    let all: Vec<_> = names.iter().map(|(id, owner)| (id, owner)).zip(uses).map(of).collect();
    assert_eq!(p.sender.in_use().collect::<Vec<_>>(), all, "who, whose, since when");
    p.wait_until(seconds(3) + p.config.hold_timeout);
    let left: Vec<_> = p.sender.in_use().map(|it| it.transfer.clone()).collect();
    assert_eq!(left, [transfer("held")], "an expired transfer does not count");
}

#[test]
fn s01_pulls_without_a_write_are_refused_when_the_registration_goes() {
    let mut p = SenderDriver::new();
    p.hold("read").unwrap();
    let pull = p.pull(Ask::of(0, &["read", "waits"]));
    p.sender.refuse_open_pulls(p.now);
    p.drain();
    let refused = Answered::Failed(FailureReason::Unavailable, true);
    assert_eq!(p.answers(pull), [(request("d-waits"), refused)]);
    p.hold("waits").unwrap();
    assert_eq!(p.ended("waits"), [Ended::Failed(FailureReason::Unavailable)]);
    p.written("read");
    assert!(p.is_over(pull));
}
