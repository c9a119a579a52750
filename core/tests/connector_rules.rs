//! Rules of the connector's machines: what an engine is told, each thing once.

use kvbaton_core::blocks::BlockList;
use kvbaton_core::connector::{
    ConnectorGroup, Ending, HoldId, Intent, Matched, Order, Scheduling, SchedulingConfig, Source,
    Working,
};
use kvbaton_core::ids::{BlockId, RequestId};
use kvbaton_core::receiver::{LoadEnd, LoadFailure, LoadFailureReason};
use kvbaton_core::time::Timestamp;
use std::time::Duration;

fn side(groups: Vec<ConnectorGroup>) -> Scheduling {
    let pause_drain = Duration::from_secs(2);
    Scheduling::new(SchedulingConfig { groups, recompute_last: false, workers: 2, pause_drain })
}

fn plain() -> Scheduling {
    side(vec![ConnectorGroup::all(16)])
}

fn id(name: &str) -> RequestId {
    name.into()
}

fn to_load(transfer: &str) -> Intent {
    let source = Source { engine: "p".into(), bootstrap: "http://h:1".into() };
    Intent { transfer: transfer.into(), source: Some(source), send: false }
}

fn to_send(transfer: &str) -> Intent {
    Intent { transfer: transfer.into(), source: None, send: true }
}

fn blocks(len: u32) -> Vec<BlockList> {
    vec![BlockList::run(5, len)]
}

/// A request on P until it is held, with the orders taken.
fn held(side: &mut Scheduling, name: &str) -> HoldId {
    side.added(id(name), to_send(name), 48);
    side.allocated(&id(name), 0, &blocks(3));
    let hold = side.finished(&id(name), Ending::Complete, 48, &blocks(3)).expect("held");
    side.take_orders();
    hold
}

#[test]
fn asking_what_is_matched_changes_nothing() {
    let mut side = plain();
    side.added(id("r"), to_load("t"), 40);
    for _ in 0..3 {
        assert_eq!(side.matched(&id("r"), 40, 16), Matched::Tokens(24));
    }
    assert!(side.take_orders().is_empty());
}

#[test]
fn a_request_is_loaded_once_also_after_preemption_and_failure() {
    let mut side = plain();
    side.added(id("r"), to_load("t"), 40);
    assert_eq!(side.matched(&id("r"), 40, 16), Matched::Tokens(24));
    side.allocated(&id("r"), 24, &blocks(2));
    side.allocated(&id("r"), 0, &blocks(1));
    let orders = side.take_orders();
    let [Order::Load { end_token: 40, blocks: ordered, .. }] = &orders[..] else {
        panic!("{orders:?}")
    };
    assert_eq!(ordered, &blocks(2));
    side.loads_ended([&id("r")]);
    assert_eq!(side.matched(&id("r"), 40, 0), Matched::Nothing);
    side.allocated(&id("r"), 0, &blocks(3));
    assert!(side.take_orders().is_empty());
    assert_eq!(side.finished(&id("r"), Ending::Complete, 50, &blocks(4)), None);
    assert!(side.take_orders().is_empty());
}

#[test]
fn p10_a_full_prefix_hit_and_a_request_that_never_ran_release_p() {
    let mut side = plain();
    side.added(id("hit"), to_load("t"), 40);
    assert_eq!(side.matched(&id("hit"), 40, 40), Matched::Nothing);
    side.allocated(&id("hit"), 0, &blocks(3));
    assert!(matches!(&side.take_orders()[..], [Order::Release { .. }]));
    side.added(id("rejected"), to_load("u"), 40);
    assert_eq!(side.finished(&id("rejected"), Ending::Aborted, 0, &[]), None);
    assert!(matches!(&side.take_orders()[..], [Order::Release { .. }]));
}

#[test]
fn p09_a_request_aborted_in_mid_load_is_dropped() {
    let mut side = plain();
    side.added(id("r"), to_load("t"), 40);
    side.matched(&id("r"), 40, 0);
    side.allocated(&id("r"), 40, &blocks(3));
    side.take_orders();
    assert_eq!(side.finished(&id("r"), Ending::Aborted, 40, &blocks(3)), None);
    assert_eq!(side.take_orders(), [Order::Drop(id("r"))]);
}

