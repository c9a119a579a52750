//! What a node tells its engine: blocks that come back, loads that ended.

use kvbaton_core::ids::{RequestId, TransferId};
use kvbaton_core::receiver::LoadEnd;
use kvbaton_core::sender::Ended;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// One thing the engine must know. Each comes exactly once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// P: a held request's blocks are the engine's again `[P01]`.
    SendEnded {
        /// P's request.
        request: RequestId,
        /// The transfer.
        transfer: TransferId,
        /// How it ended.
        ended: Ended,
    },
    /// D: a load ended and its blocks are the engine's again `[P08]`.
    LoadEnded {
        /// D's request.
        request: RequestId,
        /// The transfer.
        transfer: TransferId,
        /// How it ended.
        end: LoadEnd,
    },
}

/// Events in order, from the node's thread to whoever polls.
#[derive(Debug, Clone, Default)]
pub struct EventQueue {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    closed: bool,
    wakers: Vec<Waker>,
}

impl EventQueue {
    /// Appends an event and wakes who waits.
    pub fn push(&self, event: Event) {
        self.change(|queue| queue.events.push_back(event));
    }

    /// No event follows: who waits is woken.
    pub fn close(&self) {
        self.change(|queue| queue.closed = true);
    }

    /// Takes what is there, without waiting.
    #[must_use]
    pub fn drain(&self) -> Vec<Event> {
        self.lock().events.drain(..).collect()
    }

    /// Waits until there are events, the node has stopped, or `bound` has passed.
    #[must_use]
    pub fn wait(&self, bound: Duration) -> Vec<Event> {
        let until = Instant::now() + bound;
        let mut queue = self.lock();
        while queue.events.is_empty() && !queue.closed {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.shared.arrived.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        queue.events.drain(..).collect()
    }

    /// Completes once there are events, or the node has stopped (then empty).
    pub async fn next(&self) -> Vec<Event> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&self, context: &mut Context<'_>) -> Poll<Vec<Event>> {
        let mut queue = self.lock();
        if queue.events.is_empty() && !queue.closed {
            queue.wakers.retain(|waker| !waker.will_wake(context.waker()));
            queue.wakers.push(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(queue.events.drain(..).collect())
    }

    fn change(&self, change: impl FnOnce(&mut Queue)) {
        let wakers = {
            let mut queue = self.lock();
            change(&mut queue);
            std::mem::take(&mut queue.wakers)
        };
        self.shared.arrived.notify_all();
        for waker in wakers {
            waker.wake();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
