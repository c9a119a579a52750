//! Requests and answers over the control plane.

mod rig;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::join_all;
use kvbaton_actors::transport::{ControlPlane, TransportError};
use kvbaton_transport_tcp::control::{ControlConfig, TcpControl};
use rig::{Node, ask, closed, run, within};
use std::time::Duration;
use tokio::net::TcpListener;

fn control() -> TcpControl {
    TcpControl::new(ControlConfig::default())
}

#[test]
fn a_request_arrives_whole_and_its_answers_in_order() {
    run(async {
        let mut node = Node::listen(ControlConfig::default()).await;
        let control = control();
        let mut answers = control.request(&node.address, Bytes::from_static(b"pull"));
        let serve = async {
            let inbound = node.next().await;
            assert_eq!(inbound.payload, "pull");
            assert!(inbound.peer.unwrap().ip().is_loopback());
            let answer = inbound.answer;
            // From another thread, as a data plane's completion does.
            std::thread::spawn(move || {
                for i in 0..50_u8 {
                    answer(Bytes::from(vec![i; usize::from(i)]));
                }
            });
        };
        let read = async {
            for i in 0..50_u8 {
                let answer = within("an answer", answers.next()).await.unwrap().unwrap();
                assert_eq!(answer, vec![i; usize::from(i)]);
            }
        };
        tokio::join!(serve, read);
    });
}

#[test]
fn messages_of_every_size_class_arrive() {
    run(async {
        let node = Node::echo(ControlConfig::default()).await;
        // Around the short frame's bound, a socket's buffers, a large stock layout, the bound.
        for len in [0, 1, 255, 256, 65_535, 65_536, 65_537, 2 << 20, 16 << 20] {
            let payload = Bytes::from(vec![7; len]);
            let answer = ask(&control(), &node.address, payload.clone()).await.unwrap();
            assert!(answer == payload, "{len} bytes came back otherwise");
        }
    });
}

#[test]
fn a_message_above_the_bound_is_refused_before_it_is_sent() {
    run(async {
        let mut config = ControlConfig::default();
        config.limits.max_frame = 1000;
        let node = Node::echo(config.clone()).await;
        let control = TcpControl::new(config);
        let error = ask(&control, &node.address, vec![0; 1001]).await.unwrap_err();
        assert!(matches!(error, TransportError::Local { .. }), "{error}");
        ask(&control, &node.address, vec![0; 1000]).await.unwrap();
        assert_eq!(node.control.counters().accepted, 1);
    });
}

#[test]
fn three_hundred_short_lived_requests_each_get_their_own_answer() {
    run(async {
        let node = Node::echo(ControlConfig::default()).await;
        let control = control();
        let requests = (0..300_u32).map(|i| {
            let (control, address) = (&control, &node.address);
            async move {
                let payload = Bytes::from(i.to_le_bytes().to_vec());
                assert_eq!(ask(control, address, payload.clone()).await.unwrap(), payload);
            }
        });
        join_all(requests).await;
        assert_eq!(node.control.counters().answered, 300);
    });
}

