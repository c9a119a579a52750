//! A link as other threads see it: a queue of writes and a bell.

use super::worker::Worker;
use crate::plane::Shared;
use crate::write::WriteState;
use kvbaton_actors::transport::{TransportError, WriteOutcome};
use kvbaton_core::ids::{Generation, SessionAddress};
use kvbaton_transport_tcp::data::net::Wake;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Writes towards one registration of one peer. A stale generation is never connected to
/// again: each has its own queue pairs.
pub(crate) struct Link {
    pub(crate) session: SessionAddress,
    pub(crate) generation: Generation,
    shared: Weak<Shared>,
    queue: Mutex<Queue>,
    /// Writes that have not ended.
    open: AtomicUsize,
    wake: Wake,
}

#[derive(Default)]
struct Queue {
    new: VecDeque<Arc<WriteState>>,
    /// Its thread has ended or is about to.
    closed: bool,
}

impl Link {
    /// Makes a link and starts its thread.
    pub(crate) fn start(
        session: &SessionAddress,
        generation: Generation,
        shared: &Arc<Shared>,
    ) -> Result<Arc<Self>, TransportError> {
        let local = |error: std::io::Error| TransportError::Local {
            what: format!("writing to {session}"),
            reason: error.to_string(),
        };
        let link = Arc::new(Self {
            session: session.clone(),
            generation,
            shared: Arc::downgrade(shared),
            queue: Mutex::default(),
            open: AtomicUsize::new(0),
            wake: Wake::new().map_err(local)?,
        });
        let (worker, peer) = (Worker::new(link.clone(), shared.clone()), link.session.clone());
        shared.spawn("kvb-rdma-send", move || worker.run()).map_err(|error| {
            TransportError::Local { what: format!("writing to {peer}"), reason: error.to_string() }
        })?;
        Ok(link)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves room for one write.
    pub(crate) fn reserve(&self, most: usize) -> Result<(), TransportError> {
        if self.open.fetch_add(1, SeqCst) < most {
            return Ok(());
        }
        self.open.fetch_sub(1, SeqCst);
        Err(TransportError::Local {
            what: format!("writing to {}", self.session),
            reason: "`max_writes_per_peer` writes are under way; raise it".into(),
        })
    }

    /// Gives back what was reserved for a write that was not submitted.
    pub(crate) fn unreserve(&self) {
        self.open.fetch_sub(1, SeqCst);
    }

    /// Hands a write over; false when the link has ended.
    pub(crate) fn submit(&self, write: Arc<WriteState>) -> bool {
        let mut queue = self.lock();
        if queue.closed {
            return false;
        }
        queue.new.push_back(write);
        drop(queue);
        self.wake();
        true
    }

    /// Whether no write is open.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.load(SeqCst) == 0
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Lets its thread end: at once when nothing is open, else when its writes have ended.
    pub(crate) fn close_if_idle(&self) -> bool {
        let mut queue = self.lock();
        if queue.new.is_empty() && self.is_idle() {
            queue.closed = true;
        }
        let closed = queue.closed;
        drop(queue);
        if closed {
            self.wake();
        }
        closed
    }

    /// No more writes, for good; those that wait are given out.
    pub(crate) fn close(&self) -> VecDeque<Arc<WriteState>> {
        let mut queue = self.lock();
        queue.closed = true;
        std::mem::take(&mut queue.new)
    }

    /// The writes that came since.
    pub(crate) fn take_new(&self) -> VecDeque<Arc<WriteState>> {
        std::mem::take(&mut self.lock().new)
    }

    pub(crate) fn wake(&self) {
        self.wake.wake();
    }

    pub(crate) fn wake_fd(&self) -> RawFd {
        self.wake.fd()
    }

    pub(crate) fn clear_wake(&self) {
        self.wake.clear();
    }

    pub(crate) fn write_ended(&self, write: &WriteState, outcome: &WriteOutcome) {
        self.unreserve();
        if let Some(shared) = self.shared.upgrade() {
            shared.write_ended(write, outcome);
        }
    }
}
