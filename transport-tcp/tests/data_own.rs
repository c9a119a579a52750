//! Our own protocol: what lands, what is refused, what ends.

mod data_kit;

use data_kit::{Node, PATIENCE, RawClient, RawFrame, block_on, copy, raw_server};
use kvbaton_actors::transport::{
    DataPlane, GrantedRows, Rejection, Revoked, TransportError, WriteOutcome,
};
use kvbaton_core::ids::{Address, Bytes, Generation, Grant};
use kvbaton_core::region::MemoryRange;
use kvbaton_transport_tcp::data::DataConfig;
use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

#[test]
fn g01_a_write_lands_exactly_in_its_rows() {
    let (p, d) = (Node::new(1 << 20, 0), Node::new(1 << 20, 9));
    p.fill_with(|offset| (offset % 251) as u8);
    let grant = d.grant_rows(1, &[(100, 1000), (5000, 1)], false);
    let copies = vec![copy(p.at(7), d.at(100), 1000), copy(p.at(3), d.at(5000), 1)];
    assert_eq!(p.run(p.write_to(&d, grant, copies)), WriteOutcome::Written);
    let (source, mut expected) = (p.read(), vec![9; 1 << 20]);
    expected[100..1100].copy_from_slice(&source[7..1007]);
    expected[5000] = source[3];
    assert!(d.read() == expected);
    assert_eq!(p.plane.counters().bytes_sent, Bytes(1001));
    assert_eq!(d.plane.counters().bytes_received, Bytes(1001));
    let revoked = block_on(d.plane.revoke(grant));
    assert_eq!(revoked, Revoked { was_live: true, bytes_landed: 1001 });
}

