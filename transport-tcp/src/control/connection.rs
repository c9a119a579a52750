//! One accepted connection: reads messages, writes answers.

use super::counters::Counters;
use super::framed::{Fault, FrameReader, FrameWriter, Incoming};
use super::handshake::{Handshake, KEY_ERROR};
use super::registry::{ConnectionId, Entry, Registry};
use super::zmtp::{self, Command};
use super::{ControlConfig, config::ControlLimits};
use crate::key::Side;
use bytes::Bytes;
use kvbaton_actors::transport::{Inbound, Inbox};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

/// How long a refused peer may take to read why.
const FAREWELL: Duration = Duration::from_secs(1);

/// What the connections of one listener share.
pub(super) struct Shared {
    pub(super) config: Rc<ControlConfig>,
    pub(super) counters: Arc<Counters>,
    pub(super) inbox: Inbox,
    pub(super) registry: Weak<Registry>,
}

impl Shared {
    fn limits(&self) -> &ControlLimits {
        &self.config.limits
    }

    fn count(&self, fault: &Fault) {
        match fault {
            Fault::Closed | Fault::Io(_) => return,
            Fault::Malformed(_) | Fault::Refused(_) => &self.counters.malformed,
            Fault::Oversized { .. } => &self.counters.oversized,
            Fault::TimedOut(_) | Fault::NotReading => &self.counters.timed_out,
            Fault::NotAuthentic(_) => &self.counters.not_authentic,
        }
        .increment();
    }
}

/// Serves one connection until it ends.
pub(super) async fn serve(
    shared: Rc<Shared>,
    stream: TcpStream,
    peer: SocketAddr,
    id: ConnectionId,
    entry: Rc<Entry>,
) {
    let (read, write) = stream.into_split();
    let mut reader = FrameReader::new(read, shared.limits());
    let mut writer = FrameWriter::new(write);
    reader.watch(gauge(&shared, id));
    let fault = match shake_hands(&shared, &mut reader, &mut writer).await {
        Ok(()) => exchange(&shared, &mut reader, &mut writer, peer, &entry).await,
        Err(fault) => fault,
    };
    shared.count(&fault);
    report(&fault, peer);
    if let Fault::NotAuthentic(why) = fault {
        let mut bytes = Vec::new();
        zmtp::put_error(&mut bytes, &format!("{KEY_ERROR}{why}"));
        let farewell = async {
            if writer.raw(&bytes).await.is_ok() {
                writer.shutdown().await;
                reader.drain().await;
            }
        };
        // A peer that does not listen misses it.
        let _ = timeout(FAREWELL, farewell).await;
    }
}

fn report(fault: &Fault, peer: SocketAddr) {
    match fault {
        Fault::Closed | Fault::Io(_) => tracing::debug!(%peer, %fault, "control connection ended"),
        Fault::NotAuthentic(why) => tracing::warn!(
            %peer,
            "refused a control connection without proof of the cluster key: {why}; configure the \
             same `cluster_key` on both sides"
        ),
        fault => tracing::debug!(%peer, %fault, "closed a control connection"),
    }
}

fn gauge(shared: &Rc<Shared>, id: ConnectionId) -> Box<dyn Fn(usize)> {
    let shared = shared.clone();
    Box::new(move |bytes| {
        let Some(registry) = shared.registry.upgrade() else { return };
        for _ in 0..registry.set_buffered(id, bytes) {
            shared.counters.crowded_out.increment();
        }
    })
}

async fn shake_hands(
    shared: &Shared,
    reader: &mut FrameReader<OwnedReadHalf>,
    writer: &mut FrameWriter<OwnedWriteHalf>,
) -> Result<(), Fault> {
    let handshake = Handshake::new(&shared.config, Side::Listener);
    let bound = shared.config.connect_timeout;
    let shake = async {
        writer.raw(&handshake.opening()).await?;
        handshake.finish(reader, writer).await
    };
    timeout(bound, shake).await.map_err(|_| Fault::TimedOut(bound))?
}

