//! Peers that do not keep to the protocol `[Z01, Z03]`, and peers that die.

use crate::rig::Pair;
use kvbaton_actors::transport::{TransportError, WriteOutcome};
use kvbaton_core::ids::SessionAddress;
use kvbaton_data_conformance::{PATIENCE, copy, wait_until};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// The greeting of a client without a key.
fn greeting() -> Vec<u8> {
    let mut bytes = b"kvbaton\x01".to_vec();
    bytes.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend([7; 32]);
    bytes
}

fn dial(pair: &Pair) -> TcpStream {
    let session = pair.d.node.plane.session();
    let stream = TcpStream::connect((&*session.host, session.port)).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("sets");
    stream
}

#[test]
fn z01_whatever_a_client_sends_costs_its_own_connection() {
    let pair = Pair::new(4);
    let greeted = |more: &[u8]| [&greeting()[..], b"kvbrdma\x01", more].concat();
    let sent: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        [&greeting()[..], b"whatever"].concat(),
        greeted(&[0, 0, 0, 0]),
        greeted(&[0xff; 64]),
        greeted(&[1, 0, 0, 0, 9]),
        greeted(&[1, 0, 0, 0, 5]),
        // Connects with no queue pair, and with one out of bounds.
        greeted(&[[26, 0, 0, 0, 1].as_slice(), &[0; 25]].concat()),
        greeted(&[[55, 0, 0, 0, 1].as_slice(), &[0; 24], &[1], &[0xff; 29]].concat()),
    ];
    let count = sent.len() as u64;
    for bytes in sent {
        let mut client = dial(&pair);
        client.write_all(&bytes).expect("sends");
        let mut rest = Vec::new();
        // Ends with the connection, or with its reset.
        let _ = client.read_to_end(&mut rest);
    }
    wait_until(|| pair.d.node.plane.counters().refused_connections >= count);
    let silent = dial(&pair);
    assert_eq!(pair.run(), WriteOutcome::Written, "a silent client delays nobody");
    drop(silent);
    pair.finish();
}

/// A receiver that greets and then does what the test wants.
fn raw_receiver(serve: impl FnOnce(TcpStream) + Send + 'static) -> SessionAddress {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("sets");
        stream.read_exact(&mut [0; 48]).expect("a greeting");
        let mut answer = greeting();
        answer.extend(b"kvb-okay");
        stream.write_all(&answer).expect("sends");
        serve(stream);
    });
    SessionAddress { host: "127.0.0.1".into(), port }
}

fn towards(pair: &Pair, session: SessionAddress) -> WriteOutcome {
    let (p, d) = (&pair.p.node, &pair.d.node);
    let mut write = p.write_to(d, pair.grant, vec![copy(p.at(0), d.at(0), 8)]);
    write.session = session;
    p.run(write)
}

#[test]
fn z01_whatever_a_receiver_answers_is_told_and_settled() {
    let pair = Pair::with(4, |config| config.retries = 1);
    let answers: [&[u8]; 4] = [
        &[0xff; 32],
        &[1, 0, 0, 0, 99],
        // An answer to another attempt, and then nothing.
        &[10, 0, 0, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9, 0],
        &[0, 0, 0, 0],
    ];
    for answer in answers {
        let session = raw_receiver(move |mut stream| {
            // The client may have closed already.
            let _ = stream.write_all(answer);
        });
        match towards(&pair, session) {
            WriteOutcome::Failed { settled: true, .. } => {}
            other => panic!("{other:?}"),
        }
    }
    pair.finish();
}

#[test]
fn keys_that_are_not_rdma_keys_say_what_the_peer_runs() {
    let pair = Pair::new(4);
    let (p, d) = (&pair.p.node, &pair.d.node);
    let mut write = p.write_to(d, pair.grant, vec![copy(p.at(0), d.at(0), 8)]);
    write.keys = std::sync::Arc::from([]);
    match p.run(write) {
        WriteOutcome::Failed { error: TransportError::Malformed { what, .. }, settled: true } => {
            assert!(what.contains("does not run the RDMA transport"), "{what}");
        }
        other => panic!("{other:?}"),
    }
    pair.finish();
}

#[test]
fn p12_a_peer_that_stopped_is_noticed_within_the_bound() {
    let pair = Pair::with(4, |config| {
        config.dead_after = Duration::from_millis(100);
        config.connect_timeout = Duration::from_millis(200);
    });
    let session = raw_receiver(|mut stream| {
        let mut all = Vec::new();
        // Reads and never answers, until the client gives up.
        let _ = stream.read_to_end(&mut all);
    });
    match towards(&pair, session) {
        WriteOutcome::Failed { error: TransportError::TimedOut { .. }, settled: true } => {}
        other => panic!("{other:?}"),
    }
    pair.finish();
}

/// Asks for a queue pair as a sender would, made by hand; the kind of the answer, and its
/// ninth byte, the reason of a refusal.
fn connect_by_hand(pair: &Pair, instance: u64, attempt: u64) -> (TcpStream, u8, u8) {
    let mut frame = vec![53, 0, 0, 0, 1];
    let generation = pair.d.node.registration.generation.0;
    for number in [instance, attempt, generation] {
        frame.extend(number.to_le_bytes());
    }
    frame.push(1);
    frame.extend([7, 0, 0, 0, 9, 0, 0, 0]);
    frame.extend([0; 16]);
    frame.extend([0, 0, 3]);
    let mut client = dial(pair);
    client.write_all(&[&greeting()[..], b"kvbrdma\x01", &frame].concat()).expect("sends");
    // A greeting and a welcome, then a frame.
    client.read_exact(&mut [0; 48 + 8]).expect("a greeting");
    let mut len = [0; 4];
    client.read_exact(&mut len).expect("an answer");
    let mut body = vec![0; u32::from_le_bytes(len) as usize];
    client.read_exact(&mut body).expect("an answer");
    (client, body[0], body[9])
}

#[test]
fn f70_the_latest_attempt_of_a_sender_is_served_and_an_earlier_one_is_cut_off() {
    const ACCEPT: u8 = 1;
    const REFUSE: u8 = 2;
    const LATE: u8 = 2;
    let pair = Pair::new(4);
    let queue_pairs = || pair.d.fabric.device(0).live().queue_pairs;
    let (mut first, answer, _) = connect_by_hand(&pair, 5, 10);
    assert_eq!((answer, queue_pairs()), (ACCEPT, 1));
    let (_late, answer, why) = connect_by_hand(&pair, 5, 9);
    assert_eq!((answer, why), (REFUSE, LATE));
    let (second, answer, _) = connect_by_hand(&pair, 5, 11);
    assert_eq!(answer, ACCEPT);
    let mut rest = Vec::new();
    first.read_to_end(&mut rest).expect("ends");
    assert_eq!(rest, [1, 0, 0, 0, 6], "it is told that it is fenced");
    wait_until(|| queue_pairs() == 1);
    // Another process at the same address is another sender.
    let (other, answer, _) = connect_by_hand(&pair, 6, 1);
    assert_eq!(answer, ACCEPT);
    wait_until(|| queue_pairs() == 2);
    drop((first, second, other));
    wait_until(|| queue_pairs() == 0);
    pair.finish();
}
