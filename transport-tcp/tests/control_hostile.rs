//! Hostile, oversized and silent clients cost their own connection only.

mod rig;

use bytes::Bytes;
use futures_util::StreamExt;
use kvbaton_actors::transport::{ControlPlane, TransportError};
use kvbaton_transport_tcp::control::{ControlConfig, TcpControl};
use proptest::prelude::*;
use rig::{Node, ask, closed, opening, run, within};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn works(node: &Node) {
    let control = TcpControl::new(ControlConfig::default());
    assert_eq!(ask(&control, &node.address, "pull").await.unwrap(), "pull");
}

/// A header of a frame with a 64-bit length.
fn claim(flags: u8, len: u64) -> Vec<u8> {
    let mut header = vec![flags | 2];
    header.extend(len.to_be_bytes());
    header
}

async fn reading(stream: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    within("bytes", stream.read_exact(&mut bytes)).await.unwrap();
    bytes
}

#[test]
fn z01_a_claimed_length_is_refused_before_it_is_believed() {
    run(async {
        let node = Node::echo(ControlConfig::default()).await;
        let claims = [u64::MAX, 1 << 62, 1 << 40, (16 << 20) + 1];
        for (i, &len) in claims.iter().enumerate() {
            let mut stream = node.dealer().await;
            stream.write_all(&claim(0, len)).await.unwrap();
            closed(stream).await;
            node.until("the count", |c| c.oversized == i as u64 + 1).await;
        }
        // Before the handshake too, where commands are bounded more tightly.
        let mut stream = node.connect().await;
        stream.write_all(&opening()[..64]).await.unwrap();
        stream.write_all(&claim(4, 5000)).await.unwrap();
        closed(stream).await;
        node.until("the count", |c| c.oversized == 5).await;
        works(&node).await;
    });
}

#[test]
fn z01_foreign_protocols_are_closed_at_once() {
    run(async {
        let node = Node::echo(ControlConfig::default()).await;
        let mut plain = opening();
        plain[12..17].copy_from_slice(b"PLAIN");
        let mut old = opening();
        old[10] = 2;
        let req = String::from_utf8_lossy(&opening()[64..]).replace("DEALER", "SOCKET");
        let mut foreign_type = opening()[..64].to_vec();
        foreign_type.extend(req.as_bytes());
        let mut early = opening()[..64].to_vec();
        early.extend(b"\0\x04pull");
        let mut flags = opening();
        flags.extend(b"\x08\x01x");
        let mut command = opening();
        command.extend(b"\x04\x01\xff");
        let cases: [&[u8]; 7] =
            [b"GET / HTTP/1.1\r\n\r\n", &plain, &old, &foreign_type, &early, &flags, &command];
        for (i, bytes) in cases.iter().enumerate() {
            let mut stream = node.connect().await;
            stream.write_all(bytes).await.unwrap();
            closed(stream).await;
            node.until("the count", |c| c.malformed == i as u64 + 1).await;
        }
        works(&node).await;
    });
}

#[test]
fn z01_a_message_of_other_shape_is_dropped_and_its_connection_lives() {
    run(async {
        let node = Node::echo(ControlConfig::default()).await;
        let mut stream = node.dealer().await;
        stream.write_all(b"\x01\0\x01\x01a\0\x01b").await.unwrap(); // three parts
        stream.write_all(b"\0\x04pull").await.unwrap();
        node.until("an answer", |c| c.answered == 1).await;
        assert_eq!(node.control.counters().misshapen, 1);
        let greeting = reading(&mut stream, 64 + 2).await;
        let ready = usize::from(greeting[65]);
        let rest = reading(&mut stream, ready + 6).await;
        assert!(rest.ends_with(b"\0\x04pull"), "{rest:?}");
    });
}

#[test]
fn z01_a_ping_is_answered() {
    run(async {
        let node = Node::echo(ControlConfig::default()).await;
        let mut stream = node.dealer().await;
        stream.write_all(b"\x04\x09\x04PING\0\x01ab").await.unwrap();
        let greeting = reading(&mut stream, 64 + 2).await;
        let rest = reading(&mut stream, usize::from(greeting[65]) + 9).await;
        assert!(rest.ends_with(b"\x04\x07\x04PONGab"), "{rest:?}");
    });
}

#[test]
fn z03_silent_and_stalled_clients_delay_nobody() {
    run(async {
        let node = Node::echo(ControlConfig::default()).await;
        let mut held = Vec::new();
        for i in 0..100 {
            let mut stream = node.connect().await;
            let bytes = match i % 4 {
                0 => Vec::new(),
                1 => opening()[..30].to_vec(),
                2 => opening(),
                _ => [opening(), claim(0, 1 << 20)].concat(),
            };
            stream.write_all(&bytes).await.unwrap();
            held.push(stream);
        }
        for _ in 0..20 {
            works(&node).await;
        }
    });
}

#[test]
fn z03_an_unfinished_frame_or_handshake_ends_at_its_bound() {
    run(async {
        let connect_timeout = Duration::from_millis(100);
        let mut config = ControlConfig { connect_timeout, ..ControlConfig::default() };
        config.limits.frame_timeout = Duration::from_millis(100);
        let node = Node::echo(config).await;
        closed(node.connect().await).await;
        let mut stream = node.dealer().await;
        stream.write_all(&[&claim(0, 300)[..], b"part"].concat()).await.unwrap();
        closed(stream).await;
        node.until("the count", |c| c.timed_out == 2).await;
        works(&node).await;
    });
}

