//! Against another implementation of ZMTP, both ways.

mod rig;

use bytes::Bytes;
use futures_util::StreamExt;
use kvbaton_actors::transport::{ControlPlane, TransportError};
use kvbaton_transport_tcp::control::{ControlConfig, TcpControl};
use rig::{Node, run, within};
use zeromq::{DealerSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

#[test]
fn a_foreign_dealer_is_answered() {
    run(async {
        let node = Node::echo(ControlConfig::default()).await;
        let mut dealer = DealerSocket::new();
        within("a connection", dealer.connect(&node.address)).await.unwrap();
        for len in [0, 5, 300, 2 << 20] {
            let payload = Bytes::from(vec![3; len]);
            dealer.send(ZmqMessage::from(payload.clone())).await.unwrap();
            let answer = within("an answer", dealer.recv()).await.unwrap();
            assert_eq!(answer.len(), 1);
            assert!(answer.get(0) == Some(&payload), "{len} bytes came back otherwise");
        }
    });
}

#[test]
fn a_foreign_router_is_asked() {
    run(async {
        let mut router = RouterSocket::new();
        let address = router.bind("tcp://127.0.0.1:0").await.unwrap().to_string();
        let control = TcpControl::new(ControlConfig::default());
        for len in [0, 5, 65_537, 2 << 20] {
            let mut answers = control.request(&address, Bytes::from(vec![3; len]));
            let serve = async {
                let asked = within("a request", router.recv()).await.unwrap();
                assert_eq!(asked.get(1).map(Bytes::len), Some(len));
                let identity = asked.get(0).unwrap().clone();
                for text in ["CONTINUE", "FINISH"] {
                    let mut answer = ZmqMessage::from(identity.clone());
                    answer.push_back(Bytes::from(text));
                    router.send(answer).await.unwrap();
                }
            };
            let read = async {
                for text in ["CONTINUE", "FINISH"] {
                    let answer = within("an answer", answers.next()).await.unwrap().unwrap();
                    assert_eq!(answer, text);
                }
            };
            tokio::join!(serve, read);
        }
        let mut answers = control.request(&address, Bytes::from_static(b"pull"));
        tokio::select! {
            asked = router.recv() => drop(asked.unwrap()),
            _ = answers.next() => unreachable!("nobody answers"),
        }
        drop(router);
        let error = within("the end", answers.next()).await.unwrap().unwrap_err();
        assert!(matches!(error, TransportError::Disconnected { .. }), "{error}");
    });
}
