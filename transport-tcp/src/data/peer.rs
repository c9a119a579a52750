//! One peer that this node writes to: its connections, and how writes are spread over them.

use super::lane::{Lane, Target};
use super::mooncake::descriptor::Descriptor;
use super::outgoing::{Dialect, Part};
use super::plane::Shared;
use super::timer::Due;
use super::write::{PartEnd, WriteState};
use kvbaton_actors::transport::{PeerKind, Rejection, TransportError, WriteOutcome};
use kvbaton_core::ids::SessionAddress;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Below this a write goes over one connection.
const SPREAD_BYTES: u64 = 256 << 10;
/// Up to this a write is sent by the caller's thread if a connection is idle.
const INLINE_BYTES: u64 = 64 << 10;
/// How long a cancelled write may wait for its peer to confirm that nothing can land.
const CANCEL_GRACE: Duration = Duration::from_millis(20);

/// One peer.
pub(super) struct Peer {
    pub(super) session: SessionAddress,
    kind: PeerKind,
    shared: Weak<Shared>,
    lanes: Mutex<Vec<Arc<Lane>>>,
    in_flight: AtomicUsize,
    last_used: Mutex<Instant>,
    stock: Mutex<Stock>,
}

/// What is known of a stock peer.
#[derive(Default)]
struct Stock {
    descriptor: Option<Arc<Descriptor>>,
    /// Writes that wait for the descriptor.
    waiting: Vec<Arc<WriteState>>,
    /// Whether a thread fetches it.
    fetching: bool,
}

impl Peer {
    pub(super) fn new(session: SessionAddress, kind: PeerKind, shared: &Arc<Shared>) -> Arc<Self> {
        Arc::new(Self {
            session,
            kind,
            shared: Arc::downgrade(shared),
            lanes: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            last_used: Mutex::new(Instant::now()),
            stock: Mutex::default(),
        })
    }

    fn lock_lanes(&self) -> MutexGuard<'_, Vec<Arc<Lane>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more write, unless too many are under way.
    pub(super) fn reserve(&self, most: usize) -> Result<(), TransportError> {
        *self.last_used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        if self.in_flight.fetch_add(1, SeqCst) < most {
            return Ok(());
        }
        self.release();
        Err(TransportError::Local {
            what: format!("writing to {}", self.session),
            reason: format!(
                "{most} writes to it are under way already; wait for some to end or raise \
                 `max_writes_per_peer`"
            ),
        })
    }

    pub(super) fn release(&self) {
        self.in_flight.fetch_sub(1, SeqCst);
    }