#[test]
fn f74_twenty_thousand_scattered_blocks_pass_in_one_batch() {
    const BLOCK: u64 = 1024;
    const COUNT: u64 = 20_000;
    let len = (BLOCK * COUNT) as usize;
    let (p, d) = (Node::new(len, 0), Node::new(len, 0));
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

#[test]
fn a_contiguous_write_is_spread_over_connections_and_lands_whole() {
    let (p, d) = (Node::new(33 << 20, 0), Node::new(33 << 20, 0));
    p.fill_with(|offset| (offset >> 12) as u8 ^ offset as u8);
    let grant = d.grant(1, 0, 33 << 20);
    let copies = vec![copy(p.at(0), d.at(0), 33 << 20)];
    assert_eq!(p.run(p.write_to(&d, grant, copies)), WriteOutcome::Written);
    assert!(p.read() == d.read());
}

#[test]
fn many_writes_at_a_time_end_each_on_its_own() {
    let (p, d) = (Node::new(1 << 20, 5), Node::new(1 << 20, 0));
    let grant = d.grant(1, 0, 1 << 20);
    let write = |index: u64| {
        let copies = vec![copy(p.at(index * 4096), d.at(index * 4096), 4096)];
        p.plane.write(p.write_to(
            &d,
            if index.is_multiple_of(2) { grant } else { Grant(2) },
            copies,
        ))
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

#[test]
fn z02_each_reason_to_refuse_is_told_and_counted_and_nothing_lands() {
    let (p, d) = (Node::new(1 << 20, 1), Node::new(1 << 20, 0));
    let grant = d.grant(1, 4096, 4096);
    let end = d.range.len.0;
    let (at, stale) = (d.at(4096).0, Some(Generation(d.generation.0 ^ 2)));
    let (current, none) = (Some(d.generation), None);
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
    for (generation, grant, destination, len, rejection) in cases {
        let copies = vec![copy(p.at(0), Address(destination), len)];
        let outcome = p.run(p.write(d.plane.session(), generation, grant, copies));
        assert_eq!(outcome, WriteOutcome::Rejected(rejection), "{destination:#x}");
    }
    let counters = d.plane.counters();
    assert_eq!(counters.refused_grant, 3);
    assert_eq!(counters.refused_generation, 1);
    assert_eq!(counters.refused_range, 5);
    assert_eq!(counters.bytes_received, Bytes(0));
    assert!(d.read().iter().all(|byte| *byte == 0));
}

#[test]
fn f84_hostile_tables_are_refused_and_the_connection_goes_on() {
    let d = Node::new(1 << 20, 0);
    let grant = d.grant(1, 0, 4096);
    let mut client = RawClient::connect(&d);
    let frame = |batch, table: Vec<(u64, u64)>| RawFrame {
        last: true,
        generation: Some(d.generation),
        grant: Some(grant),
        batch,
        payload: table.iter().map(|(_, len)| len).sum(),
        table,
    };
    let good = (d.at(0).0, 16);
    let hostile = [
        vec![good, (d.at(32).0, 0)],
        vec![(u64::MAX, 1)],
        vec![good, (u64::MAX - 3, 8)],
        vec![(0, 8)],
        vec![(d.at((1 << 20) - 4).0, 8)],
    ];
    let count = hostile.len() as u64;
    for (batch, table) in hostile.into_iter().enumerate() {
        let frame = frame(batch as u64, table);
        client.header(&frame);
        client.send(&vec![1; frame.payload as usize]);
        assert_eq!(client.ack(), (true, 4, batch as u64));
    }
    assert!(d.read().iter().all(|byte| *byte == 0));
    assert_eq!(d.plane.counters().refused_range, count);
    client.header(&frame(99, vec![good]));
    client.send(&[3; 16]);
    assert_eq!(client.ack(), (true, 0, 99));
    assert_eq!(d.read()[..17], [[3; 16].as_slice(), &[0]].concat());
}

/// A client that has sent the first half of a frame, which has landed.
fn half_a_frame(d: &Node, grant: Grant) -> (RawClient, u64) {
    const LEN: u64 = 512 << 10;
    let mut client = RawClient::connect(d);
    client.header(&RawFrame {
        last: true,
        generation: Some(d.generation),
        grant: Some(grant),
        batch: 4,
        table: vec![(d.at(0).0, LEN)],
        payload: LEN,
    });
    client.send(&vec![1; LEN as usize / 2]);
    d.wait_for(|counters| counters.bytes_received == Bytes(LEN / 2));
    (client, LEN / 2)
}

#[test]
fn g02_a_revoke_in_the_middle_of_a_frame_returns_and_not_a_byte_lands_after() {
    let d = Node::new(1 << 20, 0);
    let grant = d.grant(1, 0, 1 << 20);
    let (mut client, half) = half_a_frame(&d, grant);
    let revoked = block_on(d.plane.revoke(grant));
    assert_eq!(revoked, Revoked { was_live: true, bytes_landed: half });
    d.fill_with(|_| 7);
    client.send(&vec![1; half as usize]);
    assert_eq!(client.ack(), (true, 1, 4));
    assert!(d.read().iter().all(|byte| *byte == 7));
    assert_eq!(d.plane.counters().refused_grant, 1);
    // The blocks are free for another load, over the same connection.
    let next = d.grant(2, 0, 64);
    client.header(&RawFrame {
        last: true,
        generation: Some(d.generation),
        grant: Some(next),
        batch: 5,
        table: vec![(d.at(0).0, 64)],
        payload: 64,
    });
    client.send(&[2; 64]);
    assert_eq!(client.ack(), (true, 0, 5));
    assert_eq!(d.read()[..65], [[2; 64].as_slice(), &[7]].concat());
}

#[test]
fn s04_unregistering_in_the_middle_of_a_frame_returns_and_not_a_byte_lands_after() {
    let d = Node::new(1 << 20, 0);
    let grant = d.grant(1, 0, 1 << 20);
    let (mut client, half) = half_a_frame(&d, grant);
    block_on(d.plane.unregister(d.generation)).expect("unregisters");
    block_on(d.plane.unregister(d.generation)).expect("is idempotent");
    d.fill_with(|_| 7);
    client.send(&vec![1; half as usize]);
    assert_eq!(client.ack(), (true, 2, 4));
    assert!(d.read().iter().all(|byte| *byte == 7));
    assert_eq!(d.plane.counters().refused_generation, 1);
    assert!(!block_on(d.plane.revoke(grant)).was_live, "its grants have ended with it");
}

#[test]
fn s04_after_registering_again_only_the_new_generation_is_taken() {
    let (p, d) = (Node::new(4096, 1), Node::new(4096, 0));
    let grant = d.grant(1, 0, 4096);
    let old = p.write_to(&d, grant, vec![copy(p.at(0), d.at(0), 4096)]);
    block_on(d.plane.unregister(d.generation)).expect("unregisters");
    // SAFETY: as in `Node::with`; the plane is closed before the memory is freed below.
    let again = unsafe { d.plane.register(&[d.range]) }.expect("registers").generation;
    assert_ne!(again, d.generation);
    let (grant, rows) = (Grant(2), vec![d.range]);
    let granted = GrantedRows { grant, generation: again, rows, allow_ungranted: false };
    d.plane.open_grant(granted).expect("opens");
    assert_eq!(p.run(old), WriteOutcome::Rejected(Rejection::StaleGeneration));
    assert_eq!(d.read(), vec![0; 4096]);
    let copies = vec![copy(p.at(0), d.at(0), 4096)];
    let new = p.write(d.plane.session(), Some(again), Some(grant), copies);
    assert_eq!(p.run(new), WriteOutcome::Written);
    block_on(d.plane.unregister(again)).expect("unregisters");
}

#[test]
fn f05_a_peer_that_stops_reading_costs_the_timeout_and_never_gets_newer_bytes() {
    const LEN: u64 = 64 << 20;
    let p = Node::with(one_connection(), LEN as usize, 1);
    let (release, released) = mpsc::channel();
    let (session, server) = raw_server(move |mut stream| {
        released.recv_timeout(PATIENCE).expect("released");
        let mut got = Vec::new();
        // Ends in a reset; what was read before it counts.
        let _ = stream.read_to_end(&mut got);
        assert!(got.iter().all(|byte| *byte != 2), "newer bytes were sent");
    });
    let copies = vec![copy(p.at(0), Address(1 << 40), LEN)];
    let mut write = p.write(session, Some(Generation(1)), Some(Grant(1)), copies);
    write.timeout = Duration::from_millis(300);
    match p.run(write) {
        WriteOutcome::Failed { error: TransportError::TimedOut { .. }, settled: false } => {}
        other => panic!("{other:?}"),
    }
    p.fill_with(|_| 2);
    release.send(()).expect("waits");
    server.join().expect("saw no newer byte");
}

#[test]
fn f05_a_write_that_never_began_is_settled_when_its_time_is_over() {
    let p = Node::new(64 << 20, 1);
    let (release, released) = mpsc::channel::<()>();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let port = listener.local_addr().expect("bound").port();
    let server = std::thread::spawn(move || {
        let silent = listener.accept().expect("accepts");
        released.recv_timeout(PATIENCE).expect("released");
        drop(silent);
    });
    let session = kvbaton_core::ids::SessionAddress { host: "127.0.0.1".into(), port };
    let copies = vec![copy(p.at(0), Address(1 << 40), 16)];
    let mut write = p.write(session, Some(Generation(1)), Some(Grant(1)), copies);
    write.timeout = Duration::from_millis(100);
    match p.run(write) {
        WriteOutcome::Failed { error: TransportError::TimedOut { .. }, settled: true } => {}
        other => panic!("{other:?}"),
    }
    release.send(()).expect("waits");
    server.join().expect("ends");
}

#[test]
fn cancelling_a_write_that_is_stuck_ends_it_unsettled() {
    const LEN: u64 = 64 << 20;
    let p = Node::with(one_connection(), LEN as usize, 1);
    let (started, has_started) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let (session, server) = raw_server(move |mut stream| {
        stream.read_exact(&mut [0; 100]).expect("a frame begins");
        started.send(()).expect("waits");
        released.recv_timeout(PATIENCE).expect("released");
    });
    let copies = vec![copy(p.at(0), Address(1 << 40), LEN)];
    let write = p.write(session, Some(Generation(1)), Some(Grant(1)), copies);
    let id = write.id;
    let future = p.plane.write(write);
    has_started.recv_timeout(PATIENCE).expect("begins");
    p.plane.cancel(id);
    p.plane.cancel(id);
    match block_on(future) {
        WriteOutcome::Failed { error: TransportError::Cancelled { .. }, settled: false } => {}
        other => panic!("{other:?}"),
    }
    p.plane.cancel(id);
    release.send(()).expect("waits");
    server.join().expect("ends");
}

fn one_connection() -> DataConfig {
    DataConfig { connections_per_peer: 1, ..DataConfig::default() }
}

#[test]
fn cancelling_a_write_that_moves_is_confirmed_by_the_peer_and_hurts_no_other() {
    let (p, d) = (Node::with(one_connection(), 64 << 20, 1), Node::new(64 << 20, 0));
    let grant = d.grant(1, 0, 64 << 20);
    let large = p.write_to(&d, grant, vec![copy(p.at(0), d.at(0), 64 << 20)]);
    let small = p.write_to(&d, grant, vec![copy(p.at(0), d.at(0), 4096)]);
    let id = large.id;
    let large = p.plane.write(large);
    d.wait_for(|counters| counters.bytes_received > Bytes(0));
    let small = p.plane.write(small);
    p.plane.cancel(id);
    match block_on(large) {
        // It may have been over before the cancel took effect.
        WriteOutcome::Written
        | WriteOutcome::Failed { error: TransportError::Cancelled { .. }, .. } => {}
        other => panic!("{other:?}"),
    }
    match block_on(small) {
        WriteOutcome::Written => {}
        // Only if the machine was too slow for the peer to confirm in time.
        WriteOutcome::Failed { error: TransportError::Disconnected { .. }, .. } => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn s01_unregistering_the_source_ends_a_stuck_write() {
    const LEN: u64 = 64 << 20;
    let p = Node::with(one_connection(), LEN as usize, 1);
    let (started, has_started) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let (session, server) = raw_server(move |mut stream| {
        stream.read_exact(&mut [0; 100]).expect("a frame begins");
        started.send(()).expect("waits");
        released.recv_timeout(PATIENCE).expect("released");
        let mut got = Vec::new();
        let _ = stream.read_to_end(&mut got);
        assert!(got.iter().all(|byte| *byte != 2), "memory was read after unregister");
    });
    let copies = vec![copy(p.at(0), Address(1 << 40), LEN)];
    let future = p.plane.write(p.write(session, Some(Generation(1)), Some(Grant(1)), copies));
    has_started.recv_timeout(PATIENCE).expect("begins");
    block_on(p.plane.unregister(p.generation)).expect("unregisters");
    p.fill_with(|_| 2);
    match block_on(future) {
        WriteOutcome::Failed { settled: false, .. } => {}
        other => panic!("{other:?}"),
    }
    release.send(()).expect("waits");
    server.join().expect("saw no newer byte");
}

#[test]
fn sources_outside_registered_memory_fail_before_anything_is_sent() {
    let (p, d) = (Node::new(4096, 1), Node::new(4096, 0));
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

#[test]
fn f70_a_restarted_receiver_on_the_same_port_is_found_and_refuses_what_is_stale() {
    let (p, d) = (Node::new(4096, 1), Node::new(4096, 0));
    let grant = d.grant(1, 0, 4096);
    let copies = |d: &Node| vec![copy(p.at(0), d.at(0), 4096)];
    assert_eq!(p.run(p.write_to(&d, grant, copies(&d))), WriteOutcome::Written);
    let session = d.plane.session();
    let stale = d.generation;
    drop(d);
    let config = DataConfig { port: session.port, ..DataConfig::default() };
    let d = Node::with(config, 4096, 0);
    let grant = d.grant(1, 0, 4096);
    let old = p.write(session.clone(), Some(stale), Some(grant), copies(&d));
    assert_eq!(p.run(old), WriteOutcome::Rejected(Rejection::StaleGeneration));
    assert_eq!(d.read(), vec![0; 4096]);
    assert_eq!(p.run(p.write_to(&d, grant, copies(&d))), WriteOutcome::Written);
    assert_eq!(d.read(), vec![1; 4096]);
}

#[test]
fn p12_a_dead_peer_is_told_at_once() {
    let p = Node::new(64 << 20, 1);
    let (session, server) = raw_server(|mut stream| {
        stream.read_exact(&mut [0; 4096]).expect("a frame begins");
    });
    let copies = vec![copy(p.at(0), Address(1 << 40), 4096)];
    let outcome = p.run(p.write(session.clone(), Some(Generation(1)), Some(Grant(1)), copies));
    match outcome {
        WriteOutcome::Failed { error: TransportError::Disconnected { .. }, settled: false } => {}
        other => panic!("{other:?}"),
    }
    server.join().expect("ends");
    let copies = vec![copy(p.at(0), Address(1 << 40), 4096)];
    match p.run(p.write(session, Some(Generation(1)), Some(Grant(1)), copies)) {
        WriteOutcome::Failed { error: TransportError::Unreachable { .. }, settled: true } => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn writes_towards_one_peer_are_bounded() {
    let config = DataConfig { max_writes_per_peer: 1, ..one_connection() };
    let p = Node::with(config, 1 << 20, 1);
    let (release, released) = mpsc::channel();
    let (session, server) = raw_server(move |stream| {
        released.recv_timeout(PATIENCE).expect("released");
        drop(stream);
    });
    let write = || {
        let copies = vec![copy(p.at(0), Address(1 << 40), 4096)];
        p.plane.write(p.write(session.clone(), Some(Generation(1)), Some(Grant(1)), copies))
    };
    let first = write();
    match block_on(write()) {
        WriteOutcome::Failed { error: TransportError::Local { reason, .. }, settled: true } => {
            assert!(reason.contains("max_writes_per_peer"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    release.send(()).expect("waits");
    assert!(matches!(block_on(first), WriteOutcome::Failed { .. }));
    server.join().expect("ends");
}

#[test]
fn registrations_and_grants_are_checked() {
    let d = Node::new(4096, 0);
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
        let granted = GrantedRows {
            grant: Grant(grant),
            generation,
            rows: vec![row],
            allow_ungranted: false,
        };
        d.plane.open_grant(granted)
    };
    grant(1, d.generation, range(d.at(0).0, 16)).expect("opens");
    grant(1, d.generation, range(d.at(16).0, 16)).expect_err("is open already");
    grant(2, d.generation, range(d.at(4090).0, 16)).expect_err("lies outside");
    grant(2, Generation(1), range(d.at(0).0, 16)).expect_err("is stale");
    assert!(!block_on(d.plane.revoke(Grant(9))).was_live);
}

#[test]
fn z05_a_session_outside_the_allowed_networks_is_not_connected_to() {
    let config = DataConfig {
        check_address: Arc::new(|_| false),
        allowed_networks: "none at all".into(),
        ..DataConfig::default()
    };
    let (p, d) = (Node::with(config, 4096, 1), Node::new(4096, 0));
    let grant = d.grant(1, 0, 4096);
    let write = p.write_to(&d, grant, vec![copy(p.at(0), d.at(0), 4096)]);
    match p.run(write) {
        WriteOutcome::Failed {
            error: TransportError::AddressNotAllowed { allowed, .. },
            settled: true,
        } => assert_eq!(allowed, "none at all"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_is_reached_by_name_and_over_ipv6_where_the_host_has_it() {
    let p = Node::new(4096, 1);
    let by_name = DataConfig { advertise_host: Some("localhost".into()), ..DataConfig::default() };
    let d = Node::with(by_name, 4096, 0);
    let grant = d.grant(1, 0, 4096);
    let write = p.write_to(&d, grant, vec![copy(p.at(0), d.at(0), 4096)]);
    assert_eq!(p.run(write), WriteOutcome::Written);

    let v6 = DataConfig { bind_host: "::1".into(), ..DataConfig::default() };
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        let error = kvbaton_transport_tcp::data::TcpDataPlane::open(v6).err();
        assert!(matches!(error, Some(TransportError::Local { .. })), "{error:?}");
        return;
    }
    let d = Node::with(v6, 4096, 0);
    assert_eq!(&*d.plane.session().host, "::1");
    let grant = d.grant(1, 0, 4096);
    let write = p.write_to(&d, grant, vec![copy(p.at(0), d.at(0), 4096)]);
    assert_eq!(p.run(write), WriteOutcome::Written);
}
