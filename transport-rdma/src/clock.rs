//! One thread that does things at their time: deadlines of writes, ends of patience.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

type Task = Box<dyn FnOnce() + Send>;

/// Names a task, to forget it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due(Instant, u64);

#[derive(Default)]
struct State {
    due: BTreeMap<Due, Task>,
    next: u64,
    wakes_at: Option<Instant>,
    closed: bool,
}

/// What is due when.
#[derive(Default)]
pub(crate) struct Clock {
    state: Mutex<State>,
    changed: Condvar,
}

impl Clock {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread, which runs tasks outside every lock. Tasks must be short.
    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let clock = self.clone();
        std::thread::Builder::new().name("kvb-rdma-clock".into()).spawn(move || clock.run())
    }

    /// Does something at a time, unless it is forgotten before.
    pub(crate) fn at(&self, time: Instant, task: impl FnOnce() + Send + 'static) -> Due {
        let mut state = self.lock();
        state.next += 1;
        let due = Due(time, state.next);
        state.due.insert(due, Box::new(task));
        if state.wakes_at.is_none_or(|wakes| time < wakes) {
            state.wakes_at = Some(time);
            self.changed.notify_one();
        }
        due
    }

    pub(crate) fn forget(&self, due: Due) {
        let task = self.lock().due.remove(&due);
        drop(task);
    }

    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    fn run(&self) {
        let mut state = self.lock();
        while !state.closed {
            let now = Instant::now();
            let next = state.due.first_key_value().map(|(due, _)| due.0);
            if next.is_some_and(|time| time <= now) {
                let task = state.due.pop_first();
                drop(state);
                if let Some((_, task)) = task {
                    task();
                }
                state = self.lock();
                continue;
            }
            state.wakes_at = next;
            state = match next {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(time) => {
                    let waited = self.changed.wait_timeout(state, time - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}
