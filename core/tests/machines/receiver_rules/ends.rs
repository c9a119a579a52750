//! How loads end.

use crate::names::{request, seconds, transfer};
use crate::receiver_driver::{Kind, ReceiverDriver, address, reply};
use kvbaton_core::ids::EngineId;
use kvbaton_core::receiver::{LoadEnd, LoadError, LoadFailureReason, LoadUse, ReceiverConfig};
use kvbaton_core::wire::{FailureReason, Reply, Status};

const OURS: Kind = Kind::Ours;
const ONE: &[&[Kind]] = &[&[OURS]];
const FOUR: &[&[Kind]] = &[&[OURS], &[OURS], &[OURS], &[OURS]];

fn pulling(kinds: &[&[Kind]], names: &[&str]) -> ReceiverDriver {
    start(ReceiverConfig::default(), kinds, names)
}

fn start(config: ReceiverConfig, kinds: &[&[Kind]], names: &[&str]) -> ReceiverDriver {
    let mut d = ReceiverDriver::with(config, 1, 1);
    for name in names {
        let spec = d.spec(name);
        d.accept(spec).unwrap();
    }
    d.flush();
    d.discover(kinds);
    d
}

/// A D whose revoking proves nothing by itself.
fn fencing() -> ReceiverConfig {
    ReceiverConfig { revoke_settles: false, ..ReceiverConfig::default() }
}

#[test]
fn p08_a_load_is_loaded_once_every_p_rank_has_written_and_its_grant_is_revoked() {
    let mut d = pulling(FOUR, &["a"]);
    for rank in [2, 0, 3] {
        d.ok(d.pull_to(rank, 0), Status::Finish, &["a"]);
        assert!(d.revoking.is_empty());
    }
    d.ok(d.pull_to(1, 0), Status::Finish, &["a"]);
    assert_eq!(d.ends("a"), [], "the grant is revoked first");
    d.revoke_all();
    assert_eq!(d.ends("a"), [LoadEnd::Loaded]);
    assert_eq!((d.receiver.loads(), d.receiver.next_deadline()), (0, None));
}

#[test]
fn p08_f04_f22_one_failed_rank_fails_the_load_and_its_siblings_are_told() {
    let mut d = pulling(FOUR, &["a"]);
    d.ok(d.pull_to(0, 0), Status::Finish, &["a"]);
    d.failed(d.pull_to(2, 0), "a", FailureReason::WriteFailed, false);
    let told: Vec<_> = d.drops.iter().map(|(address, _)| address.clone()).collect();
    assert_eq!(told, [address(1, 0), address(3, 0)]);
    assert!(d.pulls.is_empty(), "nobody's answer is waited for");
    d.revoke_all();
    let reason = LoadFailureReason::Prefill(FailureReason::WriteFailed);
    assert_eq!(d.failure("a"), Some(reason));
}

#[test]
fn p08_f04_g03_where_revoking_proves_nothing_blocks_wait_for_every_rank() {
    let mut d = start(fencing(), FOUR, &["a"]);
    d.failed(d.pull_to(2, 0), "a", FailureReason::Expired, true);
    assert_eq!(d.drops.len(), 3, "the others are asked to stop");
    d.failed(d.pull_to(1, 0), "a", FailureReason::Aborted, true);
    d.ok(d.pull_to(0, 0), Status::Finish, &["a"]);
    assert!(d.revoking.is_empty());
    d.ok(d.pull_to(3, 0), Status::Finish, &["a"]);
    d.revoke_all();
    let first = LoadFailureReason::Prefill(FailureReason::Expired);
    assert_eq!(d.failure("a"), Some(first), "the first failure is the one that is reported");
    assert_eq!(d.drops.len(), 3, "and nobody was asked twice");
}

#[test]
fn p09_g03_a_dropped_load_waits_for_p_s_answers_where_revoking_proves_nothing() {
    let mut d = start(fencing(), FOUR, &["a"]);
    d.drop_load("a");
    assert_eq!(d.drops.len(), 4);
    assert!(d.revoking.is_empty());
    for rank in 0..4 {
        d.failed(d.pull_to(rank, 0), "a", FailureReason::Dropped, true);
    }
    d.revoke_all();
    assert_eq!(d.ends("a"), [LoadEnd::Dropped]);
}

