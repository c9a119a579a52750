//! A node's control plane on the test's own thread, and raw clients to torment it with.
#![allow(dead_code)] // each test file uses its part

use bytes::Bytes;
use futures_util::StreamExt;
use kvbaton_actors::transport::{ControlPlane, Inbound, TransportError};
use kvbaton_transport_tcp::control::{ControlConfig, ControlCounters, TcpControl};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Bound on everything that ought to happen; reached only when a test fails.
pub const BOUND: Duration = Duration::from_secs(30);

/// Runs a test as a node runs: one thread, local tasks.
pub fn run<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bounded = async { tokio::time::timeout(4 * BOUND, test).await.expect("the test hangs") };
    tokio::task::LocalSet::new().block_on(&runtime, bounded)
}

pub async fn within<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(BOUND, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what} takes for ever"),
    }
}

/// A listening node.
pub struct Node {
    pub control: TcpControl,
    pub address: String,
    pub inbox: mpsc::UnboundedReceiver<Inbound>,
}

impl Node {
    pub async fn listen(config: ControlConfig) -> Self {
        let (arrived, inbox) = mpsc::unbounded_channel();
        let control = TcpControl::new(config);
        let deliver = move |inbound| drop(arrived.send(inbound));
        let address = control.listen(Rc::new(deliver)).await.unwrap();
        Self { control, address, inbox }
    }

    /// A node whose inbox answers each message with the message itself.
    pub async fn echo(config: ControlConfig) -> Self {
        let control = TcpControl::new(config);
        let echo = |inbound: Inbound| (inbound.answer)(inbound.payload);
        let address = control.listen(Rc::new(echo)).await.unwrap();
        Self { control, address, inbox: mpsc::unbounded_channel().1 }
    }

    pub async fn next(&mut self) -> Inbound {
        within("a message", self.inbox.recv()).await.unwrap()
    }

    pub fn socket_address(&self) -> String {
        self.address.strip_prefix("tcp://").unwrap().to_owned()
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.socket_address()).await.unwrap()
    }

    /// A raw client that has shaken hands.
    pub async fn dealer(&self) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(&opening()).await.unwrap();
        stream
    }

    /// Waits until the counters look right.
    pub async fn until(&self, what: &str, right: impl Fn(&ControlCounters) -> bool) {
        within(what, async {
            while !right(&self.control.counters()) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// First answer to one request.
pub async fn ask(
    control: &TcpControl,
    address: &str,
    payload: impl Into<Bytes>,
) -> Result<Bytes, TransportError> {
    let mut answers = control.request(address, payload.into());
    within("an answer", answers.next()).await.expect("an answer or an error")
}

/// Greeting and READY of a DEALER, byte for byte as libzmq sends them.
pub fn opening() -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[0] = 0xff;
    bytes[8] = 1;
    bytes[9] = 0x7f;
    bytes[10] = 3;
    bytes[11] = 1;
    bytes[12..16].copy_from_slice(b"NULL");
    let mut ready = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER".to_vec();
    ready.extend(b"\x08Identity\0\0\0\0");
    bytes.extend([4, u8::try_from(ready.len()).unwrap()]);
    bytes.extend(ready);
    bytes
}

/// Whether the peer closes: reads up to the end.
pub async fn closed(mut stream: TcpStream) -> Vec<u8> {
    let mut seen = Vec::new();
    let mut chunk = [0; 4096];
    within("a close", async {
        while let Ok(n @ 1..) = stream.read(&mut chunk).await {
            seen.extend(&chunk[..n]);
        }
    })
    .await;
    seen
}