#[test]
fn p11_samples_of_one_request_load_its_transfer_once() {
    let mut side = plain();
    side.added(id("a"), to_load("t"), 40);
    side.added(id("b"), to_load("t"), 40);
    side.matched(&id("a"), 40, 0);
    side.allocated(&id("a"), 40, &blocks(3));
    assert_eq!(side.matched(&id("b"), 40, 0), Matched::Later);
    side.loads_ended([&id("a")]);
    // What a got is a prefix hit for b now.
    assert_eq!(side.matched(&id("b"), 40, 32), Matched::Nothing);
    side.allocated(&id("b"), 0, &blocks(3));
    assert_eq!(side.take_orders().len(), 1, "one load, no release under its feet");
    // Also when the first is long gone.
    let _ = side.finished(&id("a"), Ending::Complete, 50, &blocks(4));
    side.added(id("c"), to_load("t"), 40);
    assert_eq!(side.matched(&id("c"), 40, 0), Matched::Nothing);
    let _ = side.finished(&id("c"), Ending::Aborted, 0, &[]);
    assert!(side.take_orders().is_empty());
}

#[test]
fn p11_samples_of_one_request_are_sent_once_and_nobodys_blocks_are_lost() {
    let mut side = plain();
    for name in ["a", "b"] {
        side.added(id(name), to_send("t"), 48);
        side.allocated(&id(name), 0, &blocks(3));
    }
    assert_eq!(side.take_orders().len(), 1, "one start");
    let hold = side.finished(&id("a"), Ending::Complete, 48, &blocks(3));
    assert!(hold.is_some());
    assert_eq!(side.finished(&id("b"), Ending::Complete, 48, &blocks(3)), None);
    assert!(matches!(&side.take_orders()[..], [Order::Hold { .. }]));
    // The other way round, an aborted sample does not abort the transfer.
    side.added(id("c"), to_send("u"), 48);
    side.added(id("d"), to_send("u"), 48);
    assert_eq!(side.finished(&id("d"), Ending::Aborted, 0, &[]), None);
    assert!(side.take_orders().is_empty());
}

#[test]
fn a_stop_token_as_the_only_one_is_complete_and_an_abort_is_told() {
    let mut side = plain();
    side.added(id("r"), to_send("t"), 48);
    side.allocated(&id("r"), 0, &blocks(3));
    side.take_orders();
    let hold = side.finished(&id("r"), Ending::Complete, 48, &blocks(3)).expect("held");
    let orders = side.take_orders();
    let [Order::Hold { hold: ordered, blocks: sent, end_token: 48, .. }] = &orders[..] else {
        panic!("{orders:?}")
    };
    assert_eq!((*ordered, sent), (hold, &blocks(3)));
    side.added(id("r"), to_send("u"), 48);
    assert_eq!(side.finished(&id("r"), Ending::Aborted, 16, &blocks(1)), None);
    assert_eq!(side.take_orders(), [Order::Abort("u".into())]);
    side.added(id("r"), to_send("v"), 48);
    assert_eq!(side.finished(&id("r"), Ending::Complete, 48, &[BlockList::new()]), None);
    assert_eq!(side.take_orders(), [Order::Abort("v".into())]);
}

#[test]
fn a06_what_p_computed_after_the_prompt_is_not_sent() {
    let mut side = plain();
    side.added(id("r"), to_send("t"), 32);
    side.allocated(&id("r"), 0, &blocks(2));
    let _ = side.finished(&id("r"), Ending::Complete, 35, &blocks(3));
    let orders = side.take_orders();
    let Some(Order::Hold { blocks: sent, end_token: 32, .. }) = orders.last() else {
        panic!("{orders:?}")
    };
    assert_eq!(sent, &blocks(2));
}

#[test]
fn windows_are_clipped_on_both_sides() {
    let mut side = side(vec![ConnectorGroup::all(16), ConnectorGroup::window(16, 16)]);
    let two = |len| vec![BlockList::run(0, len), BlockList::run(100, len)];
    side.added(id("p"), to_send("t"), 80);
    side.allocated(&id("p"), 0, &two(5));
    let _ = side.finished(&id("p"), Ending::Complete, 80, &two(5));
    side.added(id("d"), to_load("u"), 80);
    side.matched(&id("d"), 80, 0);
    side.allocated(&id("d"), 80, &two(5));
    let orders = side.take_orders();
    let expected = vec![BlockList::run(0, 5), BlockList::run(103, 2)];
    let [_, Order::Hold { blocks: sent, .. }, Order::Load { blocks: loaded, .. }] = &orders[..]
    else {
        panic!("{orders:?}")
    };
    assert_eq!((sent, loaded), (&expected, &expected));
}

#[test]
fn recurrent_state_leaves_the_last_token_to_d() {
    let config = SchedulingConfig {
        groups: vec![ConnectorGroup::all(16)],
        recompute_last: true,
        workers: 1,
        pause_drain: Duration::ZERO,
    };
    let mut side = Scheduling::new(config);
    assert!(side.added(id("p"), to_send("t"), 40));
    assert!(!side.added(id("short"), to_send("s"), 1));
    assert!(!side.added(id("d"), to_load("t"), 40));
    assert_eq!(side.matched(&id("d"), 40, 0), Matched::Tokens(39));
    side.added(id("one"), to_load("s"), 1);
    assert_eq!(side.matched(&id("one"), 1, 0), Matched::Tokens(1));
}

