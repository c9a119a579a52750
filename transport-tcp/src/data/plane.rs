//! The data plane as the actors see it.

use super::config::DataConfig;
use super::counters::Counters;
use super::hello;
use super::lane::Target;
use super::listen::{Connections, Service, serve};
use super::memory::Memory;
use super::net::{self, Wake};
use super::outgoing::Dialect;
use super::peer::Peer;
use super::timer::Timer;
use super::write::{WriteFuture, WriteState};
use futures_util::future::{BoxFuture, FutureExt, ready};
use kvbaton_actors::transport::{
    Capabilities, DataCounters, DataPlane, GrantedRows, PeerKind, Registration, Revoked,
    TransportError, Write, WriteId, WriteOutcome,
};
use kvbaton_core::ids::{Generation, Grant, SessionAddress};
use kvbaton_core::region::MemoryRange;
use std::collections::BTreeMap;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// A data plane over TCP: speaks to peers of ours and to Mooncake's, both ways.
///
/// Dropping it closes every connection and joins its threads; no memory is touched then.
pub struct TcpDataPlane {
    shared: Arc<Shared>,
}

type Writes = BTreeMap<(WriteId, u64), Arc<WriteState>>;

/// What the threads of one data plane share.
pub(super) struct Shared {
    pub(super) config: DataConfig,
    pub(super) session: SessionAddress,
    /// Port of Mooncake's data protocol, if stock peers are served.
    pub(super) mooncake_port: Option<u16>,
    pub(super) memory: Memory,
    pub(super) counters: Counters,
    pub(super) timer: Arc<Timer>,
    pub(super) connections: Connections,
    /// Wakes the listening threads so that they end.
    pub(super) closing: Wake,
    closed: AtomicBool,
    peers: Mutex<BTreeMap<(SessionAddress, PeerKind), Arc<Peer>>>,
    writes: Mutex<Writes>,
    next_serial: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl TcpDataPlane {
    /// Opens the data plane and starts listening.
    ///
    /// # Errors
    /// When the configuration is out of bounds, or an address cannot be bound.
    pub fn open(config: DataConfig) -> Result<Arc<Self>, TransportError> {
        config.validate()?;
        let buffer = config.socket_buffer;
        let listener = net::listen(&config.bind_host, config.port, buffer)?;
        let stock = config
            .allow_stock_peers
            .then(|| net::listen(&config.bind_host, config.mooncake_port, buffer))
            .transpose()?;
        let local = |error: std::io::Error| TransportError::Local {
            what: "opening the data plane".into(),
            reason: error.to_string(),
        };
        let address = listener.local_addr().map_err(local)?;
        let mooncake = stock.as_ref().map(|s| s.local_addr()).transpose().map_err(local)?;
        if config.cluster_key.is_none() && !address.ip().is_loopback() {
            tracing::warn!(%address, "data connections are not authenticated; set `cluster_key`");
        }
        let host = config.advertised().trim_matches(['[', ']']).into();
        let shared = Arc::new(Shared {
            session: SessionAddress { host, port: address.port() },
            mooncake_port: mooncake.map(|address| address.port()),
            memory: Memory::default(),
            counters: Counters::default(),
            timer: Arc::default(),
            connections: Connections::new(config.max_connections),
            closing: Wake::new().map_err(local)?,
            closed: AtomicBool::new(false),
            peers: Mutex::default(),
            writes: Mutex::default(),
            next_serial: AtomicU64::new(0),
            threads: Mutex::default(),
            config,
        });
        let plane = Arc::new(Self { shared: shared.clone() });
        let timer = shared.timer.start(|write, due| {
            if let Some(peer) = write.peer() {
                peer.expire(write, due);
            }
        });
        lock(&shared.threads).push(timer.map_err(local)?);
        let services = [(Some(listener), Service::Session), (stock, Service::MooncakeData)];
        for (listener, service) in services {
            let Some(listener) = listener else { continue };
            let accepting = shared.clone();
            shared
                .spawn("kvb-accept", move || serve(&listener, service, &accepting))
                .map_err(local)?;
        }
        Ok(plane)
    }

    /// The port of Mooncake's data protocol, if stock peers are served.
    #[must_use]
    pub fn mooncake_port(&self) -> Option<u16> {
        self.shared.mooncake_port
    }
}

impl Drop for TcpDataPlane {
    fn drop(&mut self) {
        let shared = &self.shared;
        shared.closed.store(true, SeqCst);
        shared.memory.unregister_all();
        shared.closing.wake();
        shared.connections.close_all();
        let reason = TransportError::Cancelled { peer: "a peer, by closing this node".into() };
        let peers = std::mem::take(&mut *lock(&shared.peers));
        peers.values().for_each(|peer| peer.close(&reason));
        shared.timer.close();
        let this_thread = std::thread::current().id();
        let threads = std::mem::take(&mut *lock(&shared.threads));
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != this_thread) {
            // A thread that panicked has said so; there is nothing to add.
            let _ = thread.join();
        }
    }
}

impl DataPlane for TcpDataPlane {
    fn session(&self) -> SessionAddress {
        self.shared.session.clone()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { reregister: true, per_write_grants: true }
    }

    unsafe fn register(&self, ranges: &[MemoryRange]) -> Result<Registration, TransportError> {
        let generation = self.shared.memory.register(ranges)?;
        Ok(Registration { generation, keys: Vec::new() })
    }

