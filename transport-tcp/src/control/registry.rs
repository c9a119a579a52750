//! The connections of one listener, and which of them goes when there are too many.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

/// Names one connection; grows, so the smallest is the oldest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ConnectionId(u64);

/// What is known of one connection.
pub(super) struct Entry {
    /// Free places for unanswered messages.
    pub(super) unanswered: Arc<Semaphore>,
    delivered: Cell<bool>,
    buffered: Cell<usize>,
    unfinished_since: Cell<Option<Instant>>,
    task: RefCell<Option<AbortHandle>>,
}

impl Entry {
    /// Notes that the connection has sent a whole message.
    pub(super) fn delivered(&self) {
        self.delivered.set(true);
    }

    fn abort(&self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// The connections of one listener. Dropping it closes them all.
pub(super) struct Registry {
    max_connections: usize,
    max_unanswered: usize,
    max_buffered: usize,
    next: Cell<u64>,
    buffered: Cell<usize>,
    entries: RefCell<BTreeMap<ConnectionId, Rc<Entry>>>,
}

impl Registry {
    pub(super) fn new(limits: &super::ControlLimits) -> Self {
        Self {
            max_connections: limits.max_connections.max(1),
            max_unanswered: limits.max_unanswered.max(1),
            max_buffered: limits.max_buffered,
            next: Cell::new(0),
            buffered: Cell::new(0),
            entries: RefCell::default(),
        }
    }

    /// Makes room for one connection: the oldest goes that has sent nothing yet, or has
    /// nothing unanswered. Returns whether there is room, and whether one had to go.
    pub(super) fn make_room(&self) -> (bool, bool) {
        if self.entries.borrow().len() < self.max_connections {
            return (true, false);
        }
        let evicted = self.evict_silent();
        (evicted, evicted)
    }

    /// Closes the oldest silent connection, if there is one.
    pub(super) fn evict_silent(&self) -> bool {
        let silent = {
            let entries = self.entries.borrow();
            let idle = |entry: &Entry| entry.unanswered.available_permits() == self.max_unanswered;
            let silent = |entry: &Entry| !entry.delivered.get() || idle(entry);
            entries.iter().find(|(_, entry)| silent(entry)).map(|(&id, _)| id)
        };
        silent.is_some_and(|id| self.close(id))
    }

    pub(super) fn add(&self) -> (ConnectionId, Rc<Entry>) {
        let id = ConnectionId(self.next.get());
        self.next.set(id.0 + 1);
        let entry = Rc::new(Entry {
            unanswered: Arc::new(Semaphore::new(self.max_unanswered)),
            delivered: Cell::new(false),
            buffered: Cell::new(0),
            unfinished_since: Cell::new(None),
            task: RefCell::new(None),
        });
        self.entries.borrow_mut().insert(id, entry.clone());
        (id, entry)
    }

    /// Says which task serves a connection.
    pub(super) fn attach(&self, id: ConnectionId, task: AbortHandle) {
        if let Some(entry) = self.entries.borrow().get(&id) {
            entry.task.replace(Some(task));
        }
    }

    /// Forgets a connection whose task has ended.
    pub(super) fn remove(&self, id: ConnectionId) -> Option<Rc<Entry>> {
        let entry = self.entries.borrow_mut().remove(&id)?;
        self.buffered.set(self.buffered.get() - entry.buffered.replace(0));
        Some(entry)
    }

    fn close(&self, id: ConnectionId) -> bool {
        let entry = self.remove(id);
        entry.inspect(|entry| entry.abort()).is_some()
    }

    /// Notes how many bytes of an unfinished frame a connection holds. Beyond the bound
    /// over all of them, the one that is unfinished for longest goes. Returns how many went.
    pub(super) fn set_buffered(&self, id: ConnectionId, bytes: usize) -> usize {
        if let Some(entry) = self.entries.borrow().get(&id) {
            let before = entry.buffered.replace(bytes);
            self.buffered.set(self.buffered.get() - before + bytes);
            if bytes == 0 {
                entry.unfinished_since.set(None);
            } else if before == 0 {
                entry.unfinished_since.set(Some(Instant::now()));
            }
        }
        let mut closed = 0;
        while self.buffered.get() > self.max_buffered {
            let oldest = {
                let entries = self.entries.borrow();
                let unfinished = entries
                    .iter()
                    .filter_map(|(&id, entry)| Some((entry.unfinished_since.get()?, id)));
                unfinished.min().map(|(_, id)| id)
            };
            let Some(oldest) = oldest else { break };
            self.close(oldest);
            closed += 1;
        }
        closed
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        for entry in self.entries.get_mut().values() {
            entry.abort();
        }
    }
}
