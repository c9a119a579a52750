//! A transport in memory: addresses are numbers, memory is a byte map, nothing is lost
//! unless a test says so.

use bytes::Bytes as Payload;
use futures_channel::mpsc::UnboundedSender;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use futures_util::stream::LocalBoxStream;
use kvbaton_actors::transport::*;
use kvbaton_core::ids::{Bytes, Generation, Grant, SessionAddress};
use kvbaton_core::region::MemoryRange;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Everything that nodes of one test share.
#[derive(Clone, Default)]
pub struct Network {
    shared: Rc<RefCell<Shared>>,
    pub memory: Arc<Mutex<Memory>>,
    /// One clone per request whose answers are still waited for.
    waiting: Rc<()>,
}

#[derive(Default)]
struct Shared {
    inboxes: BTreeMap<String, Inbox>,
    directory: Directory,
    /// The bootstrap server refuses so many announcements.
    refused: u32,
    next: u64,
    /// Keeps every connection open until whoever asked lets go of it, as a P does.
    connections: Vec<UnboundedSender<Result<Payload, TransportError>>>,
    /// Every control message, by address.
    log: Vec<(String, Payload)>,
}

/// Bytes, registrations and grants of all nodes: their address ranges never overlap.
#[derive(Default)]
pub struct Memory {
    pub bytes: BTreeMap<u64, u8>,
    pub registered: BTreeMap<Generation, Vec<MemoryRange>>,
    pub grants: BTreeMap<Grant, GrantedRows>,
    /// Writes that are asked for while this is set stay in flight until it is cleared.
    pub stalled: Vec<futures_channel::oneshot::Sender<()>>,
    pub stall: bool,
    pub revoked: u64,
    /// Unregistering fails while this is set.
    pub stuck: bool,
    /// Memory can be registered once only.
    pub once: bool,
    /// Told when a write stalls, a request is let go of or a rank is announced.
    pub changed: Arc<Notify>,
}

/// A request whose answers are waited for; whoever watches is told when it is let go of.
struct Waiting {
    counted: Option<Rc<()>>,
    changed: Arc<Notify>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.counted.take();
        self.changed.notify_waiters();
    }
}

impl Network {
    /// Control messages sent to `address` so far.
    pub fn messages(&self, address: &str) -> Vec<Payload> {
        let shared = self.shared.borrow();
        shared.log.iter().filter(|(to, _)| to == address).map(|(_, it)| it.clone()).collect()
    }

    /// Requests whose answers somebody still waits for: open connections, over TCP.
    pub fn open_requests(&self) -> usize {
        // The network itself has as many clones as it has users; only requests add more.
        Rc::strong_count(&self.waiting) - Rc::strong_count(&self.shared)
    }

    /// Takes a node off the control network, as if its process had ended.
    pub fn cut(&self, address: &str) {
        self.shared.borrow_mut().inboxes.remove(address);
    }

    /// The bootstrap server restarts: it knows nobody.
    pub fn restart_bootstrap(&self) {
        self.shared.borrow_mut().directory.clear();
    }

    /// The bootstrap server refuses the next announcements.
    pub fn refuse_announcements(&self, count: u32) {
        self.shared.borrow_mut().refused = count;
    }

    /// Whether the bootstrap server lists an engine.
    pub fn lists_an_engine(&self) -> bool {
        !self.shared.borrow().directory.is_empty()
    }

    /// Makes `address` lead to whoever listens at `to`: a process that restarted there.
    pub fn redirect(&self, address: &str, to: &str) {
        let mut shared = self.shared.borrow_mut();
        let inbox = shared.inboxes.get(to).cloned().expect("somebody listens there");
        shared.inboxes.insert(address.into(), inbox);
    }

    /// Lets stalled writes go on.
    pub fn go_on(&self) {
        let mut memory = self.memory.lock().unwrap();
        memory.stall = false;
        for waiting in memory.stalled.drain(..) {
            let _ = waiting.send(());
        }
    }