#[test]
fn p01_blocks_are_free_once_every_worker_gave_them_back() {
    let mut side = plain();
    let (first, second) = (held(&mut side, "a"), held(&mut side, "b"));
    assert_eq!(side.holding(), 2);
    assert_eq!(side.given_back([(first, 1), (second, 2)]), [second]);
    assert_eq!(side.given_back([(first, 1)]), [first]);
    assert_eq!(side.given_back([(first, 1), (HoldId(99), 2)]), []);
    assert_eq!(side.holding(), 0);
}

#[test]
fn held_requests_let_the_engine_sleep_and_a_pause_waits_for_them_bounded() {
    let mut side = plain();
    let hold = held(&mut side, "a");
    let at = Timestamp::from_millis;
    assert!(!side.must_step(false, at(0)));
    // Paused: D gets its drain budget, then the blocks are wanted back [R03].
    assert!(side.must_step(true, at(10)));
    assert!(side.must_step(true, at(2009)) && side.take_orders().is_empty());
    assert!(side.must_step(true, at(2010)));
    assert!(side.must_step(true, at(2020)));
    assert_eq!(side.take_orders(), [Order::ReleaseAll], "ordered once");
    assert_eq!(side.given_back([(hold, 2)]), [hold]);
    assert!(!side.must_step(true, at(2030)));
}

#[test]
fn a_pause_that_ended_starts_its_budget_anew() {
    let mut side = plain();
    held(&mut side, "a");
    assert!(side.must_step(true, Timestamp::from_millis(0)));
    assert!(!side.must_step(false, Timestamp::from_millis(1_000)));
    assert!(side.must_step(true, Timestamp::from_millis(3_000)));
    assert!(side.take_orders().is_empty());
}

#[test]
fn orders_that_wait_keep_the_engine_stepping() {
    let mut side = plain();
    held(&mut side, "a");
    side.release_all();
    assert!(side.must_step(false, Timestamp::default()));
    assert_eq!(side.take_orders(), [Order::ReleaseAll]);
    assert!(!side.must_step(false, Timestamp::default()));
}

fn failed() -> LoadEnd {
    LoadEnd::Failed(LoadFailure { reason: LoadFailureReason::TimedOut, message: String::new() })
}

#[test]
fn p08_each_load_is_reported_once_and_failures_with_their_blocks() {
    let mut side = Working::new(1);
    for name in ["good", "bad", "dropped", "refused"] {
        side.load_ordered(id(name), blocks(2));
    }
    side.load_ended(&id("good"), Some(&LoadEnd::Loaded));
    side.load_ended(&id("dropped"), Some(&LoadEnd::Dropped));
    assert!(side.has_report());
    let report = side.take_report();
    assert_eq!(report.received, [id("good"), id("dropped")]);
    assert!(report.bad_blocks.is_empty() && report.failed.is_empty());
    side.load_ended(&id("bad"), Some(&failed()));
    side.load_ended(&id("bad"), Some(&failed()));
    let report = side.take_report();
    assert_eq!((report.received, report.failed), (vec![id("bad")], vec![]));
    assert_eq!(report.bad_blocks, [BlockId(5), BlockId(6)].into());
    side.load_ended(&id("refused"), None);
    assert_eq!(side.take_report().bad_blocks.len(), 2);
    assert!(!side.has_report());
}

#[test]
fn failures_of_several_groups_are_told_by_request() {
    let mut side = Working::new(2);
    side.load_ordered(id("bad"), vec![BlockList::run(1, 1), BlockList::run(1, 1)]);
    side.load_ended(&id("bad"), Some(&failed()));
    let report = side.take_report();
    assert_eq!((report.received, report.failed), (vec![id("bad")], vec![id("bad")]));
    assert!(report.bad_blocks.is_empty());
}

#[test]
fn p13_holds_come_back_once_and_what_is_gone_changes_nothing() {
    let mut side = Working::new(1);
    side.hold_taken(HoldId(1), "t".into());
    side.hold_refused(HoldId(2));
    side.send_ended(&"t".into());
    side.send_ended(&"t".into());
    side.load_ended(&id("unknown"), Some(&LoadEnd::Dropped));
    assert_eq!(side.take_report().given_back, [HoldId(2), HoldId(1)]);
    assert!(!side.has_report());
}
