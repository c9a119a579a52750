//! Weight updates and resets of D's engine.

use crate::names::request;
use crate::receiver_driver::{Kind, ReceiverDriver, address};
use kvbaton_core::ids::WeightVersion;
use kvbaton_core::receiver::{LoadEnd, LoadFailureReason, LoadSpec, LoadUse, ReceiverConfig};
use kvbaton_core::wire::{FailureReason, Status};

const TWO: &[&[Kind]] = &[&[Kind::Ours], &[Kind::Ours]];
const UPDATED: Option<LoadFailureReason> = Some(LoadFailureReason::WeightsUpdated);
const RESET: Option<LoadFailureReason> = Some(LoadFailureReason::Reset);

#[test]
fn r07_a_load_in_flight_fails_with_the_update_and_p_is_asked_to_drop_it() {
    let mut d = ReceiverDriver::new();
    d.set_weights(1);
    d.load("a");
    d.discover(TWO);
    d.set_weights(1);
    assert!(d.drops.is_empty(), "the same weights again");
    d.ok(d.pull_to(0, 0), Status::Finish, &["a"]);
    d.set_weights(2);
    let told: Vec<_> = d.drops.iter().map(|(address, _)| address.clone()).collect();
    assert_eq!(told, [address(1, 0)]);
    assert_eq!(d.ends("a"), [], "a byte may land until the grant is revoked [G02]");
    d.revoke_all();
    assert_eq!(d.failure("a"), UPDATED);
    let [LoadEnd::Failed(failure)] = &d.ends("a")[..] else { panic!("it failed") };
    assert!(failure.message.contains("from 1 to 2"), "{}", failure.message);
}

#[test]
fn r07_a_load_whose_bytes_are_all_there_is_not_loaded_after_the_update() {
    let mut d = ReceiverDriver::new();
    d.load("a");
    d.discover(&[&[Kind::Ours]]);
    d.ok(d.pull_to(0, 0), Status::Finish, &["a"]);
    assert_eq!(d.revoking.len(), 1);
    d.set_weights(2);
    d.revoke_all();
    assert_eq!(d.failure("a"), UPDATED);
}

#[test]
fn r07_pulls_carry_the_weights_of_now_to_our_own_p_alone() {
    let mut d = ReceiverDriver::new();
    d.load("a");
    d.discover(&[&[Kind::Ours], &[Kind::Stock]]);
    let weights = |d: &ReceiverDriver, rank| {
        let pull = &d.pulls[&d.pull_to(rank, 0)].pull;
        pull.extension.as_ref().map(|it| it.weights)
    };
    assert_eq!((weights(&d, 0), weights(&d, 1)), (Some(WeightVersion(0)), None));
    d.set_weights(5);
    d.revoke_all();
    // Its blocks are its own: a stock P may still write to those of the first.
    d.load("b");
    assert_eq!((weights(&d, 0), weights(&d, 1)), (Some(WeightVersion(5)), None));
}

#[test]
fn r07_r03_p10_a_load_that_was_not_pulled_yet_ends_at_once_and_p_is_told_to_release() {
    for (update, reason) in [(true, UPDATED), (false, RESET)] {
        for discovering in [false, true] {
            let mut d = ReceiverDriver::new();
            let spec = d.spec("a");
            d.accept(spec).unwrap();
            if discovering {
                d.flush();
            }
            if update {
                d.set_weights(2)
            } else {
                d.abort_transfers()
            }
            assert_eq!(d.failure("a"), reason);
            d.discover(&[&[Kind::Ours]]);
            let pull = d.pull_to(0, 0);
            assert!(d.pulls[&pull].pull.requests[0].groups.is_empty(), "an empty pull releases");
        }
    }
}

