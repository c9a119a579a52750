//! One thread that ends writes at their deadlines.

use super::write::WriteState;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

/// Why a write's time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// Its timeout.
    Deadline,
    /// It was cancelled, and its peer did not confirm that soon.
    Grace,
}

type Key = (Instant, u64, Due);

#[derive(Default)]
struct State {
    due: BTreeMap<Key, Weak<WriteState>>,
    /// When the thread looks again; `None` while it waits for the first entry.
    wakes_at: Option<Instant>,
    closed: bool,
}

/// The deadlines of all writes of one data plane.
#[derive(Default)]
pub(super) struct Timer {
    state: Mutex<State>,
    changed: Condvar,
}

impl Timer {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread, which calls `expired` outside every lock.
    pub(super) fn start(
        self: &Arc<Self>,
        expired: impl Fn(&Arc<WriteState>, Due) + Send + 'static,
    ) -> std::io::Result<JoinHandle<()>> {
        let timer = self.clone();
        std::thread::Builder::new().name("kvb-timer".into()).spawn(move || timer.run(expired))
    }

    /// Adds one; wakes the thread only if it would look too late, which it rarely does.
    pub(super) fn add(&self, at: Instant, due: Due, write: &Arc<WriteState>) {
        let mut state = self.lock();
        state.due.insert((at, write.serial, due), Arc::downgrade(write));
        if state.wakes_at.is_none_or(|wakes| at < wakes) {
            state.wakes_at = Some(at);
            self.changed.notify_one();
        }
    }

    /// Forgets a write's deadline.
    pub(super) fn remove(&self, write: &WriteState) {
        self.lock().due.remove(&(write.deadline, write.serial, Due::Deadline));
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    fn run(&self, expired: impl Fn(&Arc<WriteState>, Due)) {
        let mut state = self.lock();
        while !state.closed {
            let now = Instant::now();
            let next = state.due.first_key_value().map(|(key, _)| *key);
            if let Some(key) = next.filter(|key| key.0 <= now) {
                let write = state.due.remove(&key).and_then(|write| write.upgrade());
                drop(state);
                if let Some(write) = write {
                    expired(&write, key.2);
                }
                state = self.lock();
                continue;
            }
            state.wakes_at = next.map(|key| key.0);
            state = match state.wakes_at {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let waited = self.changed.wait_timeout(state, at - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}
