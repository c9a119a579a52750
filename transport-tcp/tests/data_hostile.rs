//! Clients that send garbage, too much, or nothing, and peers without the cluster key.

mod data_kit;

use data_kit::{Node, PATIENCE, RawClient, RawFrame, copy, dial, greeting, raw_server};
use kvbaton_actors::transport::{DataPlane, TransportError, WriteOutcome};
use kvbaton_core::ids::{Address, Generation, Grant};
use kvbaton_transport_tcp::data::DataConfig;
use std::io::{Read, Write};
use std::sync::mpsc;
use std::time::Duration;

fn assert_serves(d: &Node, grant: u64) {
    let p = Node::new(4096, 5);
    let grant = d.grant(grant, 0, 4096);
    let write = p.write_to(d, grant, vec![copy(p.at(0), d.at(0), 4096)]);
    assert_eq!(p.run(write), WriteOutcome::Written);
}

fn is_closed(stream: &mut std::net::TcpStream) -> bool {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).is_ok_and(|_| rest.is_empty())
        || stream.read(&mut [0]).is_ok_and(|got| got == 0)
}

#[test]
fn z01_garbage_and_oversized_lengths_cost_one_connection_each_and_are_counted() {
    let d = Node::new(4096, 0);
    let port = d.plane.session().port;
    let first_frames: [&[u8]; 4] =
        [b"GET / HTTP/1.1\r\n\r\n", &[0xff; 64], &(1_u64 << 20 | 1).to_le_bytes(), &[0; 8]];
    for (index, bytes) in first_frames.into_iter().enumerate() {
        let mut client = dial(port);
        client.write_all(bytes).expect("sends");
        assert!(is_closed(&mut client), "{bytes:?}");
        d.wait_for(|counters| counters.refused_connections == index as u64 + 1);
    }
    assert_serves(&d, 1);
}

#[test]
fn z01_malformed_frames_after_the_greeting_cost_that_connection_only() {
    let d = Node::new(4096, 0);
    let grant = d.grant(9, 0, 4096);
    let good = RawFrame {
        last: true,
        generation: Some(d.generation),
        grant: Some(grant),
        batch: 1,
        table: vec![(d.at(0).0, 16)],
        payload: 16,
    };
    let mut kind = good.encode();
    kind[0] = 9;
    let mut entries = good.encode();
    entries[2..4].copy_from_slice(&u16::MAX.to_le_bytes());
    let payload = RawFrame { payload: u64::MAX, ..good.clone() }.encode();
    let longer = RawFrame { payload: 15, ..good.clone() }.encode();
    let shorter = RawFrame { payload: 17, ..good.clone() }.encode();
    let wraps = RawFrame { table: vec![(1, u64::MAX), (1, 17)], ..good.clone() }.encode();
    let all = [kind, entries, payload, longer, shorter, wraps];
    for (index, bytes) in all.iter().enumerate() {
        let mut client = RawClient::connect(&d);
        client.send(bytes);
        assert!(is_closed(&mut client.0), "{index}");
        d.wait_for(|counters| counters.refused_connections == index as u64 + 1);
    }
    assert_eq!(d.read(), vec![0; 4096]);
    assert_serves(&d, 1);
}

#[test]
fn z03_more_silent_clients_than_there_is_room_for_delay_nobody() {
    let config =
        DataConfig { max_connections: 4, handshake_timeout: PATIENCE, ..DataConfig::default() };
    let d = Node::with(config, 4096, 0);
    let silent: Vec<_> = (0..16).map(|_| dial(d.plane.session().port)).collect();
    assert_serves(&d, 1);
    drop(silent);
}

#[test]
fn z03_a_client_that_greets_too_slowly_is_closed() {
    let config =
        DataConfig { handshake_timeout: Duration::from_millis(50), ..DataConfig::default() };
    let d = Node::with(config, 4096, 0);
    let mut client = dial(d.plane.session().port);
    client.write_all(&greeting(false)[..12]).expect("sends");
    assert!(is_closed(&mut client));
    d.wait_for(|counters| counters.refused_connections == 1);
}