#[test]
fn f13_p12_a_hold_is_bounded_when_p_never_answers() {
    for config in [ReceiverConfig::default(), fencing()] {
        let mut d = start(config.clone(), FOUR, &["a", "b"]);
        d.ok(d.pull_to(1, 0), Status::Continue, &["a"]);
        d.drop_load("b");
        d.wait_until(d.now + config.load_timeout);
        d.revoke_all();
        assert_eq!(d.failure("a"), Some(LoadFailureReason::TimedOut));
        let LoadEnd::Failed(failure) = &d.ends("a")[0] else { panic!() };
        assert!(failure.message.contains("tcp://0.0, tcp://2.0, tcp://3.0"), "{failure:?}");
        assert_eq!(d.ends("b"), [LoadEnd::Dropped]);
        assert!(d.pulls.is_empty());
    }
}

#[test]
fn f13_f05_late_answers_of_a_load_that_ended_change_nothing() {
    let mut d = pulling(ONE, &["a"]);
    let pull = d.pull_to(0, 0);
    d.drop_load("a");
    d.ok(pull, Status::Finish, &["a"]);
    d.revoke_all();
    d.ok(pull, Status::Finish, &["a"]);
    d.pull_failed(pull, true);
    d.receiver.revoked(kvbaton_core::ids::Grant(2));
    d.drain();
    assert_eq!(d.ends("a"), [LoadEnd::Dropped]);
}

#[test]
fn f18_every_way_to_fail_reaches_the_engine_once() {
    let refused = LoadFailureReason::Refused;
    type Fail = fn(&mut ReceiverDriver);
    let ways: [(&str, LoadFailureReason, Fail); 7] = [
        ("one of three", refused, |d| {
            let failed = Some(vec![request("a")]);
            let ok = Some(vec![request("b"), request("c")]);
            d.reply(d.pull_to(0, 0), Reply { ok, failed, ..reply(Status::Finish) });
        }),
        ("all", refused, |d| {
            let failed = Some(vec![request("a"), request("b"), request("c")]);
            d.reply(d.pull_to(0, 0), Reply { failed, ..reply(Status::Finish) });
        }),
        ("the whole message", refused, |d| {
            let extension = Some(Default::default());
            d.reply(d.pull_to(0, 0), Reply { extension, ..reply(Status::Error) });
        }),
        ("finished without a word", refused, |d| {
            d.ok(d.pull_to(0, 0), Status::Finish, &["b", "c"])
        }),
        ("lost connection", LoadFailureReason::Unreachable, |d| {
            d.pull_failed(d.pull_to(0, 0), true)
        }),
        ("lost answer", LoadFailureReason::TimedOut, |d| d.wait_until(seconds(10_000))),
        ("memory gone", LoadFailureReason::Unregistered, |d| d.unregister()),
    ];
    for (way, reason, fail) in ways {
        let mut d = pulling(ONE, &["a", "b", "c"]);
        fail(&mut d);
        d.revoke_all();
        assert_eq!(d.failure("a"), Some(reason), "{way}");
        assert_eq!((d.ended.len(), d.receiver.loads()), (3, 0), "{way}");
        let LoadEnd::Failed(failure) = &d.ends("a")[0] else { panic!() };
        assert!(failure.message.starts_with("request a: "), "{failure:?}");
    }
}

#[test]
fn f18_a_grant_that_cannot_be_opened_fails_its_load_alone() {
    let mut d = pulling(ONE, &["a", "b"]);
    let grant = d.pulls[&d.pull_to(0, 0)].pull.requests[0].grant.unwrap();
    d.receiver.grant_refused(grant, "row out of range", d.now);
    d.drain();
    d.revoke_all();
    assert_eq!(d.failure("a"), Some(LoadFailureReason::Unregistered));
    d.ok(d.pull_to(0, 0), Status::Finish, &["b"]);
    d.revoke_all();
    assert_eq!(d.ends("b"), [LoadEnd::Loaded]);
}

