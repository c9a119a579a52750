//! Loads that D gives up, at any time.

use crate::names::request;
use crate::receiver_driver::{Kind, ReceiverDriver, address};
use kvbaton_core::receiver::LoadEnd;
use kvbaton_core::wire::{FailureReason, Status};

const TWO: &[&[Kind]] = &[&[Kind::Ours], &[Kind::Ours]];

#[test]
fn p09_g02_a_dropped_load_tells_every_p_rank_and_ends_once_its_grant_is_revoked() {
    let mut d = ReceiverDriver::new();
    d.load("a");
    d.discover(TWO);
    let grant = d.pulls[&d.pull_to(0, 0)].pull.requests[0].grant.unwrap();
    d.drop_load("a");
    d.drop_load("a");
    assert_eq!(d.drops.len(), 2);
    for (_, drop) in &d.drops {
        assert_eq!(drop.incarnation.0, 77);
        assert_eq!(drop.transfers, [(request("a"), crate::names::transfer("t-a"), grant)]);
    }
    assert!(d.pulls.is_empty());
    assert_eq!(d.ends("a"), [], "a byte may land until the grant is revoked [F01, F02]");
    d.revoke_all();
    assert_eq!(d.ends("a"), [LoadEnd::Dropped]);
}

#[test]
fn p09_ranks_are_told_even_when_their_engine_was_forgotten_meanwhile() {
    let mut d = ReceiverDriver::new();
    d.load("a");
    d.load("b");
    d.discover(TWO);
    d.pull_failed(d.pull_to(1, 0), false); // the engine is forgotten with it
    let told: Vec<_> = d.drops.iter().map(|(at, drop)| (at.clone(), drop.incarnation.0)).collect();
    assert_eq!(told, [(address(0, 0), 77), (address(0, 0), 77)]);
    d.revoke_all();
    d.load("c");
    d.discover(&[&[Kind::Stock], &[Kind::Stock]]);
    assert_eq!(d.pulls.len(), 2, "granted writers leave no quarantine behind");
}

#[test]
fn p09_a_p_that_may_have_read_the_pull_before_its_connection_broke_is_told_too() {
    for sent in [false, true] {
        let mut d = ReceiverDriver::new();
        d.load("a");
        d.discover(&[&[Kind::Ours]]);
        d.pull_failed(d.pull_to(0, 0), sent);
        assert_eq!(d.drops.len(), usize::from(sent));
    }
}

#[test]
fn p09_f10_p10_a_load_dropped_before_its_pull_ends_at_once_and_p_is_told_to_release() {
    for discovering in [false, true] {
        let mut d = ReceiverDriver::new();
        let spec = d.spec("a");
        d.accept(spec).unwrap();
        if discovering {
            d.flush();
        }
        d.drop_load("a");
        assert_eq!(d.ends("a"), [LoadEnd::Dropped]);
        d.flush();
        d.discover(&[&[Kind::Ours]]);
        let pull = d.pull_to(0, 0);
        assert!(d.pulls[&pull].pull.requests[0].groups.is_empty(), "an empty pull releases");
        d.ok(pull, Status::Finish, &["a"]);
        assert_eq!(d.receiver.loads(), 0);
        assert_eq!(d.ended.len(), 1, "and is not reported");
    }
}

#[test]
fn p10_f10_a_release_reports_nothing_however_it_ends() {
    for end in ["ok", "failed", "unreachable", "unknown engine", "bootstrap down", "time"] {
        let mut d = ReceiverDriver::new();
        d.release("a");
        match end {
            "unknown engine" => d.discovered(Ok(Vec::new())),
            "bootstrap down" => d.discovered(Err("down".into())),
            _ => d.discover(&[&[Kind::Ours]]),
        }
        match end {
            "ok" => d.ok(d.pull_to(0, 0), Status::Finish, &["a"]),
            "failed" => d.failed(d.pull_to(0, 0), "a", FailureReason::AlreadyUsed, true),
            "unreachable" => d.pull_failed(d.pull_to(0, 0), true),
            _ => d.wait_until(crate::names::seconds(10_000)),
        }
        assert_eq!((d.ended.len(), d.receiver.loads()), (0, 0), "{end}");
        assert!(d.open.is_empty() && d.drops.is_empty(), "{end}: a release has no grant");
    }
}

#[test]
fn p10_f10_a_full_prefix_hit_completes_at_once_and_releases_p() {
    let mut d = ReceiverDriver::new();
    let mut spec = d.spec("a");
    spec.blocks.clear();
    d.accept(spec).unwrap();
    assert_eq!(d.ends("a"), [LoadEnd::Loaded]);
    d.flush();
    d.discover(TWO);
    assert!(d.open.is_empty());
    for rank in 0..2 {
        let pull = d.pull_to(rank, 0);
        assert!(d.pulls[&pull].pull.requests[0].groups.is_empty());
        d.ok(pull, Status::Finish, &["a"]);
    }
    assert_eq!((d.ended.len(), d.receiver.loads()), (1, 0));
}

#[test]
fn p13_dropping_what_is_gone_or_was_never_there_changes_nothing() {
    let mut d = ReceiverDriver::new();
    d.drop_load("never");
    d.load("a");
    d.discover(&[&[Kind::Ours]]);
    d.ok(d.pull_to(0, 0), Status::Finish, &["a"]);
    d.drop_load("a");
    d.revoke_all();
    d.drop_load("a");
    assert_eq!(d.ends("a"), [LoadEnd::Loaded], "it was complete when the drop came");
    d.release("r");
    d.drop_load("r");
    let releases = d.pulls.values().filter(|it| it.pull.requests[0].groups.is_empty()).count();
    assert_eq!((releases, d.receiver.loads()), (1, 1), "a release is not a load to drop");
}

#[test]
fn g01_the_grant_is_opened_before_the_pulls_and_revoked_before_the_end() {
    let mut d = ReceiverDriver::new();
    d.load("a");
    assert!(d.open.is_empty());
    d.discover(TWO);
    assert_eq!(d.open.values().collect::<Vec<_>>(), [&false], "for granted writes only");
    d.ok(d.pull_to(0, 0), Status::Finish, &["a"]);
    d.ok(d.pull_to(1, 0), Status::Finish, &["a"]);
    assert_eq!(d.revoking.len(), 1);
    d.revoke_all();
    assert!(d.open.is_empty());
}
