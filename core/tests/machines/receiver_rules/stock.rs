//! Stock P ranks, alone and beside ours.

use crate::names::{request, seconds};
use crate::receiver_driver::{Kind, ReceiverDriver, address, reply};
use kvbaton_core::receiver::{Form, LoadEnd, LoadFailureReason, LoadSpec, ReceiverConfig};
use kvbaton_core::time::Timestamp;
use kvbaton_core::wire::{Reply, Status};

const STOCK: &[&[Kind]] = &[&[Kind::Stock]];
const MIXED: &[&[Kind]] = &[&[Kind::Ours], &[Kind::Stock]];

/// A second load of the blocks that `spec` had.
fn same_blocks(d: &mut ReceiverDriver, name: &str, spec: &LoadSpec) -> LoadSpec {
    LoadSpec { blocks: spec.blocks.clone(), ..d.spec(name) }
}

#[test]
fn g03_a_stock_p_gets_a_stock_pull_and_rows_that_are_open_to_it() {
    let mut d = ReceiverDriver::new();
    d.load("a");
    d.discover(STOCK);
    let sent = &d.pulls[&d.pull_to(0, 0)];
    assert_eq!(sent.form, Form::Stock);
    assert_eq!(sent.pull.extension, None);
    assert_eq!(sent.pull.requests[0].end_token, None);
    assert_eq!(d.open.values().collect::<Vec<_>>(), [&true]);
}

#[test]
fn p08_a_load_from_ours_and_stock_ranks_waits_for_both_and_drops_only_ours() {
    let mut d = ReceiverDriver::new();
    d.load("a");
    d.load("b");
    d.discover(MIXED);
    let forms: Vec<Form> = d.pulls.values().map(|it| it.form).collect();
    assert_eq!(forms, [Form::Compact, Form::Stock]);
    d.ok(d.pull_to(1, 0), Status::Continue, &["a"]);
    assert!(d.revoking.is_empty());
    d.ok(d.pull_to(0, 0), Status::Continue, &["a"]);
    d.revoke_all();
    assert_eq!(d.ends("a"), [LoadEnd::Loaded]);
    d.drop_load("b");
    assert_eq!(d.drops.len(), 1, "a stock P knows no drop");
    assert_eq!(d.drops[0].0, address(0, 0));
}

#[test]
fn p09_f01_blocks_that_a_stock_p_may_still_write_stay_closed_to_stock_loads() {
    for end in ["failed", "timed out", "error"] {
        let config = ReceiverConfig::default();
        let mut d = ReceiverDriver::with(config.clone(), 1, 1);
        let spec = d.spec("a");
        d.accept(spec.clone()).unwrap();
        d.flush();
        d.discover(STOCK);
        let pull = d.pull_to(0, 0);
        match end {
            "failed" => {
                let failed = Some(vec![request("a")]);
                d.reply(pull, Reply { failed, ..reply(Status::Finish) });
            }
            "error" => d.reply(pull, reply(Status::Error)),
            _ => d.wait_until(Timestamp(0) + config.load_timeout),
        }
        d.revoke_all();
        assert_eq!(d.ended.len(), 1, "{end}: the engine has its blocks back");
        let again = same_blocks(&mut d, "b", &spec);
        d.accept(again).unwrap();
        let other = d.spec("c");
        d.accept(other).unwrap();
        d.flush();
        if !d.asked.is_empty() {
            d.discover(STOCK);
        }
        let names = |d: &ReceiverDriver| d.pulls[&d.pull_to(0, 0)].pull.requests[0].clone();
        assert_eq!(names(&d).request_id, request("c"), "{end}: only the other blocks are pulled");
        d.wait_until(d.now + config.stock_quarantine);
        assert_eq!(names(&d).request_id, request("b"), "{end}: the wait is bounded");
    }
}

/// A D whose load `a` was dropped while a stock P was asked, and whose load `b` wants the
/// same blocks.
fn dropped_and_wanted_again() -> ReceiverDriver {
    let mut d = ReceiverDriver::new();
    let spec = d.spec("a");
    d.accept(spec.clone()).unwrap();
    d.flush();
    d.discover(STOCK);
    d.drop_load("a");
    d.revoke_all();
    assert_eq!(d.ends("a"), [LoadEnd::Dropped]);
    d.wait_until(seconds(100));
    let again = same_blocks(&mut d, "b", &spec);
    d.accept(again).unwrap();
    d.flush();
    d
}