#[test]
fn z03_when_full_the_oldest_silent_connection_makes_room() {
    run(async {
        let mut config = ControlConfig::default();
        config.limits.max_connections = 3;
        let mut node = Node::listen(config).await;
        // One connection waits for its answer; it must survive.
        let control = TcpControl::new(ControlConfig::default());
        let mut answers = control.request(&node.address, Bytes::from_static(b"pull"));
        let waiting = tokio::select! {
            inbound = node.next() => inbound,
            _ = answers.next() => unreachable!("nobody answers yet"),
        };
        let silent = node.connect().await;
        let mut others = Vec::new();
        for _ in 0..5 {
            others.push(node.connect().await);
        }
        closed(silent).await;
        (waiting.answer)(Bytes::from_static(b"FINISH"));
        assert_eq!(within("the answer", answers.next()).await.unwrap().unwrap(), "FINISH");
        node.until("the count", |c| c.crowded_out == 4).await;
    });
}

#[test]
fn z03_beyond_the_memory_bound_the_longest_unfinished_message_goes() {
    run(async {
        let mut config = ControlConfig::default();
        config.limits.max_buffered = 1 << 20;
        let node = Node::echo(config).await;
        let mut first = node.dealer().await;
        let half = [claim(0, 1 << 20), vec![0; 600 << 10]].concat();
        first.write_all(&half).await.unwrap();
        let mut second = node.dealer().await;
        second.write_all(&half).await.unwrap();
        closed(first).await;
        node.until("the count", |c| c.crowded_out == 1).await;
        second.write_all(&vec![0; 424 << 10]).await.unwrap();
        node.until("the second's message", |c| c.received == 1).await;
    });
}

#[test]
fn z03_a_client_that_does_not_read_its_answers_is_closed() {
    run(async {
        let mut config = ControlConfig::default();
        config.limits.max_queued_answers = 1 << 20;
        let mut node = Node::listen(config).await;
        let mut stream = node.dealer().await;
        stream.write_all(b"\0\x04pull").await.unwrap();
        let inbound = node.next().await;
        let chunk = Bytes::from(vec![0; 256 << 10]);
        within("an overflow", async {
            while node.control.counters().dropped_answers == 0 {
                (inbound.answer)(chunk.clone());
                tokio::task::yield_now().await;
            }
        })
        .await;
        closed(stream).await;
    });
}

#[test]
fn z03_unanswered_messages_of_one_connection_are_bounded() {
    run(async {
        let mut config = ControlConfig::default();
        config.limits.max_unanswered = 2;
        let mut node = Node::listen(config).await;
        let mut stream = node.dealer().await;
        stream.write_all(&b"\0\x01x".repeat(5)).await.unwrap();
        let (first, _second) = (node.next().await, node.next().await);
        // Another client's round trip: time enough for a third message, were it read.
        let mut other = node.dealer().await;
        other.write_all(b"\0\x01y").await.unwrap();
        assert_eq!(node.next().await.payload, "y");
        assert!(node.inbox.try_recv().is_err(), "a third message was taken");
        drop(first);
        assert_eq!(node.next().await.payload, "x");
    });
}

#[test]
fn z01_a_hostile_listener_costs_the_request_only() {
    run(async {
        let mut ready = opening();
        let at = ready.windows(6).position(|w| w == b"DEALER").unwrap();
        ready[at..at + 6].copy_from_slice(b"ROUTER");
        let cases: [(Vec<u8>, &str); 5] = [
            (b"SSH-2.0-OpenSSH\r\n".to_vec(), "not ZMTP"),
            (opening(), "socket type"),
            ([ready.clone(), claim(0, 1 << 62)].concat(), "max_frame"),
            ([ready.clone(), b"\x01\x01a\0\x01b".to_vec()].concat(), "parts"),
            ([ready.clone(), b"\x04\x06\x05READY".to_vec(), vec![8]].concat(), "flags"),
        ];
        for (bytes, expected) in cases {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = format!("tcp://{}", listener.local_addr().unwrap());
            let control = TcpControl::new(ControlConfig::default());
            let serve = async {
                let mut stream = listener.accept().await.unwrap().0;
                stream.write_all(&bytes).await.unwrap();
                closed(stream).await;
            };
            let (error, ()) = tokio::join!(ask(&control, &address, "pull"), serve);
            let error = error.unwrap_err();
            assert!(matches!(error, TransportError::Malformed { .. }), "{error}");
            assert!(error.to_string().contains(expected), "{error}");
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever is sent, before or after a proper handshake, others are served.
    #[test]
    fn z01_any_bytes_cost_one_connection(
        shaken in any::<bool>(),
        kept in 0_usize..=110,
        bytes in prop::collection::vec(prop_oneof![0..8_u8, any::<u8>()], 0..400),
    ) {
        run(async {
            let node = Node::echo(ControlConfig::default()).await;
            let mut start = opening();
            if !shaken {
                start.truncate(kept);
            }
            let mut stream = node.connect().await;
            // The node may have closed already.
            let _ = stream.write_all(&[start, bytes].concat()).await;
            works(&node).await;
            stream.shutdown().await.ok();
            closed(stream).await;
            works(&node).await;
        });
    }
}