#[test]
fn p02_an_answer_that_names_a_request_twice_or_a_foreign_one_changes_nothing_else() {
    let mut d = pulling(&[&[OURS], &[OURS]], &["a", "b"]);
    let pull = d.pull_to(0, 0);
    let names = |names: &[&str]| Some(names.iter().map(|it| request(it)).collect::<Vec<_>>());
    let ok = names(&["a", "a", "stranger"]);
    d.reply(pull, Reply { ok, failed: names(&["stranger"]), ..reply(Status::Continue) });
    d.ok(pull, Status::Continue, &["a"]);
    assert!(d.revoking.is_empty(), "the other rank has yet to write");
    let (ok, failed) = (names(&["b"]), names(&["b"]));
    d.reply(pull, Reply { ok, failed, ..reply(Status::Finish) });
    d.ok(d.pull_to(1, 0), Status::Finish, &["a"]);
    d.revoke_all();
    assert_eq!(d.ends("a"), [LoadEnd::Loaded]);
    assert_eq!(d.failure("b"), Some(LoadFailureReason::Refused), "both ok and failed is failed");
}

#[test]
fn f25_a_pull_whose_last_answer_is_lost_is_closed_with_its_last_request() {
    let mut d = pulling(ONE, &["a", "b"]);
    let pull = d.pull_to(0, 0);
    d.ok(pull, Status::Continue, &["a"]);
    assert_eq!(d.receiver.open_pulls(), 1);
    d.ok(pull, Status::Continue, &["b"]);
    assert_eq!(d.receiver.open_pulls(), 0);
    d.revoke_all();
    assert_eq!(d.ends("b"), [LoadEnd::Loaded]);
}

#[test]
fn p04_p_is_told_how_long_d_still_waits() {
    let config = ReceiverConfig::default();
    let mut d = ReceiverDriver::with(config.clone(), 1, 1);
    d.load("a");
    d.now = seconds(40);
    d.discover(ONE);
    let wait =
        |d: &ReceiverDriver| d.pulls[&d.pull_to(0, 0)].pull.extension.clone().unwrap().timeout;
    assert_eq!(wait(&d), config.load_timeout - std::time::Duration::from_secs(40));
    let late = d.spec("b");
    d.accept(late).unwrap();
    d.now = seconds(10_000);
    d.receiver.flush(d.now);
    d.drain();
    assert!(!wait(&d).is_zero(), "zero would mean for ever");
}

#[test]
fn z01_loads_are_bounded_and_need_memory() {
    let mut d =
        ReceiverDriver::with(ReceiverConfig { max_loads: 1, ..ReceiverConfig::default() }, 1, 1);
    d.load("a");
    let spec = d.spec("b");
    assert!(matches!(d.accept(spec.clone()), Err(LoadError::TooMany { limit: 1, .. })));
    d.unregister();
    assert_eq!(d.failure("a"), Some(LoadFailureReason::Unregistered));
    assert_eq!(d.accept(spec), Err(LoadError::NotRegistered { request: request("b") }));
}

#[test]
fn p12_f60_a_restarted_p_is_asked_for_again() {
    let mut d = pulling(ONE, &["a"]);
    d.failed(d.pull_to(0, 0), "a", FailureReason::UnknownIncarnation, true);
    d.revoke_all();
    d.load("b");
    assert_eq!(d.asked.len(), 1);
}

#[test]
fn s01_only_loads_keep_memory_in_use() {
    let mut d = pulling(ONE, &["a"]);
    d.release("r");
    d.wait_until(seconds(3));
    d.load("b");
    let uses = |d: &ReceiverDriver| -> Vec<_> {
        let uses = d.receiver.in_use();
        uses.map(|it| (it.request.clone(), it.state, it.outstanding.len(), it.since)).collect()
    };
    let (a, b) = (request("a"), request("b"));
    let prefill = LoadUse::Prefill;
    assert_eq!(uses(&d), [(a.clone(), prefill, 1, seconds(0)), (b, prefill, 1, seconds(3))]);
    let first = d.receiver.in_use().next().unwrap();
    assert_eq!((first.transfer, first.engine), (&transfer("t-a"), &EngineId::from("p")));
    assert_eq!(first.outstanding, [&*address(0, 0)]);
    d.drop_load("a");
    assert_eq!(uses(&d)[0], (a, LoadUse::Revoke, 0, seconds(0)), "until its grant is revoked");
    d.revoke_all();
    assert_eq!(uses(&d).len(), 1);
}
