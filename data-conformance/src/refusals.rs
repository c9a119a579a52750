//! What is refused, and how it is told.

use crate::{Node, Options, PATIENCE, Planes, block_on, copy};
use kvbaton_actors::transport::{GrantedRows, Rejection, TransportError, WriteOutcome};
use kvbaton_core::ids::{Address, Bytes, Generation, Grant, SessionAddress};
use kvbaton_core::region::MemoryRange;

pub(crate) fn z02_each_reason_to_refuse_is_told_and_nothing_lands(planes: &dyn Planes) {
    let (p, d) = (Node::new(planes, 1 << 20, 1), Node::new(planes, 1 << 20, 0));
    let grant = d.grant(1, 4096, 4096);
    let end = d.range.len.0;
    let generation = d.registration.generation;
    let (at, stale) = (d.at(4096).0, Some(Generation(generation.0 ^ 2)));
    let (current, none) = (Some(generation), None);
    let cases = [
        (current, Some(Grant(2)), at, 16, Rejection::UnknownGrant),
        (stale, Some(grant), at, 16, Rejection::StaleGeneration),
        (none, Some(grant), at, 16, Rejection::GrantRequired),
        (current, None, at, 16, Rejection::GrantRequired),
        (current, Some(grant), at - 1, 16, Rejection::OutsideGrant),
        (current, Some(grant), at + 4090, 16, Rejection::OutsideGrant),
        (current, Some(grant), d.at(end - 1).0, 16, Rejection::OutsideMemory),
        (current, Some(grant), 8, 16, Rejection::OutsideMemory),
        (current, Some(grant), u64::MAX - 8, 16, Rejection::OutsideMemory),
    ];
    let keys = || d.registration.keys.clone();
    for (generation, grant, destination, len, rejection) in cases {
        let copies = vec![copy(p.at(0), Address(destination), len)];
        let outcome = p.run(p.write(d.plane.session(), generation, grant, keys(), copies));
        assert_eq!(outcome, WriteOutcome::Rejected(rejection), "{destination:#x}");
    }
    let counters = d.plane.counters();
    assert!(counters.refused_grant >= 1, "{counters:?}");
    assert_eq!(counters.refused_generation, 1);
    assert_eq!(counters.refused_range, 5);
    assert_eq!(counters.bytes_received, Bytes(0));
    assert!(d.read().iter().all(|byte| *byte == 0));
}

pub(crate) fn sources_outside_registered_memory_fail_before_anything_is_sent(planes: &dyn Planes) {
    let (p, d) = (Node::new(planes, 4096, 1), Node::new(planes, 4096, 0));
    let grant = d.grant(1, 0, 4096);
    let sources = [(p.at(4090), 16), (p.at(0), 0), (Address(u64::MAX - 1), 8), (Address(8), 8)];
    for (source, len) in sources {
        match p.run(p.write_to(&d, grant, vec![copy(source, d.at(0), len)])) {
            WriteOutcome::Failed { error: TransportError::Memory { .. }, settled: true } => {}
            other => panic!("{source:?}: {other:?}"),
        }
    }
    assert_eq!(d.read(), vec![0; 4096]);
    assert_eq!(p.run(p.write_to(&d, grant, Vec::new())), WriteOutcome::Written);
}

pub(crate) fn registrations_and_grants_are_checked(planes: &dyn Planes) {
    let d = Node::new(planes, 4096, 0);
    let refused = |ranges: &[MemoryRange]| {
        // SAFETY: refused, so never touched.
        let result = unsafe { d.plane.register(ranges) };
        assert!(matches!(result, Err(TransportError::Memory { .. })), "{ranges:?}: {result:?}");
    };
    let range = |start, len| MemoryRange { start: Address(start), len: Bytes(len) };
    refused(&[]);
    refused(&[range(8, 0)]);
    refused(&[range(u64::MAX - 7, 8)]);
    refused(&[range(8, 8), range(12, 8)]);
    refused(&[range(d.at(4095).0, 8)]);
    let grant = |grant: u64, generation, row| {
        let grant = Grant(grant);
        let rows = vec![row];
        d.plane.open_grant(GrantedRows { grant, generation, rows, allow_ungranted: false })
    };
    let generation = d.registration.generation;
    grant(1, generation, range(d.at(0).0, 16)).expect("opens");
    grant(1, generation, range(d.at(16).0, 16)).expect_err("is open already");
    grant(2, generation, range(d.at(4090).0, 16)).expect_err("lies outside");
    grant(2, Generation(1), range(d.at(0).0, 16)).expect_err("is stale");
    assert!(!block_on(d.plane.revoke(Grant(9))).was_live);
}

pub(crate) fn z04_only_the_same_key_is_let_in(planes: &dyn Planes) {
    let with = |key| Options { key, ..Options::default() };
    for (ours, theirs, fine) in [
        (Some([1; 32]), Some([1; 32]), true),
        (Some([1; 32]), Some([2; 32]), false),
        (Some([1; 32]), None, false),
        (None, Some([2; 32]), false),
    ] {
        let p = Node::with(planes, with(ours), 4096, 1);
        let d = Node::with(planes, with(theirs), 4096, 0);
        let grant = d.grant(1, 0, 4096);
        match p.run(p.write_to(&d, grant, vec![copy(p.at(0), d.at(0), 16)])) {
            WriteOutcome::Written => assert!(fine, "{ours:?} {theirs:?}"),
            WriteOutcome::Failed { error, settled: true } => {
                assert!(!fine, "{error}");
                assert_eq!(d.read(), vec![0; 4096]);
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn z05_a_session_outside_the_allowed_networks_is_not_connected_to(planes: &dyn Planes) {
    let options = Options { deny_all: true, ..Options::default() };
    let (p, d) = (Node::with(planes, options, 4096, 1), Node::new(planes, 4096, 0));
    let grant = d.grant(1, 0, 4096);
    match p.run(p.write_to(&d, grant, vec![copy(p.at(0), d.at(0), 4096)])) {
        WriteOutcome::Failed { error: TransportError::AddressNotAllowed { .. }, settled: true } => {
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) fn p12_nobody_there_is_told_at_once_and_settled(planes: &dyn Planes) {
    let (p, d) = (Node::new(planes, 4096, 1), Node::new(planes, 4096, 0));
    // Bound and closed again: nobody listens there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let port = listener.local_addr().expect("bound").port();
    drop(listener);
    let session = SessionAddress { host: "127.0.0.1".into(), port };
    let generation = Some(d.registration.generation);
    let copies = vec![copy(p.at(0), Address(1 << 40), 16)];
    let keys = d.registration.keys.clone();
    let mut write = p.write(session, generation, Some(Grant(1)), keys, copies);
    write.timeout = PATIENCE / 2;
    match p.run(write) {
        WriteOutcome::Failed { error: TransportError::Unreachable { .. }, settled: true } => {}
        other => panic!("{other:?}"),
    }
}