    /// Since when it has had nothing to do; `None` while it has.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let idle = self.in_flight.load(SeqCst) == 0;
        idle.then(|| *self.last_used.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts a write. If the calling thread has sent all of it already: over which lane.
    pub(super) fn submit(self: &Arc<Self>, write: Arc<WriteState>) -> Option<Arc<Lane>> {
        if self.kind == PeerKind::Kvbaton {
            let target = Target {
                host: self.session.host.clone(),
                port: self.session.port,
                dialect: Dialect::Kvbaton,
            };
            return self.dispatch(&write, &target);
        }
        let known = self.lock_stock().descriptor.clone();
        match known {
            Some(descriptor) if descriptor.covers(&write.write.copies) => {
                self.dispatch(&write, &descriptor.target)
            }
            stale => {
                self.resolve(write, stale.is_some());
                None
            }
        }
    }

    /// Cuts a write and gives its parts to connections.
    fn dispatch(self: &Arc<Self>, write: &Arc<WriteState>, target: &Target) -> Option<Arc<Lane>> {
        let shared = self.shared.upgrade()?;
        let lanes = shared.config.connections_per_peer as u64;
        let parts = Part::split(write, if write.total < SPREAD_BYTES { 1 } else { lanes });
        write.begin(parts.len());
        let spread = parts.len() > 1;
        let mut sent_over = None;
        for (slot, part) in parts.into_iter().enumerate() {
            let inline = write.total <= INLINE_BYTES;
            sent_over = self.send(part, target, spread.then_some(slot), inline);
        }
        sent_over
    }

    /// Gives a part to a connection, a new one if need be. If the calling thread has sent
    /// all of it already: the connection's lane.
    pub(super) fn send(
        self: &Arc<Self>,
        mut part: Part,
        target: &Target,
        slot: Option<usize>,
        inline: bool,
    ) -> Option<Arc<Lane>> {
        loop {
            let write = part.write.clone();
            let lane = match self.lane(target, slot) {
                Ok(lane) => lane,
                Err(error) => {
                    write.part_ended(PartEnd::Failed { error, settled: true });
                    return None;
                }
            };
            match lane.push(part, inline) {
                Ok(sent) => {
                    if write.is_stopped() && !write.has_ended() {
                        // Stopped while on its way: whoever did so has not seen it here.
                        lane.kick();
                    }
                    return sent.then_some(lane);
                }
                // The lane ended meanwhile; the next one is another.
                Err(back) => part = back,
            }
        }
    }

    fn lane(
        self: &Arc<Self>,
        target: &Target,
        slot: Option<usize>,
    ) -> Result<Arc<Lane>, TransportError> {
        let closed = || TransportError::Cancelled { peer: self.session.to_string() };
        let shared = self.shared.upgrade().filter(|s| !s.is_closed()).ok_or_else(closed)?;
        let mut lanes = self.lock_lanes();
        lanes.retain(|lane| !lane.is_closed());
        let ours = || lanes.iter().filter(|lane| lane.target == *target);
        let free = (0..shared.config.connections_per_peer)
            .find(|slot| ours().all(|lane| lane.slot != *slot));
        let (found, new_slot) = match slot {
            Some(slot) => (ours().find(|lane| lane.slot == slot), slot),
            None => {
                let least = ours().min_by_key(|lane| lane.load());
                (least.filter(|lane| lane.load() == 0 || free.is_none()), free.unwrap_or(0))
            }
        };
        if let Some(lane) = found {
            return Ok(lane.clone());
        }
        let lane = Lane::start(target.clone(), new_slot, self, &shared).map_err(|error| {
            TransportError::Local {
                what: format!("starting a connection to {}", self.session),
                reason: error.to_string(),
            }
        })?;
        lanes.push(lane.clone());
        Ok(lane)
    }

    pub(super) fn forget_closed_lanes(&self) {
        self.lock_lanes().retain(|lane| !lane.is_closed());
    }

    pub(super) fn kick_lanes(&self) {
        self.lock_lanes().iter().for_each(|lane| lane.kick());
    }

    /// Closes every connection.
    pub(super) fn close(&self, reason: &TransportError) {
        let lanes = self.lock_lanes().clone();
        lanes.iter().for_each(|lane| lane.close(reason));
        let waiting = std::mem::take(&mut self.lock_stock().waiting);
        for write in waiting {
            write.end(WriteOutcome::Failed { error: reason.clone(), settled: true });
        }
    }

    /// Asks a write to end early: at the next frame, confirmed by the peer if that is quick.
    pub(super) fn cancel(&self, write: &Arc<WriteState>) {
        self.stop(write, TransportError::Cancelled { peer: self.session.to_string() });
    }

    /// As [`Peer::cancel`], for a reason.
    pub(super) fn stop(&self, write: &Arc<WriteState>, reason: TransportError) {
        write.stop(reason.clone());
        self.drop_waiting(write, &reason);
        self.kick_lanes();
        if let Some(shared) = self.shared.upgrade() {
            shared.timer.add(Instant::now() + CANCEL_GRACE, Due::Grace, write);
        }
    }

    /// Ends a write whose time is over.
    pub(super) fn expire(&self, write: &Arc<WriteState>, due: Due) {
        if write.has_ended() {
            return;
        }
        let (hard, error) = match due {
            Due::Grace => (false, TransportError::Cancelled { peer: self.session.to_string() }),
            Due::Deadline => {
                let (peer, after) = (self.session.to_string(), write.write.timeout);
                (true, TransportError::TimedOut { peer, what: "a write", after })
            }
        };
        let lanes = self.lock_lanes().clone();
        // The future of a small write may not have been polled since its answer came.
        lanes.iter().for_each(|lane| lane.look());
        write.stop(error.clone());
        self.drop_waiting(write, &error);
        lanes.iter().for_each(|lane| lane.evict(write.serial, hard, &error));
        if let Some(shared) = self.shared.upgrade().filter(|_| !write.has_ended()) {
            // A part was between two connections: look again.
            shared.timer.add(Instant::now() + Duration::from_millis(2), due, write);
        }
    }

    fn drop_waiting(&self, write: &Arc<WriteState>, error: &TransportError) {
        let mut stock = self.lock_stock();
        let before = stock.waiting.len();
        stock.waiting.retain(|other| other.serial != write.serial);
        let was_waiting = stock.waiting.len() < before;
        drop(stock);
        if was_waiting {
            write.end(WriteOutcome::Failed { error: error.clone(), settled: true });
        }
    }

    /// Has the peer's descriptor fetched for a write; with `refresh`, also if it is known.
    pub(super) fn resolve(self: &Arc<Self>, write: Arc<WriteState>, refresh: bool) {
        let mut stock = self.lock_stock();
        if refresh {
            stock.descriptor = None;
        }
        stock.waiting.push(write);
        if std::mem::replace(&mut stock.fetching, true) {
            return;
        }
        drop(stock);
        let peer = self.clone();
        let started = match self.shared.upgrade() {
            Some(shared) => shared.spawn("kvb-descriptor", move || peer.fetch_for_waiting()),
            None => return,
        };
        if let Err(error) = started {
            let (what, reason) = ("starting a thread".into(), error.to_string());
            self.give_to_waiting(Err(TransportError::Local { what, reason }));
        }
    }

    fn fetch_for_waiting(self: &Arc<Self>) {
        while let Some(shared) = self.shared.upgrade() {
            let fetched = Descriptor::fetch(&self.session, &shared);
            if self.give_to_waiting(fetched.map(Arc::new)) {
                return;
            }
        }
    }

    /// Starts or fails the writes that waited; true once none has come since.
    fn give_to_waiting(self: &Arc<Self>, fetched: Result<Arc<Descriptor>, TransportError>) -> bool {
        let waiting = {
            let mut stock = self.lock_stock();
            stock.descriptor = fetched.as_ref().ok().cloned();
            if stock.waiting.is_empty() {
                stock.fetching = false;
                return true;
            }
            std::mem::take(&mut stock.waiting)
        };
        for write in waiting {
            match &fetched {
                Err(error) => {
                    write.end(WriteOutcome::Failed { error: error.clone(), settled: true });
                }
                Ok(descriptor) if !descriptor.covers(&write.write.copies) => {
                    write.end(WriteOutcome::Rejected(Rejection::OutsideMemory));
                }
                Ok(descriptor) => {
                    self.dispatch(&write, &descriptor.target);
                }
            }
        }
        let mut stock = self.lock_stock();
        if stock.waiting.is_empty() {
            stock.fetching = false;
        }
        !stock.fetching
    }

    /// Notes that a write has ended.
    pub(super) fn write_ended(&self, write: &WriteState, outcome: &WriteOutcome) {
        self.release();
        if let Some(shared) = self.shared.upgrade() {
            shared.write_ended(write, outcome);
        }
    }
}