#[test]
fn z04_only_the_same_key_or_none_on_both_sides_gets_through() {
    let keys = [None, Some([1; 32]), Some([2; 32])];
    for ours in keys {
        for theirs in keys {
            let keyed = |key| DataConfig { cluster_key: key, ..DataConfig::default() };
            let (p, d) = (Node::with(keyed(ours), 64, 5), Node::with(keyed(theirs), 64, 0));
            let grant = d.grant(1, 0, 64);
            let outcome = p.run(p.write_to(&d, grant, vec![copy(p.at(0), d.at(0), 64)]));
            if ours == theirs {
                assert_eq!(outcome, WriteOutcome::Written);
                continue;
            }
            let WriteOutcome::Failed { error, settled: true } = outcome else {
                panic!("{ours:?} towards {theirs:?}: {outcome:?}");
            };
            let expected = match (ours, theirs) {
                (None, _) => "it requires a key and none is set here",
                (_, None) => "it has no key set",
                _ => "its key is another one",
            };
            assert!(
                matches!(error, TransportError::NotAuthentic { what, .. } if what == expected),
                "{error}"
            );
            d.wait_for(|counters| counters.refused_connections == 1);
            assert_eq!(d.read(), [0; 64]);
        }
    }
}

#[test]
fn z04_a_replayed_proof_is_worth_nothing() {
    let key = Some([1; 32]);
    let d = Node::with(DataConfig { cluster_key: key, ..DataConfig::default() }, 64, 0);
    let mut proofs = Vec::new();
    for _ in 0..2 {
        let mut client = dial(d.plane.session().port);
        client.write_all(&greeting(true)).expect("sends");
        let mut answer = [0; 48 + 32];
        client.read_exact(&mut answer).expect("a greeting and a proof");
        // Its own proof, reflected.
        client.write_all(&answer[48..]).expect("sends");
        assert!(is_closed(&mut client));
        proofs.push(answer[48..].to_vec());
    }
    assert_ne!(proofs[0], proofs[1], "the challenge is fresh");
    d.wait_for(|counters| counters.refused_connections == 2);
}

#[test]
fn a_server_of_another_protocol_is_told_apart() {
    let p = Node::new(4096, 1);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let port = listener.local_addr().expect("bound").port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepts");
        stream.read_exact(&mut [0; 48]).expect("a greeting");
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("sends");
    });
    let session = kvbaton_core::ids::SessionAddress { host: "127.0.0.1".into(), port };
    let copies = vec![copy(p.at(0), Address(8), 16)];
    match p.run(p.write(session, Some(Generation(1)), Some(Grant(1)), copies)) {
        WriteOutcome::Failed { error: TransportError::Malformed { .. }, settled: true } => {}
        other => panic!("{other:?}"),
    }
    server.join().expect("ends");
}

#[test]
fn z01_a_server_that_acknowledges_what_was_never_sent_is_dropped() {
    let p = Node::new(4096, 1);
    let (done, is_done) = mpsc::channel::<()>();
    let (session, server) = raw_server(move |mut stream| {
        stream.read_exact(&mut [0; 56]).expect("a frame");
        let mut ack = [0; 24];
        ack[0] = 1;
        ack[8] = 77;
        stream.write_all(&ack).expect("sends");
        is_done.recv_timeout(PATIENCE).expect("waits");
    });
    let copies = vec![copy(p.at(0), Address(8), 16)];
    match p.run(p.write(session, Some(Generation(1)), Some(Grant(1)), copies)) {
        WriteOutcome::Failed { error: TransportError::Malformed { .. }, settled: false } => {}
        other => panic!("{other:?}"),
    }
    done.send(()).expect("waits");
    server.join().expect("ends");
}
