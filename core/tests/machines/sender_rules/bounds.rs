//! Nothing that peers can make P keep is unbounded.

use crate::names::reader;
use crate::sender_driver::{Answered, Ask, SenderDriver};
use kvbaton_core::ids::{LayoutId, WeightVersion};
use kvbaton_core::sender::{PullId, ResolvedPull, SendError, SenderConfig};
use kvbaton_core::time::Timestamp;
use kvbaton_core::wire::FailureReason;
use std::time::Duration;

const OVERLOADED: Option<Answered> = Some(Answered::Failed(FailureReason::Overloaded, true));

fn small() -> SenderConfig {
    SenderConfig {
        senders: 1,
        max_transfers: 100,
        max_waiting: 80,
        max_readers: 8,
        max_remembered: 50,
        ..SenderConfig::default()
    }
}

#[test]
fn z01_p06_a_million_pulls_for_unknown_transfers_fill_no_table() {
    let mut p = SenderDriver::with(small());
    let mut refused = 0;
    for n in 0..1_000_000u64 {
        let ask = Ask::of(0, &[&n.to_string()]);
        let pull = ResolvedPull {
            id: PullId(n),
            reader: ask.reader,
            expected_readers: 1,
            layout: ask.layout,
            echo: LayoutId(9),
            generation: None,
            timeout: Duration::ZERO,
            weights: WeightVersion::default(),
            requests: ask.requests,
        };
        p.sender.pull(pull, p.now);
        refused += u32::from(p.sender.next_action().is_some());
        assert_eq!(p.sender.next_action(), None);
    }
    assert_eq!(p.sender.transfers(), 50);
    assert_eq!((p.sender.open_pulls(), p.sender.waiting(), p.sender.queued()), (50, 50, 0));
    assert_eq!(refused, 1_000_000 - 50);
    p.sender.tick(Timestamp(0) + p.config.hold_timeout);
    while p.sender.next_action().is_some() {}
    assert_eq!((p.sender.transfers(), p.sender.open_pulls(), p.sender.waiting()), (0, 0, 0));
    assert_eq!(p.sender.next_deadline(), None);
    let text = format!("{:?}", p.sender);
    assert!(text.len() < 100_000, "what is remembered is bounded");
}

#[test]
fn z01_peers_cannot_shut_the_engine_out_nor_the_engine_itself() {
    let mut p = SenderDriver::with(small());
    for n in 0..200 {
        p.pull(Ask::of(0, &[&format!("d{n}")]));
    }
    for n in 0..50 {
        p.hold(&format!("p{n}")).unwrap();
    }
    let error = p.hold("one too many").unwrap_err();
    assert!(matches!(error, SendError::TooMany { limit: 100, .. }));
    let pull = p.pull(Ask::of(0, &["p0"]));
    p.written("p0");
    assert_eq!(p.answer(pull), Some(Answered::Ok), "what is held can still be pulled");
    p.hold("one too many").unwrap();
}

#[test]
fn z01_a_transfer_that_the_engine_confirms_no_longer_counts_as_unconfirmed() {
    let mut p = SenderDriver::with(small());
    for n in 0..50 {
        p.pull(Ask::of(0, &[&format!("d{n}")]).readers(2));
    }
    let refused = p.pull(Ask::of(0, &["d50"]));
    assert_eq!(p.answer(refused), OVERLOADED);
    p.started("d0").unwrap();
    p.abort("d1");
    for name in ["d50", "d51"] {
        let pull = p.pull(Ask::of(0, &[name]));
        assert_eq!(p.answer(pull), None, "{name}");
    }
}

#[test]
fn z01_readers_of_one_transfer_and_waiting_requests_are_bounded() {
    let mut p = SenderDriver::with(small());
    p.hold("a").unwrap();
    for rank in 0..8 {
        let pull = p.pull(Ask::of(rank, &["a"]).readers(u32::MAX));
        assert_eq!(p.answer(pull), None);
    }
    let pull = p.pull(Ask::of(8, &["a"]).readers(u32::MAX));
    assert_eq!(p.answer(pull), OVERLOADED);
    for n in 0..20 {
        p.started(&format!("r{n}")).unwrap();
        for port in 0..8 {
            let mut ask = Ask::of(0, &[&format!("r{n}")]).readers(8);
            ask.reader = reader(port, 0);
            p.pull(ask);
        }
    }
    assert_eq!(p.sender.waiting(), 80);
}