#[test]
fn r03_r04_aborting_transfers_fails_every_load_as_a_reset_and_leaves_releases() {
    let mut d = ReceiverDriver::new();
    d.load("a");
    d.discover(TWO);
    d.load("b");
    d.release("r");
    d.abort_transfers();
    d.abort_transfers();
    assert_eq!(d.drops.len(), 4, "each P rank once per load");
    assert_eq!(d.revoking.len(), 2);
    assert_eq!((d.ends("a"), d.ends("b")), (vec![], vec![]));
    d.revoke_all();
    assert_eq!((d.failure("a"), d.failure("b")), (RESET, RESET));
    let left: Vec<_> = d.pulls.values().flat_map(|sent| &sent.pull.requests).collect();
    assert!(left.iter().all(|it| it.request_id == request("r")) && left.len() == 2);
    d.load("a");
    assert_eq!(d.receiver.loads(), 2, "the request may load again");
}

#[test]
fn r03_g03_a_reset_load_waits_for_p_where_revoking_proves_nothing() {
    let config = ReceiverConfig { revoke_settles: false, ..ReceiverConfig::default() };
    let mut d = ReceiverDriver::with(config, 1, 1);
    d.load("a");
    d.discover(&[&[Kind::Ours]]);
    d.abort_transfers();
    assert_eq!((d.drops.len(), d.revoking.len()), (1, 0));
    d.failed(d.pull_to(0, 0), "a", FailureReason::Dropped, true);
    d.revoke_all();
    assert_eq!(d.failure("a"), RESET, "the first failure is kept");
}

#[test]
fn r03_p09_nothing_is_pulled_that_a_reset_gives_up() {
    let mut d = ReceiverDriver::new();
    let first = d.spec("first");
    let blocks = first.blocks.clone();
    d.accept(first).unwrap();
    d.flush();
    d.discover(&[&[Kind::Stock]]);
    d.drop_load("first");
    d.revoke_all();
    let again = LoadSpec { blocks, ..d.spec("again") };
    d.accept(again).unwrap();
    d.flush();
    let uses: Vec<_> = d.receiver.in_use().map(|it| it.state).collect();
    assert_eq!(uses, [LoadUse::EarlierWriter]);
    let late = d.spec("late");
    d.accept(late).unwrap();
    let before = d.sent.len();
    d.abort_transfers();
    assert_eq!((d.failure("again"), d.failure("late")), (RESET, RESET));
    let released = d.sent[before..].iter().flat_map(|id| &d.pulls[id].pull.requests);
    let released: Vec<_> = released.map(|it| (it.request_id.clone(), it.groups.len())).collect();
    assert_eq!(released, [(request("again"), 0), (request("late"), 0)], "released, not loaded");
}

#[test]
fn p09_a_dropped_load_stays_dropped_over_a_reset() {
    let mut d = ReceiverDriver::new();
    d.load("a");
    d.discover(TWO);
    d.drop_load("a");
    d.abort_transfers();
    d.set_weights(3);
    d.revoke_all();
    assert_eq!(d.ends("a"), [LoadEnd::Dropped]);
}

#[test]
fn r04_resets_of_either_side_are_recomputed_and_failures_are_not() {
    let prefill = LoadFailureReason::Prefill;
    let resets = [
        LoadFailureReason::Reset,
        LoadFailureReason::WeightsUpdated,
        LoadFailureReason::Unregistered,
        prefill(FailureReason::Reset),
        prefill(FailureReason::OtherWeights),
        prefill(FailureReason::Unavailable),
    ];
    let failures = [
        LoadFailureReason::UnknownEngine,
        LoadFailureReason::Incompatible,
        LoadFailureReason::Refused,
        LoadFailureReason::Unreachable,
        LoadFailureReason::TimedOut,
        prefill(FailureReason::Aborted),
        prefill(FailureReason::Released),
        prefill(FailureReason::Expired),
        prefill(FailureReason::TimedOut),
        prefill(FailureReason::UnknownIncarnation),
        prefill(FailureReason::WriteFailed),
        prefill(FailureReason::BlocksDiffer),
        prefill(FailureReason::Dropped),
        prefill(FailureReason::AlreadyUsed),
        prefill(FailureReason::Overloaded),
        prefill(FailureReason::Other),
    ];
    assert!(resets.iter().all(|it| it.is_reset()));
    assert!(failures.iter().all(|it| !it.is_reset()));
}
