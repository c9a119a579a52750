//! Accepts side channels. Each has a thread, so a silent client delays nobody; their number
//! is bounded, and who has not introduced itself makes room first `[Z03]`.

use super::connection;
use crate::plane::Shared;
use crate::wire::MAGIC;
use kvbaton_transport_tcp::data::{hello, net};
use std::collections::BTreeMap;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Side channels that are open.
#[derive(Default)]
pub(crate) struct Connections(Mutex<Open>);

#[derive(Default)]
struct Open {
    next: u64,
    /// Each with whether it has introduced itself.
    by_number: BTreeMap<u64, (Arc<TcpStream>, bool)>,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, stream: &Arc<TcpStream>, most: usize) -> Option<u64> {
        let mut open = self.lock();
        if open.by_number.len() >= most {
            let stranger =
                open.by_number.iter().find(|(_, it)| !it.1).map(|(number, _)| *number)?;
            if let Some((stream, _)) = open.by_number.remove(&stranger) {
                // Fails when the client has gone already.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        open.next += 1;
        let number = open.next;
        open.by_number.insert(number, (stream.clone(), false));
        Some(number)
    }

    fn introduced(&self, number: u64) {
        if let Some(it) = self.lock().by_number.get_mut(&number) {
            it.1 = true;
        }
    }

    fn forget(&self, number: u64) {
        self.lock().by_number.remove(&number);
    }

    /// Closes all.
    pub(crate) fn close_all(&self) {
        for (stream, _) in self.lock().by_number.values() {
            // Fails when the client has gone already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Accepts until the data plane closes.
pub(crate) fn serve(listener: &TcpListener, shared: &Arc<Shared>) {
    /// Pause after a failed accept: the system lacks descriptors or memory for now.
    const PAUSE: Duration = Duration::from_millis(20);
    if let Err(error) = listener.set_nonblocking(true) {
        tracing::error!(%error, "the side channel cannot be set up; peers cannot connect");
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
                tracing::warn!(%error, "accepting a side channel failed");
                // As above.
                let _ = net::wait(&[closing], Some(PAUSE));
                continue;
            }
        };
        if net::tune(&stream).and_then(|()| stream.set_nonblocking(true)).is_err() {
            continue;
        }
        let stream = Arc::new(stream);
        let Some(number) = shared.connections.admit(&stream, shared.config.max_connections) else {
            shared.counters.refused_connection();
            continue;
        };
        let (served, peer) = (shared.clone(), peer.to_string());
        let spawned = shared.spawn("kvb-rdma-recv", move || {
            serve_one(&stream, number, &peer, &served);
            served.connections.forget(number);
            // Fails when the client has gone already.
            let _ = stream.shutdown(Shutdown::Both);
        });
        if spawned.is_err() {
            shared.connections.forget(number);
            shared.counters.refused_connection();
        }
    }
}

fn serve_one(stream: &TcpStream, number: u64, peer: &str, shared: &Arc<Shared>) {
    let served = greet(stream, peer, shared).and_then(|()| {
        shared.connections.introduced(number);
        connection::serve(stream, peer, shared)
    });
    if let Err(what) = served
        && !shared.is_closed()
    {
        shared.counters.refused_connection();
        tracing::warn!(peer, what, "a side channel was closed");
    }
}

fn greet(stream: &TcpStream, peer: &str, shared: &Shared) -> Result<(), String> {
    let socket = stream.as_raw_fd();
    let deadline = Instant::now() + shared.config.connect_timeout;
    let receive = |into: &mut [u8]| {
        net::receive_exact(socket, into, deadline).map_err(|error| format!("no greeting: {error}"))
    };
    let mut first = [0; 8];
    receive(&mut first)?;
    if first != hello::MAGIC {
        return Err("a greeting that is not kvbaton's".into());
    }
    let key = shared.config.cluster_key.as_ref();
    hello::answer(socket, key, peer, deadline).map_err(|error| error.to_string())?;
    let mut magic = [0; 8];
    receive(&mut magic)?;
    if magic == MAGIC {
        return Ok(());
    }
    Err("it does not speak RDMA: does it run the TCP transport?".into())
}