#[test]
fn p12_a_dead_peer_ends_its_streams_at_once() {
    run(async {
        let mut node = Node::listen(ControlConfig::default()).await;
        let control = control();
        let mut answers = control.request(&node.address, Bytes::from_static(b"pull"));
        let first = async {
            let inbound = node.next().await;
            (inbound.answer)(Bytes::from_static(b"CONTINUE"));
            within("the answer's way out", async {
                while node.control.counters().answered == 0 {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            drop(node);
            inbound.answer
        };
        let (answer, first) = tokio::join!(first, answers.next());
        assert_eq!(first.unwrap().unwrap(), "CONTINUE");
        let error = within("the end", answers.next()).await.unwrap().unwrap_err();
        assert!(matches!(error, TransportError::Disconnected { .. }), "{error}");
        assert!(answers.next().await.is_none(), "nothing comes after an error");
        answer(Bytes::from_static(b"too late"));
    });
}

#[test]
fn p12_a_dead_port_is_an_error_at_once() {
    run(async {
        let probe = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("tcp://{}", probe.local_addr().unwrap());
        drop(probe);
        // Only a refusal can be that early.
        let connect_timeout = Duration::from_secs(3600);
        let config = ControlConfig { connect_timeout, ..ControlConfig::default() };
        let error = ask(&TcpControl::new(config), &address, "pull").await.unwrap_err();
        assert!(matches!(error, TransportError::Unreachable { .. }), "{error}");
    });
}

#[test]
fn p12_a_peer_that_never_greets_costs_the_connect_bound_only() {
    run(async {
        let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("tcp://{}", mute.local_addr().unwrap());
        let connect_timeout = Duration::from_millis(50);
        let config = ControlConfig { connect_timeout, ..ControlConfig::default() };
        let error = ask(&TcpControl::new(config), &address, "pull").await.unwrap_err();
        assert!(matches!(error, TransportError::TimedOut { .. }), "{error}");
    });
}

#[test]
fn dropping_a_stream_closes_its_connection() {
    run(async {
        let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("tcp://{}", mute.local_addr().unwrap());
        let control = control();
        let mut answers = control.request(&address, Bytes::from_static(b"pull"));
        let accepted = tokio::select! {
            accepted = mute.accept() => accepted.unwrap().0,
            _ = answers.next() => unreachable!("nobody greets it"),
        };
        drop(answers);
        closed(accepted).await;
    });
}

#[test]
fn an_answer_to_a_peer_that_left_is_dropped_and_counted() {
    run(async {
        let mut node = Node::listen(ControlConfig::default()).await;
        let control = control();
        let mut answers = control.request(&node.address, Bytes::from_static(b"pull"));
        let inbound = tokio::select! {
            inbound = node.next() => inbound,
            _ = answers.next() => unreachable!("nobody answers"),
        };
        drop(answers);
        // The first may still be taken by the socket; once it is known dead none is.
        within("a dropped answer", async {
            while node.control.counters().dropped_answers == 0 {
                (inbound.answer)(Bytes::from_static(b"FINISH"));
                tokio::task::yield_now().await;
            }
        })
        .await;
    });
}

#[test]
fn f66_a_wildcard_address_is_never_advertised() {
    run(async {
        let mut config = ControlConfig { host: "0.0.0.0".to_owned(), ..Default::default() };
        let listen = TcpControl::new(config.clone()).listen(std::rc::Rc::new(|_| {})).await;
        assert!(listen.unwrap_err().to_string().contains("advertise_host"));
        config.advertise_host = Some("localhost".to_owned());
        let node = Node::echo(config).await;
        assert!(node.address.starts_with("tcp://localhost:"), "{}", node.address);
        assert_eq!(ask(&control(), &node.address, "pull").await.unwrap(), "pull");
    });
}

#[test]
fn ipv6_is_advertised_in_brackets_and_reached() {
    run(async {
        let config = ControlConfig { host: "::1".to_owned(), ..Default::default() };
        let node = Node::echo(config).await;
        assert!(node.address.starts_with("tcp://[::1]:"), "{}", node.address);
        assert_eq!(ask(&control(), &node.address, "pull").await.unwrap(), "pull");
    });
}

#[test]
fn z05_a_request_goes_to_allowed_addresses_only() {
    run(async {
        for address in ["tcp://8.8.8.8:80", "tcp://[::ffff:8.8.8.8]:80", "tcp://0.0.0.0:80"] {
            let error = ask(&control(), address, "pull").await.unwrap_err();
            assert!(matches!(error, TransportError::AddressNotAllowed { .. }), "{error}");
        }
        for address in ["ipc:///tmp/x", "tcp://127.0.0.1", "tcp://127.0.0.1:0", "tcp://a b:1", ""] {
            let error = ask(&control(), address, "pull").await.unwrap_err();
            assert!(matches!(error, TransportError::Unreachable { .. }), "{error}");
        }
    });
}