#[test]
fn p09_f01_blocks_wait_for_the_answer_of_a_stock_p_that_still_prefills() {
    for answer in ["ok", "failed", "finish", "error"] {
        let mut d = dropped_and_wanted_again();
        let pull = d.pull_to(0, 0);
        assert_eq!(d.pulls[&pull].pull.requests[0].request_id, request("a"));
        let names = Some(vec![request("a")]);
        d.reply(
            pull,
            match answer {
                "ok" => Reply { ok: names, ..reply(Status::Continue) },
                "failed" => Reply { failed: names, ..reply(Status::Continue) },
                "finish" => reply(Status::Finish),
                _ => reply(Status::Error),
            },
        );
        assert!(d.pulls.is_empty(), "{answer}: nothing more is waited for");
        d.wait_until(seconds(109));
        assert!(d.pulls.is_empty(), "{answer}: its last bytes get a little time");
        d.wait_until(seconds(110));
        let again = &d.pulls[&d.pull_to(0, 0)].pull.requests[0];
        assert_eq!(again.request_id, request("b"), "{answer}");
    }
}

#[test]
fn p09_f13_blocks_wait_for_a_silent_stock_p_no_longer_than_its_load_would_have() {
    let mut d = dropped_and_wanted_again();
    let deadline = Timestamp(0) + ReceiverConfig::default().load_timeout;
    d.wait_until(deadline - std::time::Duration::from_nanos(1));
    assert_eq!(d.pulls[&d.pull_to(0, 0)].pull.requests[0].request_id, request("a"));
    d.wait_until(deadline);
    assert_eq!(d.pulls.len(), 1, "the old pull is closed");
    assert_eq!(d.pulls[&d.pull_to(0, 0)].pull.requests[0].request_id, request("b"));
    d.drop_load("b");
    d.wait_until(seconds(10_000));
    assert_eq!((d.receiver.open_pulls(), d.receiver.next_deadline()), (0, None));
}

#[test]
fn p09_f01_a_stock_p_s_wait_counts_from_its_pull_not_from_the_load() {
    let mut d = dropped_and_wanted_again();
    d.wait_until(seconds(540));
    let pull = d.pull_to(0, 0);
    let pulled = d.pulls[&pull].pull.requests[0].clone();
    assert_eq!(pulled.request_id, request("b"), "pulled at 540, long after it was accepted");
    d.wait_until(seconds(640));
    d.revoke_all();
    assert_eq!(d.failure("b"), Some(LoadFailureReason::TimedOut));
    let again = LoadSpec { blocks: pulled.groups, ..d.spec("c") };
    d.accept(again).unwrap();
    d.flush();
    d.wait_until(seconds(1_079));
    assert_eq!(d.pulls.keys().collect::<Vec<_>>(), [&pull], "it may wait for b until 1080");
    d.wait_until(seconds(1_080));
    assert_eq!(d.pulls[&d.pull_to(0, 0)].pull.requests[0].request_id, request("c"));
}

#[test]
fn p09_f01_a_stock_p_that_lost_its_connection_may_wait_for_the_prefill_as_before() {
    let mut d = ReceiverDriver::new();
    let spec = d.spec("a");
    d.accept(spec.clone()).unwrap();
    d.flush();
    d.discover(STOCK);
    d.pull_failed(d.pull_to(0, 0), true);
    d.revoke_all();
    assert_eq!(d.failure("a"), Some(LoadFailureReason::Unreachable));
    d.wait_until(seconds(100));
    let again = same_blocks(&mut d, "b", &spec);
    d.accept(again).unwrap();
    d.flush();
    d.discover(STOCK);
    d.wait_until(seconds(539));
    assert!(d.pulls.is_empty(), "its connection is gone, not P");
    d.wait_until(seconds(540));
    assert_eq!(d.pulls[&d.pull_to(0, 0)].pull.requests[0].request_id, request("b"));
}

#[test]
fn p09_f01_a_stock_p_s_wait_starts_anew_with_each_answer() {
    for dropped_at in [100, 501] {
        let mut d = ReceiverDriver::new();
        d.load("a");
        let spec = d.spec("b");
        d.accept(spec.clone()).unwrap();
        d.flush();
        d.discover(STOCK);
        let pull = d.pull_to(0, 0);
        for at in [100, 500, 501] {
            d.wait_until(seconds(at));
            if at == 500 {
                d.ok(pull, Status::Continue, &["a"]);
            }
            if at == dropped_at {
                d.drop_load("b");
                d.revoke_all();
            }
        }
        d.wait_until(seconds(510));
        let again = same_blocks(&mut d, "c", &spec);
        d.accept(again).unwrap();
        d.flush();
        d.wait_until(seconds(1_039));
        assert_eq!(d.pulls.keys().collect::<Vec<_>>(), [&pull], "dropped at {dropped_at}");
        d.wait_until(seconds(1_040));
        let newest = &d.pulls[&d.pull_to(0, 0)].pull.requests[0];
        assert_eq!(newest.request_id, request("c"), "dropped at {dropped_at}");
    }
}