    pub fn factory(&self) -> Box<dyn TransportFactory> {
        let mut shared = self.shared.borrow_mut();
        shared.next += 1;
        let session = SessionAddress { host: format!("node-{}", shared.next).into(), port: 1 };
        let address = format!("mem://{}", shared.next);
        drop(shared);
        Box::new(Factory(Confined((self.clone(), session, address))))
    }
}

/// Test nodes live on one thread; the factory's bound asks for more.
struct Confined<T>(T);
// SAFETY: `Network::factory` and `open` run on the test's only thread.
unsafe impl<T> Send for Confined<T> {}

struct Factory(Confined<(Network, SessionAddress, String)>);

impl TransportFactory for Factory {
    fn open(self: Box<Self>) -> LocalBoxFuture<'static, Result<Transport, TransportError>> {
        let (network, session, address) = self.0.0;
        let data = Data { session, memory: network.memory.clone() };
        Box::pin(async move {
            Ok(Transport {
                control: Rc::new(Control { network: network.clone(), address }),
                data: Arc::new(data),
                bootstrap: Rc::new(Registry { network }),
            })
        })
    }
}

struct Control {
    network: Network,
    address: String,
}

impl ControlPlane for Control {
    fn listen(&self, inbox: Inbox) -> LocalBoxFuture<'static, Result<String, TransportError>> {
        let address = self.address.clone();
        self.network.shared.borrow_mut().inboxes.insert(address.clone(), inbox);
        Box::pin(async move { Ok(address) })
    }

    fn request(
        &self,
        address: &str,
        payload: Payload,
    ) -> LocalBoxStream<'static, Result<Payload, TransportError>> {
        let mut shared = self.network.shared.borrow_mut();
        shared.log.push((address.into(), payload.clone()));
        let Some(inbox) = shared.inboxes.get(address).cloned() else {
            let error = TransportError::Unreachable { peer: address.into(), reason: "gone".into() };
            return futures_util::stream::iter([Err(error)]).boxed_local();
        };
        let (answers, answered) = futures_channel::mpsc::unbounded();
        shared.connections.push(answers.clone());
        drop(shared);
        let answer: Answer = Arc::new(move |bytes| {
            let _ = answers.unbounded_send(Ok(bytes));
        });
        inbox(Inbound { payload, answer, peer: None });
        let waiting = Waiting {
            counted: Some(self.network.waiting.clone()),
            changed: self.network.memory.lock().unwrap().changed.clone(),
        };
        let answered = answered.map(move |answer| {
            let _ = &waiting;
            answer
        });
        answered.boxed_local()
    }
}

struct Registry {
    network: Network,
}

impl Bootstrap for Registry {
    fn register(
        &self,
        _: &str,
        rank: RankRegistration,
    ) -> LocalBoxFuture<'static, Result<(), TransportError>> {
        let mut shared = self.network.shared.borrow_mut();
        if let Some(left) = shared.refused.checked_sub(1) {
            shared.refused = left;
            let (peer, reason) = ("bootstrap".into(), "refused".into());
            return Box::pin(async { Err(TransportError::Unreachable { peer, reason }) });
        }
        let empty = || EngineEntry { engine_id: rank.engine_id.clone(), ranks: BTreeMap::new() };
        let engine = shared.directory.entry(rank.dp_rank).or_insert_with(empty);
        if engine.engine_id != rank.engine_id {
            *engine = empty();
        }
        let entry = RankEntry { address: rank.address, extension: Some(rank.extension) };
        engine.ranks.entry(rank.tp_rank).or_default().insert(rank.pp_rank, entry);
        self.network.memory.lock().unwrap().changed.notify_waiters();
        Box::pin(async { Ok(()) })
    }

    fn query(&self, _: &str) -> LocalBoxFuture<'static, Result<Directory, TransportError>> {
        let directory = self.network.shared.borrow().directory.clone();
        Box::pin(async move { Ok(directory) })
    }
}

