//! Proof of the cluster key on the control plane.

mod rig;

use bytes::Bytes;
use kvbaton_actors::transport::TransportError;
use kvbaton_transport_tcp::control::{ControlConfig, TcpControl};
use kvbaton_transport_tcp::key::ClusterKey;
use rig::{Node, ask, closed, opening, run, within};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn config(key: Option<u8>, allow_stock_peers: Option<bool>) -> ControlConfig {
    ControlConfig {
        key: key.map(|byte| ClusterKey::from_bytes([byte; 32])),
        allow_stock_peers,
        // Nothing here may take that long: refusals come at once.
        connect_timeout: Duration::from_secs(3600),
        ..ControlConfig::default()
    }
}

#[test]
fn z04_who_reaches_whom() {
    const OPEN: Option<bool> = Some(true);
    let (a, b) = (Some(1), Some(2));
    // (D's key, D admits stock, P's key, P admits stock, whether it works)
    let matrix = [
        (None, None, None, None, true),
        (a, None, a, None, true),
        (a, None, b, None, false),
        (a, OPEN, b, OPEN, false),
        (a, None, None, None, false),
        (None, None, a, None, false),
        (a, OPEN, None, None, true),
        (None, None, a, OPEN, true),
        (a, OPEN, a, None, true),
        // Without a key there is nothing to tell peers apart by.
        (None, Some(false), None, Some(false), true),
    ];
    for case @ (d_key, d_open, p_key, p_open, works) in matrix {
        run(async {
            let mut node = Node::listen(config(p_key, p_open)).await;
            let control = TcpControl::new(config(d_key, d_open));
            let serve = async {
                while let Some(inbound) = node.inbox.recv().await {
                    (inbound.answer)(inbound.payload);
                }
            };
            let outcome = tokio::select! {
                outcome = ask(&control, &node.address, "pull") => outcome,
                () = serve => unreachable!("the node listens on"),
            };
            if works {
                assert_eq!(outcome.unwrap(), "pull", "{case:?}");
                assert_eq!(node.control.counters().not_authentic, 0, "{case:?}");
            } else {
                let error = outcome.unwrap_err();
                assert!(matches!(error, TransportError::NotAuthentic { .. }), "{case:?}: {error}");
                let quiet = node.control.counters().received == 0;
                assert!(quiet, "{case:?}: an unproven message was delivered");
            }
        });
    }
}

#[test]
fn z04_both_sides_tell_a_missing_proof() {
    run(async {
        for (d_key, p_key) in [(Some(1), None), (None, Some(1)), (Some(1), Some(2))] {
            let node = Node::echo(config(p_key, None)).await;
            let control = TcpControl::new(config(d_key, None));
            let error = ask(&control, &node.address, "pull").await.unwrap_err();
            assert!(error.to_string().contains("cluster_key"), "{error}");
            node.until("the listener's count", |c| c.not_authentic == 1).await;
        }
    });
}

#[test]
fn z04_a_stock_client_is_refused_unless_admitted() {
    run(async {
        let node = Node::echo(config(Some(1), None)).await;
        let mut stream = node.dealer().await;
        stream.write_all(b"\0\x04pull").await.unwrap();
        let said = closed(stream).await;
        assert!(said.windows(5).any(|w| w == b"ERROR"), "it is told why");
        node.until("the count", |c| c.not_authentic == 1 && c.received == 0).await;

        let node = Node::echo(config(Some(1), Some(true))).await;
        let mut stream = node.dealer().await;
        stream.write_all(b"\0\x04pull").await.unwrap();
        node.until("an answer", |c| c.answered == 1).await;
    });
}

#[test]
fn z04_many_messages_in_both_directions_carry_proof() {
    run(async {
        let mut node = Node::listen(config(Some(1), None)).await;
        let control = TcpControl::new(config(Some(1), None));
        use futures_util::StreamExt;
        use kvbaton_actors::transport::ControlPlane;
        let mut answers = control.request(&node.address, Bytes::from(vec![1; 2 << 20]));
        let serve = async {
            let inbound = node.next().await;
            for i in 0..20_u8 {
                (inbound.answer)(Bytes::from(vec![i; 1000]));
            }
            inbound
        };
        let read = async {
            for i in 0..20_u8 {
                let answer = within("an answer", answers.next()).await.unwrap().unwrap();
                assert_eq!(answer, vec![i; 1000]);
            }
        };
        let (inbound, ()) = tokio::join!(serve, read);
        assert_eq!(inbound.payload.len(), 2 << 20);
    });
}

