//! What a sender says of itself, and what makes two of them equal.

use crate::names::{request, transfer};
use crate::sender_driver::{Ask, RUN, SenderDriver, grant};
use kvbaton_core::blocks::BlockList;
use kvbaton_core::wire::DropTransfers;

#[test]
fn p01_held_blocks_are_counted_over_all_groups_until_they_go_back() {
    let mut p = SenderDriver::new();
    assert_eq!((p.sender.held(), p.sender.held_blocks()), (0, 0));
    p.hold("a").unwrap();
    p.hold("b").unwrap();
    assert_eq!((p.sender.held(), p.sender.held_blocks()), (2, 4));
    let groups = vec![BlockList::run(0, 5), BlockList::new(), BlockList::run(9, 2)];
    let mut other = p.sender.clone();
    other.hold(request("p-c"), transfer("c"), groups, None, p.now).unwrap();
    assert_eq!((other.held(), other.held_blocks()), (3, 11));
    other.release(&transfer("c"), p.now);
    assert_eq!((other.held(), other.held_blocks()), (2, 4));
    p.release("a");
    assert_eq!((p.sender.held(), p.sender.held_blocks()), (1, 2));
    p.pull(Ask::of(0, &["b"]));
    assert_eq!(p.sender.held_blocks(), 2, "a write reads them");
    p.written("b");
    assert_eq!((p.sender.held(), p.sender.held_blocks()), (0, 0));
}

#[test]
fn s01_only_held_requests_keep_memory_in_use() {
    let mut p = SenderDriver::new();
    p.started("runs").unwrap();
    p.pull(Ask::of(0, &["named"]));
    assert_eq!(p.sender.in_use().count(), 0);
    p.hold("runs").unwrap();
    let (id, owner) = (transfer("runs"), request("p-runs"));
    let users: Vec<_> = p.sender.in_use().map(|it| (it.transfer, it.request)).collect();
    assert_eq!(users, [(&id, Some(&owner))]);
}

/// Two transfers that were aborted, the first of a name of `len` bytes: the reasons that
/// one pull of both is given.
fn reasons(len: usize) -> String {
    let mut p = SenderDriver::new();
    let first = "x".repeat(len);
    p.abort(&first);
    p.abort("b");
    let pull = p.pull(Ask::of(0, &[&first, "b"]));
    p.replies[&pull][0].message.clone().expect("reasons")
}

#[test]
fn z01_the_reasons_of_one_answer_are_bounded() {
    let one = "transfer b was aborted by the prefill engine";
    let rest = one.len() - 1;
    for (len, both) in [(1, true), (1023 - rest, true), (1024 - rest, false), (2000, false)] {
        let text = reasons(len);
        let expected = if both { len + rest + 2 + one.len() } else { len + rest };
        assert_eq!(text.len(), expected, "{len}: {text}");
        assert_eq!(text.ends_with(&format!("; {one}")), both);
    }
}

#[test]
fn equal_senders_remember_the_same() {
    let mut p = SenderDriver::new();
    p.hold("a").unwrap();
    let before = p.sender.clone();
    assert_eq!(p.sender, before);
    let mut released = before.clone();
    released.release(&transfer("early"), p.now);
    assert_ne!(released, before, "a release is remembered");
    let mut dropped = before.clone();
    let transfers = vec![(request("d-early"), transfer("early"), grant(0, "early"))];
    dropped.drop_transfers(&DropTransfers { incarnation: RUN, tp_rank: 0, transfers }, p.now);
    assert_ne!(dropped, before, "a drop is remembered");
}