struct Data {
    session: SessionAddress,
    memory: Arc<Mutex<Memory>>,
}

impl DataPlane for Data {
    fn session(&self) -> SessionAddress {
        self.session.clone()
    }

    fn capabilities(&self) -> Capabilities {
        let once = self.memory.lock().unwrap().once;
        Capabilities { reregister: !once, per_write_grants: true }
    }

    // SAFETY: addresses are keys of a map here, no memory is touched.
    unsafe fn register(&self, ranges: &[MemoryRange]) -> Result<Registration, TransportError> {
        let generation = Generation(rand::random());
        self.memory.lock().unwrap().registered.insert(generation, ranges.to_vec());
        Ok(Registration { generation, keys: generation.0.to_le_bytes().into() })
    }

    fn unregister(&self, generation: Generation) -> BoxFuture<'static, Result<(), TransportError>> {
        let mut memory = self.memory.lock().unwrap();
        let stuck = memory.stuck;
        if !stuck {
            memory.registered.remove(&generation);
        }
        let error = TransportError::Local { what: "unpinning".into(), reason: "stuck".into() };
        Box::pin(async move { if stuck { Err(error) } else { Ok(()) } })
    }

    fn open_grant(&self, rows: GrantedRows) -> Result<(), TransportError> {
        self.memory.lock().unwrap().grants.insert(rows.grant, rows);
        Ok(())
    }

    fn revoke(&self, grant: Grant) -> BoxFuture<'static, Revoked> {
        let mut memory = self.memory.lock().unwrap();
        let was_live = memory.grants.remove(&grant).is_some();
        memory.revoked += u64::from(was_live);
        Box::pin(async move { Revoked { was_live, bytes_landed: 0 } })
    }

    fn write(&self, write: Write) -> BoxFuture<'static, WriteOutcome> {
        let memory = self.memory.clone();
        Box::pin(async move {
            let waiting = {
                let mut memory = memory.lock().unwrap();
                memory.stall.then(|| {
                    let (go_on, waiting) = futures_channel::oneshot::channel();
                    memory.stalled.push(go_on);
                    memory.changed.notify_waiters();
                    waiting
                })
            };
            if let Some(waiting) = waiting {
                let _ = waiting.await;
            }
            memory.lock().unwrap().apply(&write)
        })
    }

    fn cancel(&self, _: WriteId) {}

    fn counters(&self) -> DataCounters {
        DataCounters::default()
    }
}

impl Memory {
    fn apply(&mut self, write: &Write) -> WriteOutcome {
        let Some(rows) = write.grant.and_then(|grant| self.grants.get(&grant)) else {
            return WriteOutcome::Rejected(Rejection::UnknownGrant);
        };
        if write.generation != Some(rows.generation)
            || !self.registered.contains_key(&rows.generation)
            || *write.keys != rows.generation.0.to_le_bytes()
        {
            return WriteOutcome::Rejected(Rejection::StaleGeneration);
        }
        let inside = |copy: &kvbaton_core::region::Copy| {
            rows.rows.iter().any(|row| row.contains(copy.destination, copy.len))
        };
        if !write.copies.iter().all(inside) {
            return WriteOutcome::Rejected(Rejection::OutsideGrant);
        }
        for copy in &write.copies {
            for offset in 0..copy.len.0 {
                let byte = self.bytes.get(&(copy.source.0 + offset)).copied().unwrap_or(0);
                self.bytes.insert(copy.destination.0 + offset, byte);
            }
        }
        WriteOutcome::Written
    }

    /// `len` bytes at `start`.
    pub fn read(&self, start: u64, len: Bytes) -> Vec<u8> {
        (start..start + len.0).map(|at| self.bytes.get(&at).copied().unwrap_or(0)).collect()
    }
}
