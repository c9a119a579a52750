//! One inbound connection's queue pairs, and how they are cut off.

use crate::side::Outgoing;
use crate::verbs::QueuePair;
use crate::wire::ToSender;
use kvbaton_core::ids::Generation;
use kvbaton_transport_tcp::data::net;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A connected sender.
pub(crate) struct Inbound {
    pub(crate) peer: String,
    pub(crate) instance: u64,
    pub(crate) attempt: u64,
    pub(crate) generation: Generation,
    pairs: Mutex<Vec<QueuePair>>,
    stream: TcpStream,
    writing: Mutex<()>,
}

impl Inbound {
    pub(crate) fn new(
        (peer, instance, attempt): (String, u64, u64),
        generation: Generation,
        pairs: Vec<QueuePair>,
        stream: TcpStream,
    ) -> Self {
        let (pairs, writing) = (Mutex::new(pairs), Mutex::new(()));
        Self { peer, instance, attempt, generation, pairs, stream, writing }
    }

    /// Cuts its queue pairs off: once it returned, nothing that was sent over them lands,
    /// whatever the peer does `[G03]`. The peer is told.
    pub(crate) fn fence(&self) {
        // Held until they are gone, so that a second caller does not return before that.
        let mut pairs = lock(&self.pairs);
        if pairs.is_empty() {
            return;
        }
        for pair in &*pairs {
            if let Err(error) = pair.fail() {
                tracing::warn!(%error, "a queue pair could not be moved to ERR; it is destroyed");
            }
        }
        pairs.clear();
        drop(pairs);
        tracing::debug!(peer = self.peer, "queue pairs fenced");
        self.tell_now(&ToSender::Fenced);
        // No more answers; what was sent still arrives. Fails when the peer has gone.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Sends a frame if the connection takes it at once, whole; false if not.
    pub(crate) fn tell_now(&self, frame: &ToSender) -> bool {
        let _writing = lock(&self.writing);
        let mut bytes = Vec::new();
        frame.put(&mut bytes);
        // Half a frame would be the end of the connection.
        net::send(self.stream.as_raw_fd(), &bytes).is_ok_and(|sent| sent == bytes.len())
    }

    /// Sends answers, waiting for a slow peer no longer than `patience`.
    pub(crate) fn answer(&self, frames: &mut Outgoing, patience: Duration) -> Result<(), String> {
        if frames.is_empty() {
            return Ok(());
        }
        let _writing = lock(&self.writing);
        let deadline = Instant::now() + patience;
        let sent = net::send_all(self.stream.as_raw_fd(), &frames.bytes, deadline);
        frames.bytes.clear();
        sent.map_err(|error| error.to_string())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
