//! Requests: one connection each, as stock decode workers make them.
//!
//! A stock P answers by connection and names no request, so the answers of two pulls on
//! one connection could not be told apart. A fresh connection costs two round trips on
//! the network: connecting, then greeting and READY in one packet. The request itself
//! must wait for the peer's READY: libzmq takes whatever comes before it has sent its
//! own for a broken handshake, and hangs up.

use super::ControlConfig;
use super::framed::{Fault, FrameReader, FrameWriter, Incoming};
use super::handshake::{Handshake, KEY_ERROR};
use super::listener::tune;
use super::zmtp::{self, Command};
use crate::key::Side;
use crate::network::Endpoint;
use bytes::Bytes;
use futures_util::stream::{self, LocalBoxStream};
use kvbaton_actors::transport::TransportError;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, timeout, timeout_at};

/// How long to look for the reason why a peer stopped taking our bytes.
const LAST_WORDS: Duration = Duration::from_millis(500);

enum State {
    Idle { config: Rc<ControlConfig>, address: String, payload: Bytes },
    Open(Box<Exchange>),
    Ended,
}

/// A stream that connects when first polled, and closes when dropped.
pub(super) fn start(
    config: Rc<ControlConfig>,
    address: String,
    payload: Bytes,
) -> LocalBoxStream<'static, Result<Bytes, TransportError>> {
    Box::pin(stream::unfold(State::Idle { config, address, payload }, step))
}

async fn step(state: State) -> Option<(Result<Bytes, TransportError>, State)> {
    let mut exchange = match state {
        State::Ended => return None,
        State::Open(exchange) => exchange,
        State::Idle { config, address, payload } => {
            match Exchange::open(&config, address, payload).await {
                Ok(exchange) => Box::new(exchange),
                Err(error) => return Some((Err(error), State::Ended)),
            }
        }
    };
    match exchange.answer().await {
        Ok(answer) => Some((Ok(answer), State::Open(exchange))),
        Err(fault) => Some((Err(explain(&exchange.address, fault)), State::Ended)),
    }
}

/// One connection with its request sent.
struct Exchange {
    address: String,
    reader: FrameReader<OwnedReadHalf>,
    writer: FrameWriter<OwnedWriteHalf>,
}

impl Exchange {
    async fn open(
        config: &ControlConfig,
        address: String,
        payload: Bytes,
    ) -> Result<Self, TransportError> {
        let max = config.limits.max_frame;
        if payload.len() > max {
            return Err(TransportError::Local {
                what: format!("cannot send {} bytes to {address}", payload.len()),
                reason: format!("the bound is {max}; raise `max_frame` on both sides"),
            });
        }
        let bound = config.connect_timeout;
        let deadline = Instant::now() + bound;
        let late = |what| TransportError::TimedOut { peer: address.clone(), what, after: bound };
        let stream = connect(config, &address, deadline).await?;
        tune(&stream);
        let (read, write) = stream.into_split();
        let mut exchange = Self {
            reader: FrameReader::new(read, &config.limits),
            writer: FrameWriter::new(write),
            address: address.clone(),
        };
        let handshake = Handshake::new(config, Side::Dialer);
        let shake = exchange.shake_hands(&handshake);
        let shaken = timeout_at(deadline, shake).await.map_err(|_| late("the ZeroMQ handshake"))?;
        shaken.map_err(|fault| explain(&address, fault))?;
        let sent = exchange.writer.message(payload).await;
        exchange.or_last_words(sent).await.map_err(|fault| explain(&address, fault))?;
        Ok(exchange)
    }

    async fn shake_hands(&mut self, handshake: &Handshake<'_>) -> Result<(), Fault> {
        let sent = self.writer.raw(&handshake.opening()).await;
        let finished = handshake.finish(&mut self.reader, &mut self.writer).await;
        // What the peer said tells more than that our bytes did not get through.
        finished.and(sent.map_err(Fault::from))
    }

    /// A peer that refuses us says why and closes; then our write fails first.
    async fn or_last_words(&mut self, sent: io::Result<()>) -> Result<(), Fault> {
        let Err(error) = sent else { return Ok(()) };
        match timeout(LAST_WORDS, self.answer()).await {
            Ok(Err(fault @ (Fault::Refused(_) | Fault::NotAuthentic(_)))) => Err(fault),
            _ => Err(error.into()),
        }
    }

    async fn answer(&mut self) -> Result<Bytes, Fault> {
        loop {
            match self.reader.next().await? {
                Incoming::Message(payload) => return Ok(payload),
                Incoming::Misshapen => return Err(zmtp::Malformed::Parts.into()),
                Incoming::Command(Command::Error(reason)) => return Err(Fault::Refused(reason)),
                Incoming::Command(Command::Ping(context)) => {
                    let mut pong = Vec::new();
                    zmtp::put_pong(&mut pong, &context);
                    self.writer.raw(&pong).await?;
                }
                Incoming::Command(_) => {}
            }
        }
    }
}

/// Connects to the first address that answers; all share the time that is left.
async fn connect(
    config: &ControlConfig,
    address: &str,
    deadline: Instant,
) -> Result<TcpStream, TransportError> {
    let unreachable =
        |reason: String| TransportError::Unreachable { peer: address.to_owned(), reason };
    let late = || TransportError::TimedOut {
        peer: address.to_owned(),
        what: "connecting",
        after: config.connect_timeout,
    };
    let endpoint = Endpoint::parse(address, "tcp").map_err(|what| unreachable(what.to_owned()))?;
    let resolve = config.networks.resolve(&endpoint.host, endpoint.port);
    let candidates = timeout_at(deadline, resolve).await.map_err(|_| late())??;
    let mut left = u32::try_from(candidates.len()).unwrap_or(u32::MAX);
    let mut failure = late();
    for candidate in candidates {
        let share = deadline.saturating_duration_since(Instant::now()) / left;
        left -= 1;
        match timeout(share, dial(candidate)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failure = unreachable(error.to_string()),
            Err(_) => failure = late(),
        }
    }
    Err(failure)
}

async fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // Towards a dead port of this machine TCP may, rarely, connect a socket to itself.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::Error::from(io::ErrorKind::ConnectionRefused));
    }
    Ok(stream)
}

fn explain(address: &str, fault: Fault) -> TransportError {
    let peer = address.to_owned();
    match fault {
        Fault::Closed | Fault::Io(_) | Fault::NotReading => {
            TransportError::Disconnected { peer, reason: fault.to_string() }
        }
        Fault::Malformed(_) | Fault::Oversized { .. } => {
            TransportError::Malformed { peer, what: fault.to_string() }
        }
        Fault::TimedOut(after) => TransportError::TimedOut { peer, what: "a frame", after },
        Fault::NotAuthentic(what) => TransportError::NotAuthentic { peer, what },
        Fault::Refused(reason) if reason.starts_with(KEY_ERROR) => {
            TransportError::NotAuthentic { peer, what: "it refused our proof, or lack of one" }
        }
        Fault::Refused(_) => TransportError::Disconnected { peer, reason: fault.to_string() },
    }
}
