//! The data plane as the actors see it.

use crate::clock::{Clock, Due};
use crate::config::RdmaConfig;
use crate::counters::Counters;
use crate::gpu::{Cuda, GpuMemory, NoGpu};
use crate::inbound::{Connections, Receivers, serve};
use crate::memory::{Registered, Registrations};
use crate::outbound::Link;
use crate::rail::{Rail, open_rails};
use crate::side::wait;
use crate::verbs::Verbs;
use crate::write::{WriteFuture, WriteState};
use futures_util::future::{BoxFuture, FutureExt, ready};
use kvbaton_actors::transport::{
    Capabilities, DataCounters, DataPlane, GrantedRows, PeerKind, Registration, Rejection, Revoked,
    TransportError, Write, WriteId, WriteOutcome,
};
use kvbaton_core::ids::{Generation, Grant, SessionAddress};
use kvbaton_core::region::MemoryRange;
use kvbaton_transport_tcp::data::memory::Memory;
use kvbaton_transport_tcp::data::net::{self, Wake};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A data plane over RDMA writes.
///
/// Dropping it fences every queue pair and joins its threads; no memory is touched then.
pub struct RdmaDataPlane {
    shared: Arc<Shared>,
}

type Writes = BTreeMap<(WriteId, u64), (Arc<WriteState>, Due)>;

/// What the threads of one data plane share.
pub(crate) struct Shared {
    pub(crate) config: RdmaConfig,
    pub(crate) session: SessionAddress,
    /// Names this data plane; new after a restart `[F70]`.
    pub(crate) instance: u64,
    pub(crate) attempts: AtomicU64,
    pub(crate) rails: Vec<Arc<Rail>>,
    /// Checks ranges and grants, as over TCP.
    pub(crate) memory: Memory,
    pub(crate) registrations: Registrations,
    pub(crate) counters: Counters,
    pub(crate) clock: Arc<Clock>,
    pub(crate) connections: Connections,
    pub(crate) receivers: Arc<Receivers>,
    /// Wakes every thread that waits, so that it ends.
    pub(crate) closing: Wake,
    gpu: Box<dyn GpuMemory>,
    closed: AtomicBool,
    links: Mutex<BTreeMap<(SessionAddress, Generation), Arc<Link>>>,
    writes: Mutex<Writes>,
    next_serial: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl RdmaDataPlane {
    /// Opens the system's devices and starts listening.
    ///
    /// # Errors
    /// When the configuration is out of bounds, RDMA is not available (says why and what to
    /// do), or an address cannot be bound.
    pub fn open(config: RdmaConfig) -> Result<Arc<Self>, TransportError> {
        let gpu: Box<dyn GpuMemory> = match Cuda::system() {
            Some(cuda) => Box::new(cuda),
            None => Box::new(NoGpu),
        };
        Self::open_with(&Verbs::system()?, gpu, config)
    }

    /// Opens devices of another library, with another GPU driver: for tests.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(
        verbs: &Verbs,
        gpu: Box<dyn GpuMemory>,
        config: RdmaConfig,
    ) -> Result<Arc<Self>, TransportError> {
        const BUFFER: usize = 256 << 10;
        config.validate()?;
        let rails = open_rails(verbs, &config)?;
        let listener = net::listen(&config.bind_host, config.port, BUFFER)?;
        let local = |error: std::io::Error| TransportError::Local {
            what: "opening the RDMA data plane".into(),
            reason: error.to_string(),
        };
        let address = listener.local_addr().map_err(local)?;
        if config.cluster_key.is_none() && !address.ip().is_loopback() {
            tracing::warn!(%address, "RDMA peers are not authenticated; set `cluster_key`");
        }
        let host = config.advertised().trim_matches(['[', ']']).into();
        let shared = Arc::new(Shared {
            session: SessionAddress { host, port: address.port() },
            instance: rand::random(),
            attempts: AtomicU64::new(1),
            rails,
            memory: Memory::default(),
            registrations: Registrations::default(),
            counters: Counters::default(),
            clock: Arc::default(),
            connections: Connections::default(),
            receivers: Arc::default(),
            closing: Wake::new().map_err(local)?,
            gpu,
            closed: AtomicBool::new(false),
            links: Mutex::default(),
            writes: Mutex::default(),
            next_serial: AtomicU64::new(0),
            threads: Mutex::default(),
            config,
        });
        let plane = Arc::new(Self { shared: shared.clone() });
        let clock = shared.clock.start().map_err(local)?;
        lock(&shared.threads).push(clock);
        let accepting = shared.clone();
        shared.spawn("kvb-rdma-accept", move || serve(&listener, &accepting)).map_err(local)?;
        let watching = shared.clone();
        shared.spawn("kvb-rdma-event", move || watching.watch_rails()).map_err(local)?;
        Ok(plane)
    }

