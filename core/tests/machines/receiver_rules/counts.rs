//! What a receiver says of itself, what makes two of them equal, and what keeps blocks
//! from a stock load.

use crate::names::request;
use crate::receiver_driver::{BOOTSTRAP, FIRST, Kind, ReceiverDriver, ranks, reply};
use kvbaton_core::ids::EngineId;
use kvbaton_core::receiver::LoadSpec;
use kvbaton_core::sender::PullId;
use kvbaton_core::wire::{FailureReason, Reply, Status};

const OURS: &[&[Kind]] = &[&[Kind::Ours]];
const STOCK: &[&[Kind]] = &[&[Kind::Stock]];

#[test]
fn l04_a_pull_is_open_until_its_last_answer() {
    let mut d = ReceiverDriver::new();
    d.load("a");
    d.discover(OURS);
    let pull = d.pull_to(0, 0);
    assert!(d.receiver.is_open(pull) && !d.receiver.is_open(PullId(pull.0 + 1)));
    d.ok(pull, Status::Finish, &["a"]);
    assert!(!d.receiver.is_open(pull));
}

#[test]
fn equal_receivers_know_the_same_peers() {
    let mut d = ReceiverDriver::new();
    let before = d.receiver.clone();
    assert_eq!(d.receiver, before);
    let listed = || Ok(vec![(EngineId::from("p"), ranks(OURS))]);
    d.receiver.discovered(BOOTSTRAP, listed(), d.now);
    assert_ne!(d.receiver, before, "an engine is known");
    d.load("a");
    let pull = d.pull_to(0, 0);
    let mut echoed = d.receiver.clone();
    let mut silent = d.receiver.clone();
    echoed.reply(pull, Reply { layout_id: FIRST, ..reply(Status::Continue) }, d.now);
    silent.reply(pull, reply(Status::Continue), d.now);
    assert_ne!(echoed, silent, "an echo is known");
}

/// A load `a` that ended by `end`, then one of a stock P that wants the same blocks: whether
/// it is pulled at once.
fn is_pulled_at_once(first: &[&[Kind]], end: impl FnOnce(&mut ReceiverDriver)) -> bool {
    let mut d = ReceiverDriver::new();
    let spec = d.spec("a");
    d.accept(spec.clone()).unwrap();
    d.flush();
    d.discover(first);
    end(&mut d);
    d.revoke_all();
    assert_eq!(d.ended.len(), 1);
    let again = LoadSpec { blocks: spec.blocks, engine: EngineId::from("q"), ..d.spec("b") };
    d.accept(again).unwrap();
    d.flush();
    d.discovered(Ok(vec![(EngineId::from("q"), ranks(STOCK))]));
    let wanted = request("b");
    d.pulls.values().any(|it| it.pull.requests.iter().any(|it| it.request_id == wanted))
}

#[test]
fn g03_only_a_stock_writer_that_may_still_write_keeps_blocks_from_stock_loads() {
    let fail = |settled: bool| {
        move |d: &mut ReceiverDriver| {
            let pull = d.pull_to(0, 0);
            d.failed(pull, "a", FailureReason::WriteFailed, settled);
        }
    };
    assert!(is_pulled_at_once(OURS, fail(true)), "its grant is revoked");
    assert!(is_pulled_at_once(OURS, fail(false)), "its grant is revoked");
    let lost = |sent: bool| {
        move |d: &mut ReceiverDriver| {
            let pull = d.pull_to(0, 0);
            d.pull_failed(pull, sent);
        }
    };
    assert!(is_pulled_at_once(STOCK, lost(false)), "it never heard of the load");
    assert!(!is_pulled_at_once(STOCK, lost(true)), "it may have read the pull");
}
