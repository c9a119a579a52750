//! Accepts HTTP connections, bounded in number and in time `[Z03]`.

use axum::serve::Listener;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

/// A listener whose connections end after a while, and where a new one takes the place
/// of the oldest once there are too many: requests here take milliseconds.
pub(super) struct Intake {
    socket: TcpListener,
    max_connections: usize,
    lifetime: Duration,
    /// Dropping one of these closes its connection. Oldest first.
    open: VecDeque<oneshot::Sender<()>>,
}

impl Intake {
    pub(super) fn new(socket: TcpListener, max_connections: usize, lifetime: Duration) -> Self {
        let open = VecDeque::new();
        Self { socket, max_connections: max_connections.max(1), lifetime, open }
    }

    fn admit(&mut self, stream: TcpStream) -> Bounded {
        self.open.retain(|connection| !connection.is_closed());
        while self.open.len() >= self.max_connections {
            self.open.pop_front();
        }
        let (keep, evicted) = oneshot::channel();
        self.open.push_back(keep);
        Bounded { stream, evicted, expiry: Box::pin(sleep(self.lifetime)) }
    }
}

impl Listener for Intake {
    type Io = Bounded;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Bounded, SocketAddr) {
        loop {
            match self.socket.accept().await {
                Ok((stream, peer)) => return (self.admit(stream), peer),
                Err(error) => {
                    tracing::warn!(%error, "the bootstrap server cannot accept a connection");
                    // No file descriptors left: the oldest connection gives its own.
                    self.open.pop_front();
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// A connection that fails once it is evicted or too old.
pub(super) struct Bounded {
    stream: TcpStream,
    evicted: oneshot::Receiver<()>,
    expiry: Pin<Box<Sleep>>,
}

impl Bounded {
    /// Whether the connection has had its time; registers for being told.
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        Pin::new(&mut self.evicted).poll(cx).is_ready() || self.expiry.as_mut().poll(cx).is_ready()
    }
}

fn over<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut)))
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_over(cx) {
            return over();
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_over(cx) {
            return over();
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