    /// Names of the devices in use.
    #[must_use]
    pub fn devices(&self) -> Vec<String> {
        self.shared.rails.iter().map(|rail| rail.name().into()).collect()
    }
}

impl Drop for RdmaDataPlane {
    fn drop(&mut self) {
        let shared = &self.shared;
        shared.closed.store(true, SeqCst);
        shared.closing.wake();
        shared.connections.close_all();
        shared.receivers.cut_off_all(None);
        let links = std::mem::take(&mut *lock(&shared.links));
        links.values().for_each(|link| link.wake());
        shared.clock.close();
        let this_thread = std::thread::current().id();
        loop {
            // A thread may start another one until it sees that all is closed.
            let threads = std::mem::take(&mut *lock(&shared.threads));
            if threads.is_empty() {
                break;
            }
            for thread in threads.into_iter().filter(|it| it.thread().id() != this_thread) {
                // A thread that panicked has said so; there is nothing to add.
                let _ = thread.join();
            }
        }
        shared.receivers.cut_off_all(None);
        shared.memory.unregister_all();
        shared.registrations.clear();
    }
}

impl DataPlane for RdmaDataPlane {
    fn session(&self) -> SessionAddress {
        self.shared.session.clone()
    }

    fn capabilities(&self) -> Capabilities {
        // An adapter checks keys and ranges, not grants `[G03]`.
        Capabilities { reregister: true, per_write_grants: false }
    }

    unsafe fn register(&self, ranges: &[MemoryRange]) -> Result<Registration, TransportError> {
        let shared = &self.shared;
        let generation = shared.memory.register(ranges)?;
        let region_bytes = shared.config.region_bytes;
        // SAFETY: the caller vouches for the ranges.
        let registered = unsafe {
            Registered::new(generation, ranges, &shared.rails, region_bytes, &*shared.gpu)
        };
        let registered = registered.inspect_err(|_| shared.memory.unregister(generation))?;
        let keys = registered.remote_keys(shared.rails.len()).encode();
        shared.registrations.add(registered);
        Ok(Registration { generation, keys })
    }