/// Reads and writes at the same time, until either ends; neither waits for the other.
async fn exchange(
    shared: &Shared,
    reader: &mut FrameReader<OwnedReadHalf>,
    writer: &mut FrameWriter<OwnedWriteHalf>,
    peer: SocketAddr,
    entry: &Entry,
) -> Fault {
    let (queue, queued) = mpsc::unbounded_channel();
    let outbox = Arc::new(Outbox {
        queue,
        bytes: AtomicUsize::new(0),
        max_bytes: shared.limits().max_queued_answers,
        overflow: Notify::new(),
        counters: shared.counters.clone(),
    });
    tokio::select! {
        fault = read_messages(shared, reader, &outbox, peer, entry) => fault,
        fault = write_answers(writer, queued, &outbox) => fault,
        () = outbox.overflow.notified() => Fault::NotReading,
    }
}

async fn read_messages(
    shared: &Shared,
    reader: &mut FrameReader<OwnedReadHalf>,
    outbox: &Arc<Outbox>,
    peer: SocketAddr,
    entry: &Entry,
) -> Fault {
    loop {
        // The place is held by the answer: it frees itself when nobody can answer any more.
        let Ok(place) = entry.unanswered.clone().acquire_owned().await else {
            return Fault::Closed;
        };
        let payload = loop {
            match reader.next().await {
                Ok(Incoming::Message(payload)) => break payload,
                Ok(Incoming::Misshapen) => shared.counters.misshapen.increment(),
                Ok(Incoming::Command(Command::Ping(context))) => {
                    outbox.push(Outgoing::Pong(context))
                }
                Ok(Incoming::Command(Command::Error(reason))) => return Fault::Refused(reason),
                Ok(Incoming::Command(_)) => {}
                Err(fault) => return fault,
            }
        };
        entry.delivered();
        shared.counters.received.increment();
        let outbox = outbox.clone();
        let answer = Arc::new(move |answer| {
            let _ = &place;
            outbox.push(Outgoing::Answer(answer));
        });
        (shared.inbox)(Inbound { payload, answer, peer: Some(peer) });
    }
}

async fn write_answers(
    writer: &mut FrameWriter<OwnedWriteHalf>,
    mut queued: mpsc::UnboundedReceiver<Outgoing>,
    outbox: &Outbox,
) -> Fault {
    while let Some(next) = queued.recv().await {
        let bytes = next.len();
        let written = match next {
            Outgoing::Answer(payload) => {
                let written = writer.message(payload).await;
                if written.is_ok() {
                    outbox.counters.answered.increment();
                }
                written
            }
            Outgoing::Pong(context) => {
                let mut bytes = Vec::new();
                zmtp::put_pong(&mut bytes, &context);
                writer.raw(&bytes).await
            }
        };
        outbox.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Err(error) = written {
            return error.into();
        }
    }
    Fault::Closed
}

enum Outgoing {
    Answer(Bytes),
    Pong(Bytes),
}

impl Outgoing {
    /// Bytes to account for; never 0, so that empty ones count too.
    fn len(&self) -> usize {
        let (Self::Answer(bytes) | Self::Pong(bytes)) = self;
        bytes.len() + 64
    }
}

/// The way to one peer, usable from any thread, never blocking.
struct Outbox {
    queue: mpsc::UnboundedSender<Outgoing>,
    bytes: AtomicUsize,
    max_bytes: usize,
    overflow: Notify,
    counters: Arc<Counters>,
}

impl Outbox {
    fn push(&self, next: Outgoing) {
        let len = next.len();
        let before = self.bytes.fetch_add(len, Ordering::Relaxed);
        // One answer may be larger than the bound; a second one behind it may not.
        if before > 0 && before + len > self.max_bytes {
            self.bytes.fetch_sub(len, Ordering::Relaxed);
            self.counters.dropped_answers.increment();
            self.overflow.notify_one();
        } else if self.queue.send(next).is_err() {
            self.counters.dropped_answers.increment();
        }
    }
}