#[test]
fn g02_blocks_of_a_stock_p_are_open_to_granted_loads_at_once() {
    let mut d = ReceiverDriver::new();
    let spec = d.spec("a");
    d.accept(spec.clone()).unwrap();
    d.flush();
    d.discover(STOCK);
    d.pull_failed(d.pull_to(0, 0), true);
    d.revoke_all();
    let again = same_blocks(&mut d, "b", &spec);
    d.accept(again).unwrap();
    d.flush();
    d.discover(&[&[Kind::Ours]]);
    assert_eq!(d.pulls.len(), 1);
    assert_eq!(d.open.values().collect::<Vec<_>>(), [&false], "late stock writes are refused");
}

#[test]
fn p09_a_load_dropped_in_quarantine_ends_at_once_and_releases_p() {
    let mut d = ReceiverDriver::new();
    let spec = d.spec("a");
    d.accept(spec.clone()).unwrap();
    d.flush();
    d.discover(STOCK);
    d.drop_load("a");
    d.revoke_all();
    let again = same_blocks(&mut d, "b", &spec);
    d.accept(again).unwrap();
    d.flush();
    assert_eq!(d.sent.len(), 1);
    d.drop_load("b");
    assert_eq!(d.ends("b"), [LoadEnd::Dropped]);
    let pull = d.pull_to(0, 0);
    assert!(d.pulls[&pull].pull.requests[0].groups.is_empty());
    d.ok(pull, Status::Finish, &["b"]);
    assert_eq!(d.receiver.loads(), 0);
    d.wait_until(seconds(10_000));
    assert_eq!((d.receiver.open_pulls(), d.receiver.next_deadline()), (0, None));
}

#[test]
fn f18_a_stock_p_s_error_fails_every_load_of_the_pull() {
    let mut d = ReceiverDriver::new();
    d.load("a");
    d.load("b");
    d.discover(STOCK);
    let message = Some("no such engine".to_owned());
    d.reply(d.pull_to(0, 0), Reply { message, ..reply(Status::Error) });
    d.revoke_all();
    for name in ["a", "b"] {
        assert_eq!(d.failure(name), Some(LoadFailureReason::Refused));
        let LoadEnd::Failed(failure) = &d.ends(name)[0] else { panic!() };
        assert!(failure.message.contains("no such engine"), "{failure:?}");
    }
}

#[test]
fn p12_a_stock_p_that_took_our_p_s_place_is_asked_again_in_its_own_form() {
    let mut d = ReceiverDriver::new();
    d.load("a");
    d.discover(&[&[Kind::Ours]]);
    d.reply(d.pull_to(0, 0), reply(Status::Error));
    let again = &d.pulls[&d.pull_to(0, 0)];
    assert_eq!(again.form, Form::Stock);
    assert!(again.pull.layout.is_some());
    assert_eq!(d.open.values().collect::<Vec<_>>(), [&true]);
    d.reply(d.pull_to(0, 0), reply(Status::Error));
    d.revoke_all();
    assert_eq!(d.failure("a"), Some(LoadFailureReason::Refused), "it is asked once");
}

#[test]
fn p12_blocks_in_quarantine_are_not_opened_to_a_stock_p_that_took_our_p_s_place() {
    let mut d = ReceiverDriver::new();
    let spec = d.spec("a");
    d.accept(spec.clone()).unwrap();
    d.flush();
    d.discover(STOCK);
    d.pull_failed(d.pull_to(0, 0), true);
    d.revoke_all();
    let again = same_blocks(&mut d, "b", &spec);
    d.accept(again).unwrap();
    d.load("c");
    d.discover(&[&[Kind::Ours]]);
    d.reply(d.pull_to(0, 0), reply(Status::Error));
    d.revoke_all();
    assert_eq!(d.failure("b"), Some(LoadFailureReason::Refused));
    d.ok(d.pull_to(0, 0), Status::Finish, &["c"]);
    d.revoke_all();
    assert_eq!(d.ends("c"), [LoadEnd::Loaded]);
}

#[test]
fn p09_a_p_that_turned_out_to_be_stock_leaves_a_quarantine() {
    let mut d = ReceiverDriver::new();
    let spec = d.spec("a");
    d.accept(spec.clone()).unwrap();
    d.flush();
    d.discover(&[&[Kind::Ours]]);
    d.reply(d.pull_to(0, 0), reply(Status::Error));
    d.drop_load("a");
    assert!(d.drops.is_empty());
    d.revoke_all();
    d.wait_until(seconds(5));
    let again = same_blocks(&mut d, "b", &spec);
    d.accept(again).unwrap();
    d.flush();
    d.discover(STOCK);
    let newest = |d: &ReceiverDriver| d.pulls[&d.pull_to(0, 0)].pull.requests[0].request_id.clone();
    assert_eq!(newest(&d), request("a"));
    d.wait_until(seconds(540));
    assert_eq!(newest(&d), request("b"));
}