    fn unregister(&self, generation: Generation) -> BoxFuture<'static, Result<(), TransportError>> {
        let shared = &self.shared;
        shared.memory.unregister(generation);
        let Some(registered) = shared.registrations.remove(generation) else {
            return ready(Ok(())).boxed();
        };
        // Whoever writes there is cut off, and whoever reads it stops; then the keys go.
        shared.receivers.cut_off_all(Some(generation));
        shared.stop_writes_of(generation);
        let ended = registered.ended();
        drop(registered);
        ended.map(Ok).boxed()
    }

    fn open_grant(&self, rows: GrantedRows) -> Result<(), TransportError> {
        self.shared.memory.open_grant(rows)
    }

    fn revoke(&self, grant: Grant) -> BoxFuture<'static, Revoked> {
        let shared = &self.shared;
        let was_live = shared.memory.revoke(grant).was_live;
        let (grace, clock) = (shared.config.grace, &shared.clock);
        shared.receivers.settle_grant(grant, was_live, grace, clock)
    }

    fn write(&self, write: Write) -> BoxFuture<'static, WriteOutcome> {
        if write.copies.is_empty() {
            return ready(WriteOutcome::Written).boxed();
        }
        match self.shared.start_write(write) {
            Ok(write) => WriteFuture(write).boxed(),
            Err(outcome) => ready(outcome).boxed(),
        }
    }

    fn cancel(&self, write: WriteId) {
        let of_id = (write, 0)..=(write, u64::MAX);
        let found: Vec<_> =
            lock(&self.shared.writes).range(of_id).map(|(_, (write, _))| write.clone()).collect();
        for write in found {
            let peer = write.write.session.to_string();
            write.stop(TransportError::Cancelled { peer }, false);
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
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// Starts a thread that [`RdmaDataPlane`] joins when it is dropped.
    pub(crate) fn spawn(
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

    /// Takes in what the devices say.
    fn watch_rails(&self) {
        const LOOK_AGAIN: Duration = Duration::from_secs(60);
        while !self.is_closed() {
            let bells = self.rails.iter().map(|rail| rail.context().async_fd());
            if wait(bells.chain([self.closing.fd()]), None, LOOK_AGAIN).is_err() {
                std::thread::yield_now();
            }
            let changed = self.rails.iter().filter(|rail| rail.take_events()).count();
            if changed > 0 {
                lock(&self.links).values().for_each(|link| link.wake());
            }
        }
    }

    fn start_write(self: &Arc<Self>, mut write: Write) -> Result<Arc<WriteState>, WriteOutcome> {
        let failed = |error| WriteOutcome::Failed { error, settled: true };
        if write.kind == PeerKind::Mooncake {
            let peer = write.session.to_string();
            let what = "stock peers are served over TCP only; use the TCP transport towards them";
            return Err(failed(TransportError::Refused { peer, what: what.into() }));
        }
        let (Some(generation), Some(_)) = (write.generation, write.grant) else {
            return Err(WriteOutcome::Rejected(Rejection::GrantRequired));
        };
        let sources = self.registrations.sources(&write.copies).map_err(failed)?;
        loop {
            let link = self.link(&write.session, generation).map_err(failed)?;
            link.reserve(self.config.max_writes_per_peer).map_err(failed)?;
            let serial = self.next_serial.fetch_add(1, SeqCst);
            let state = Arc::new(WriteState::new(serial, write, sources.clone(), &link));
            let late = Arc::downgrade(&state);
            let due = self.clock.at(state.deadline, move || {
                let Some(state) = late.upgrade() else { return };
                let (peer, after) = (state.write.session.to_string(), state.write.timeout);
                state.stop(TransportError::TimedOut { peer, what: "a write", after }, false);
            });
            lock(&self.writes).insert((state.write.id, serial), (state.clone(), due));
            if link.submit(state.clone()) {
                return Ok(state);
            }
            // The link ended since it was looked up; another one takes its place.
            link.unreserve();
            lock(&self.writes).remove(&(state.write.id, serial));
            self.clock.forget(due);
            if self.is_closed() {
                let peer = state.write.session.to_string();
                return Err(failed(TransportError::Cancelled { peer }));
            }
            write = state.write.clone();
        }
    }

    /// The link to a peer's registration; beyond the bound, an idle one makes room.
    fn link(
        self: &Arc<Self>,
        session: &SessionAddress,
        generation: Generation,
    ) -> Result<Arc<Link>, TransportError> {
        let mut links = lock(&self.links);
        let key = (session.clone(), generation);
        if let Some(link) = links.get(&key).filter(|link| !link.is_closed()) {
            return Ok(link.clone());
        }
        if self.is_closed() {
            return Err(TransportError::Cancelled { peer: session.to_string() });
        }
        links.retain(|_, link| !link.is_closed());
        if links.len() >= self.config.max_peers {
            let idle =
                links.iter().find(|(_, link)| link.close_if_idle()).map(|(key, _)| key.clone());
            let idle = idle.ok_or_else(|| TransportError::Local {
                what: format!("writing to {session}"),
                reason: "writes to `max_peers` other peers are under way; raise it".into(),
            })?;
            links.remove(&idle);
        }
        let link = Link::start(session, generation, self)?;
        links.insert(key, link.clone());
        Ok(link)
    }

    fn stop_writes_of(&self, generation: Generation) {
        let reading: Vec<_> = lock(&self.writes)
            .values()
            .filter(|(write, _)| write.reads(generation))
            .map(|(write, _)| write.clone())
            .collect();
        for write in reading {
            let source = write.write.copies[0];
            let what = "this node unregistered the memory that the write was reading";
            write.stop(TransportError::memory(source.source, source.len, what), true);
        }
    }

    pub(crate) fn write_ended(&self, write: &WriteState, outcome: &WriteOutcome) {
        let removed = lock(&self.writes).remove(&(write.write.id, write.serial));
        if let Some((_, due)) = removed {
            self.clock.forget(due);
        }
        if *outcome == WriteOutcome::Written {
            self.counters.sent(write.total);
        }
    }
}