    fn unregister(&self, generation: Generation) -> BoxFuture<'static, Result<(), TransportError>> {
        // Done at once: the gates are held only for calls that do not block.
        self.shared.memory.unregister(generation);
        self.shared.stop_writes_of(generation);
        ready(Ok(())).boxed()
    }

    fn open_grant(&self, rows: GrantedRows) -> Result<(), TransportError> {
        self.shared.memory.open_grant(rows)
    }

    fn revoke(&self, grant: Grant) -> BoxFuture<'static, Revoked> {
        ready(self.shared.memory.revoke(grant)).boxed()
    }

    fn write(&self, write: Write) -> BoxFuture<'static, WriteOutcome> {
        self.shared
            .start_write(write)
            .unwrap_or_else(|error| ready(WriteOutcome::Failed { error, settled: true }).boxed())
    }

    fn cancel(&self, write: WriteId) {
        let of_id = (write, 0)..=(write, u64::MAX);
        let found: Vec<_> =
            lock(&self.shared.writes).range(of_id).map(|(_, write)| write.clone()).collect();
        for write in found {
            if let Some(peer) = write.peer() {
                peer.cancel(&write);
            }
        }
    }

    fn counters(&self) -> DataCounters {
        self.shared.counters.read()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// Starts a thread that [`TcpDataPlane`] joins when it is dropped.
    pub(super) fn spawn(
        &self,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        const STACK_BYTES: usize = 256 << 10;
        let mut threads = lock(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        let thread = std::thread::Builder::new().name(name.into()).stack_size(STACK_BYTES);
        threads.push(thread.spawn(run)?);
        Ok(())
    }

    fn start_write(
        self: &Arc<Self>,
        write: Write,
    ) -> Result<BoxFuture<'static, WriteOutcome>, TransportError> {
        if write.copies.is_empty() {
            return Ok(ready(WriteOutcome::Written).boxed());
        }
        let sources = self.memory.sources(&write.copies)?;
        let peer = self.peer(&write.session, write.kind)?;
        peer.reserve(self.config.max_writes_per_peer)?;
        let serial = self.next_serial.fetch_add(1, SeqCst);
        let state = Arc::new(WriteState::new(serial, write, sources, &peer));
        lock(&self.writes).insert((state.write.id, serial), state.clone());
        self.timer.add(state.deadline, super::timer::Due::Deadline, &state);
        let lane = peer.submit(state.clone());
        let spin = lane.map(|lane| (lane, self.config.spin));
        Ok(WriteFuture { write: state, spin }.boxed())
    }

    /// The peer of a session; beyond the bound, the one that was idle longest makes room.
    fn peer(
        self: &Arc<Self>,
        session: &SessionAddress,
        kind: PeerKind,
    ) -> Result<Arc<Peer>, TransportError> {
        let mut peers = lock(&self.peers);
        if let Some(peer) = peers.get(&(session.clone(), kind)) {
            return Ok(peer.clone());
        }
        let mut victim = None;
        if peers.len() >= self.config.max_peers {
            let idle = peers.iter().filter_map(|(key, peer)| Some((peer.idle_since()?, key)));
            let key = idle.min().map(|(_, key)| key.clone());
            let key = key.ok_or_else(|| TransportError::Local {
                what: format!("writing to {session}"),
                reason: "writes to `max_peers` other peers are under way; raise it".into(),
            })?;
            victim = peers.remove(&key);
        }
        let peer = Peer::new(session.clone(), kind, self);
        peers.insert((session.clone(), kind), peer.clone());
        drop(peers);
        if let Some(victim) = victim {
            victim.close(&TransportError::Cancelled { peer: victim.session.to_string() });
        }
        Ok(peer)
    }

    fn stop_writes_of(&self, generation: Generation) {
        let reads = |write: &WriteState| write.sources.iter().any(|s| s.generation == generation);
        let writes: Vec<_> =
            lock(&self.writes).values().filter(|write| reads(write)).cloned().collect();
        for write in writes {
            let source = write.write.copies[0];
            let what = "this node unregistered the memory that the write was reading";
            if let Some(peer) = write.peer() {
                peer.stop(&write, TransportError::memory(source.source, source.len, what));
            }
        }
    }

    pub(super) fn write_ended(&self, write: &WriteState, outcome: &WriteOutcome) {
        lock(&self.writes).remove(&(write.write.id, write.serial));
        self.timer.remove(write);
        if *outcome == WriteOutcome::Written {
            self.counters.bytes_sent.fetch_add(write.total, SeqCst);
        }
    }

    /// Connects to a peer and, if it is ours, greets it. `name` is how errors call it.
    pub(super) fn connect(&self, target: &Target, name: &str) -> Result<TcpStream, TransportError> {
        let deadline = Instant::now() + self.config.connect_timeout;
        let stream = self.dial(&target.host, target.port, deadline)?;
        if target.dialect == Dialect::Kvbaton {
            hello::greet(stream.as_raw_fd(), self.config.cluster_key.as_ref(), name, deadline)?;
        }
        Ok(stream)
    }

    /// Connects to an allowed address `[Z05]`.
    pub(super) fn dial(
        &self,
        host: &str,
        port: u16,
        deadline: Instant,
    ) -> Result<TcpStream, TransportError> {
        let config = &self.config;
        let check = |ip| (config.check_address)(ip);
        let addresses = net::resolve(host, port, check, &config.allowed_networks)?;
        net::connect(&addresses, config.socket_buffer, deadline).map_err(|error| {
            TransportError::Unreachable {
                peer: format!("{host}:{port}"),
                reason: error.to_string(),
            }
        })
    }
}