/// Passes one connection on to `target`, after `change` has had each side's bytes;
/// returns what the dialer sent.
async fn between(listener: TcpListener, target: String, flip: Option<usize>) -> Vec<u8> {
    let (mut dialer, _) = listener.accept().await.unwrap();
    let mut node = TcpStream::connect(target).await.unwrap();
    let (mut sent, mut from_dialer, mut from_node) = (Vec::new(), [0; 4096], [0; 4096]);
    loop {
        tokio::select! {
            n = dialer.read(&mut from_dialer) => {
                let Ok(n @ 1..) = n else { break };
                let start = sent.len();
                sent.extend(&from_dialer[..n]);
                let mut onward = sent[start..].to_vec();
                if let Some(at) = flip.filter(|at| (start..start + n).contains(at)) {
                    onward[at - start] ^= 1;
                }
                if node.write_all(&onward).await.is_err() { break }
            }
            n = node.read(&mut from_node) => {
                let Ok(n @ 1..) = n else { break };
                if dialer.write_all(&from_node[..n]).await.is_err() { break }
            }
        }
    }
    sent
}

async fn recorded(node: &Node, flip: Option<usize>) -> (Result<Bytes, TransportError>, Vec<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let control = TcpControl::new(config(Some(1), None));
    tokio::join!(ask(&control, &address, "pull"), between(listener, node.socket_address(), flip))
}

#[test]
fn z04_a_replayed_conversation_proves_nothing() {
    run(async {
        let node = Node::echo(config(Some(1), None)).await;
        let (answer, sent) = recorded(&node, None).await;
        assert_eq!(answer.unwrap(), "pull");
        let mut stream = node.connect().await;
        stream.write_all(&sent).await.unwrap();
        closed(stream).await;
        node.until("the refusal", |c| c.not_authentic == 1).await;
        assert_eq!(node.control.counters().received, 1);
    });
}

#[test]
fn z04_a_message_repeated_within_its_connection_is_refused() {
    run(async {
        let node = Node::echo(config(Some(1), None)).await;
        // The dialer's last bytes are tag and payload; a man in the middle sends them twice.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("tcp://{}", listener.local_addr().unwrap());
        let control = TcpControl::new(config(Some(1), None));
        let target = node.socket_address();
        let middle = async {
            let (mut dialer, _) = listener.accept().await.unwrap();
            let mut onward = TcpStream::connect(target).await.unwrap();
            let message = 2 + 32 + 2 + 4;
            let mut sent = Vec::new();
            let mut chunk = [0; 4096];
            let (mut back, mut forth) = onward.split();
            let (mut read, mut write) = dialer.split();
            let forward = async {
                while !sent.ends_with(b"pull") {
                    let n = read.read(&mut chunk).await.unwrap();
                    sent.extend(&chunk[..n]);
                    forth.write_all(&chunk[..n]).await.unwrap();
                }
                let again = sent[sent.len() - message..].to_vec();
                forth.write_all(&again).await.unwrap();
            };
            tokio::join!(forward, tokio::io::copy(&mut back, &mut write)).1.ok();
        };
        let (_, ()) = tokio::join!(ask(&control, &address, "pull"), within("the close", middle));
        node.until("the refusal", |c| c.not_authentic == 1).await;
        assert_eq!(node.control.counters().received, 1);
    });
}

#[test]
fn z04_a_changed_byte_is_noticed() {
    run(async {
        let node = Node::echo(config(Some(1), None)).await;
        let (_, sent) = recorded(&node, None).await;
        // The last byte of the payload, the first of the tag, the last of the nonce.
        for back in [1, 4 + 2 + 32, 4 + 2 + 32 + 2 + 1] {
            let before = node.control.counters();
            let (outcome, _) = recorded(&node, Some(sent.len() - back)).await;
            let error = outcome.unwrap_err();
            assert!(matches!(error, TransportError::NotAuthentic { .. }), "{error}");
            assert_eq!(node.control.counters().received, before.received);
        }
    });
}

#[test]
fn z04_a_listener_that_echoes_our_own_proof_is_refused() {
    run(async {
        let mirror = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("tcp://{}", mirror.local_addr().unwrap());
        let control = TcpControl::new(config(Some(1), None));
        let reflect = async {
            let (mut stream, _) = mirror.accept().await.unwrap();
            let mut chunk = [0; 4096];
            let mut handshake = true;
            while let Ok(n @ 1..) = stream.read(&mut chunk).await {
                let mut bytes = chunk[..n].to_vec();
                if std::mem::take(&mut handshake) {
                    // It plays the ROUTER, with the dialer's own nonce.
                    let at = bytes.windows(6).position(|w| w == b"DEALER").unwrap();
                    bytes[at..at + 6].copy_from_slice(b"ROUTER");
                }
                if stream.write_all(&bytes).await.is_err() {
                    break;
                }
            }
        };
        let (outcome, ()) = tokio::join!(ask(&control, &address, "pull"), reflect);
        let error = outcome.unwrap_err();
        assert!(matches!(error, TransportError::NotAuthentic { .. }), "{error}");
    });
}

#[test]
fn z04_a_stripped_offer_is_no_way_around_the_key() {
    run(async {
        let node = Node::echo(config(Some(1), None)).await;
        let mut stream = node.connect().await;
        stream.write_all(&opening()).await.unwrap();
        closed(stream).await;
        node.until("the refusal", |c| c.not_authentic == 1).await;
    });
}
