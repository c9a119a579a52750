//! What lands, and where.

use crate::{Node, Planes, block_on, copy, wait_until};
use kvbaton_actors::transport::{Rejection, Revoked, WriteOutcome};
use kvbaton_core::ids::{Bytes, Grant};

pub(crate) fn g01_a_write_lands_exactly_in_its_rows(planes: &dyn Planes) {
    let (p, d) = (Node::new(planes, 1 << 20, 0), Node::new(planes, 1 << 20, 9));
    p.fill_with(|offset| (offset % 251) as u8);
    let grant = d.grant_rows(1, &[(100, 1000), (5000, 1)]);
    let copies = vec![copy(p.at(7), d.at(100), 1000), copy(p.at(3), d.at(5000), 1)];
    assert_eq!(p.run(p.write_to(&d, grant, copies)), WriteOutcome::Written);
    let (source, mut expected) = (p.read(), vec![9; 1 << 20]);
    expected[100..1100].copy_from_slice(&source[7..1007]);
    expected[5000] = source[3];
    assert!(d.read() == expected);
    assert_eq!(p.plane.counters().bytes_sent, Bytes(1001));
    wait_until(|| d.plane.counters().bytes_received == Bytes(1001));
    let revoked = block_on(d.plane.revoke(grant));
    assert_eq!(revoked, Revoked { was_live: true, bytes_landed: 1001 });
    assert_eq!(block_on(d.plane.revoke(grant)), Revoked::default());
}

pub(crate) fn f74_twenty_thousand_scattered_blocks_pass_in_one_batch(planes: &dyn Planes) {
    const BLOCK: u64 = 1024;
    const COUNT: u64 = 20_000;
    let len = (BLOCK * COUNT) as usize;
    let (p, d) = (Node::new(planes, len, 0), Node::new(planes, len, 0));
    p.fill_with(|offset| (offset / BLOCK as usize * 31 + offset) as u8);
    let grant = d.grant(1, 0, BLOCK * COUNT);
    // 7919 and 20,000 share no factor: every block is hit once.
    let to = |block: u64| block * 7919 % COUNT;
    let copies = (0..COUNT).map(|b| copy(p.at(b * BLOCK), d.at(to(b) * BLOCK), BLOCK)).collect();
    assert_eq!(p.run(p.write_to(&d, grant, copies)), WriteOutcome::Written);
    let (source, landed) = (p.read(), d.read());
    for block in 0..COUNT {
        let (from, into) = ((block * BLOCK) as usize, (to(block) * BLOCK) as usize);
        assert!(source[from..][..BLOCK as usize] == landed[into..][..BLOCK as usize], "{block}");
    }
}

pub(crate) fn a_large_contiguous_write_lands_whole(planes: &dyn Planes) {
    let len = planes.large() / 2 + 5;
    let (p, d) = (Node::new(planes, len as usize, 0), Node::new(planes, len as usize, 0));
    p.fill_with(|offset| (offset >> 12) as u8 ^ offset as u8);
    let grant = d.grant(1, 0, len);
    let copies = vec![copy(p.at(0), d.at(0), len)];
    assert_eq!(p.run(p.write_to(&d, grant, copies)), WriteOutcome::Written);
    assert!(p.read() == d.read());
}

pub(crate) fn many_writes_at_a_time_end_each_on_its_own(planes: &dyn Planes) {
    let (p, d) = (Node::new(planes, 1 << 20, 5), Node::new(planes, 1 << 20, 0));
    let grant = d.grant(1, 0, 1 << 20);
    let write = |index: u64| {
        let copies = vec![copy(p.at(index * 4096), d.at(index * 4096), 4096)];
        let grant = if index.is_multiple_of(2) { grant } else { Grant(2) };
        p.plane.write(p.write_to(&d, grant, copies))
    };
    let writes: Vec<_> = (0..256).map(write).collect();
    for (index, write) in writes.into_iter().enumerate() {
        let expected = match index % 2 {
            0 => WriteOutcome::Written,
            _ => WriteOutcome::Rejected(Rejection::UnknownGrant),
        };
        assert_eq!(block_on(write), expected, "{index}");
    }
    let landed = d.read();
    assert!((0..256).all(|i| landed[i * 4096] == if i % 2 == 0 { 5 } else { 0 }));
}

pub(crate) fn both_directions_at_once(planes: &dyn Planes) {
    let (a, b) = (Node::new(planes, 2 << 20, 1), Node::new(planes, 2 << 20, 2));
    let (to_a, to_b) = (a.grant(1, 1 << 20, 1 << 20), b.grant(2, 1 << 20, 1 << 20));
    let half = 1 << 20;
    let first = a.plane.write(a.write_to(&b, to_b, vec![copy(a.at(0), b.at(half), half)]));
    let second = b.plane.write(b.write_to(&a, to_a, vec![copy(b.at(0), a.at(half), half)]));
    assert_eq!(block_on(first), WriteOutcome::Written);
    assert_eq!(block_on(second), WriteOutcome::Written);
    assert!(a.read()[half as usize..].iter().all(|byte| *byte == 2));
    assert!(b.read()[half as usize..].iter().all(|byte| *byte == 1));
}

pub(crate) fn pieces_of_every_size_and_alignment_land(planes: &dyn Planes) {
    let (p, d) = (Node::new(planes, 4 << 20, 0), Node::new(planes, 4 << 20, 0));
    p.fill_with(|offset| (offset * 7 + (offset >> 8)) as u8 | 1);
    let grant = d.grant(1, 0, 4 << 20);
    let sizes = [1, 2, 3, 7, 8, 63, 64, 128, 129, 220, 4095, 4096, 4097, 65_537, 1 << 20];
    let mut copies = Vec::new();
    let (mut from, mut to) = (1, 3);
    for (turn, len) in sizes.into_iter().cycle().take(30).enumerate() {
        copies.push(copy(p.at(from), d.at(to), len));
        from += len + 5;
        // Every third one goes right behind the one before: a gather.
        to += len + if turn % 3 == 0 { 0 } else { 11 };
    }
    let mut expected = d.read();
    let source = p.read();
    for it in &copies {
        let (from, to) =
            ((it.source.0 - p.at(0).0) as usize, (it.destination.0 - d.at(0).0) as usize);
        let len = it.len.0 as usize;
        expected[to..to + len].copy_from_slice(&source[from..from + len]);
    }
    assert_eq!(p.run(p.write_to(&d, grant, copies)), WriteOutcome::Written);
    assert!(d.read() == expected);
}
