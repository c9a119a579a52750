//! Accepts connections and finds out who is there.
//!
//! Each connection has a thread, so a silent client delays nobody; their number is
//! bounded, and who has not introduced itself makes room first `[Z03]`.

use super::hello;
use super::mooncake::{control, data};
use super::net;
use super::plane::Shared;
use super::receive;
use std::collections::BTreeMap;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a listener serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    /// The session: our own protocol, or Mooncake's control frames.
    Session,
    /// Mooncake's data protocol.
    MooncakeData,
}

/// One inbound connection.
pub(super) struct Connection {
    stream: TcpStream,
    /// The client's address, for messages.
    pub(super) peer: String,
    introduced: AtomicBool,
    /// Milliseconds after the start of the data plane.
    last_active: AtomicU64,
    started: Instant,
}

impl Connection {
    pub(super) fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Notes that the client proved to be a peer, or did something since.
    pub(super) fn touch(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_active.store(now, SeqCst);
        self.introduced.store(true, SeqCst);
    }

    /// No more answers; what was sent still arrives.
    pub(super) fn finish(&self) {
        // Fails when the client has gone already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    fn close(&self) {
        // Fails when the client has gone already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// All inbound connections of one data plane.
pub(super) struct Connections {
    most: usize,
    started: Instant,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    closed: bool,
    by_number: BTreeMap<u64, Arc<Connection>>,
}

/// A connection that did nothing for this long may be closed to make room.
const IDLE: Duration = Duration::from_secs(1);

impl Connections {
    pub(super) fn new(most: usize) -> Self {
        Self { most, started: Instant::now(), open: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in, closing another if there are too many; `None`: no room.
    fn admit(&self, stream: TcpStream, peer: String) -> Option<(u64, Arc<Connection>)> {
        let connection = Arc::new(Connection {
            stream,
            peer,
            introduced: AtomicBool::new(false),
            last_active: AtomicU64::new(0),
            started: self.started,
        });
        let mut open = self.lock();
        if open.closed {
            return None;
        }
        if open.by_number.len() >= self.most {
            let now = self.started.elapsed();
            let victim = open
                .by_number
                .iter()
                .map(|(number, c)| (c.introduced.load(SeqCst), c.last_active.load(SeqCst), *number))
                .min()?;
            let (introduced, last, number) = victim;
            if introduced && now < Duration::from_millis(last) + IDLE {
                return None;
            }
            if let Some(victim) = open.by_number.remove(&number) {
                victim.close();
            }
        }
        open.next += 1;
        let number = open.next;
        open.by_number.insert(number, connection.clone());
        Some((number, connection))
    }

    fn forget(&self, number: u64) {
        self.lock().by_number.remove(&number);
    }

    /// Closes all, for good.
    pub(super) fn close_all(&self) {
        let mut open = self.lock();
        open.closed = true;
        open.by_number.values().for_each(|connection| connection.close());
    }
}

/// Accepts until the data plane closes.
pub(super) fn serve(listener: &TcpListener, service: Service, shared: &Arc<Shared>) {
    /// Pause after a failed accept: the system lacks descriptors or memory for now.
    const PAUSE: Duration = Duration::from_millis(20);
    if let Err(error) = listener.set_nonblocking(true) {
        tracing::error!(%error, "a data listener cannot be set up; peers cannot connect");
        return;
    }
    let closing = (shared.closing.fd(), net::READABLE);
    while !shared.is_closed() {
        let (stream, peer) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if net::is_retry(&error) => {
                // Failing to wait is answered by accepting again.
                let _ = net::wait(&[(listener.as_raw_fd(), net::READABLE), closing], None);
                continue;
            }
            Err(error) => {
                tracing::warn!(%error, "accepting a data connection failed");
                // As above.
                let _ = net::wait(&[closing], Some(PAUSE));
                continue;
            }
        };
        if net::tune(&stream).is_err() {
            continue;
        }
        let Some((number, connection)) = shared.connections.admit(stream, peer.to_string()) else {
            shared.counters.refused_connection();
            continue;
        };
        let served = shared.clone();
        let spawned = shared.spawn("kvb-recv", move || {
            serve_one(&connection, service, &served);
            served.connections.forget(number);
        });
        if spawned.is_err() {
            shared.connections.forget(number);
            shared.counters.refused_connection();
        }
    }
}

fn serve_one(connection: &Connection, service: Service, shared: &Arc<Shared>) {
    let served = match service {
        Service::Session => serve_session(connection, shared),
        Service::MooncakeData => data::serve(connection, shared),
    };
    if let Err(what) = served
        && !shared.is_closed()
    {
        shared.counters.refused_connection();
        tracing::warn!(peer = connection.peer, what, "a data connection was closed");
    }
    connection.close();
}

fn serve_session(connection: &Connection, shared: &Arc<Shared>) -> Result<(), String> {
    let deadline = Instant::now() + shared.config.handshake_timeout;
    let mut first = [0; 8];
    if let Err(error) = net::receive_exact(connection.fd(), &mut first, deadline) {
        return Err(format!("no greeting: {error}"));
    }
    if first != hello::MAGIC {
        return control::serve(connection, u64::from_le_bytes(first), deadline, shared);
    }
    let key = shared.config.cluster_key.as_ref();
    hello::answer(connection.fd(), key, &connection.peer, deadline).map_err(|e| e.to_string())?;
    connection.touch();
    receive::serve(connection, shared)
}
