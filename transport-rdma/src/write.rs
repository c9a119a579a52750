//! One outgoing write as its caller, its link and the clock see it.

use crate::memory::Sources;
use crate::outbound::Link;
use crate::promise::Promise;
use kvbaton_actors::transport::{TransportError, Write, WriteOutcome};
use kvbaton_core::ids::Generation;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Why a write is to end early.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    pub(crate) error: TransportError,
    /// Whether what is in flight may not be waited for: the memory goes away.
    pub(crate) at_once: bool,
}

enum Phase {
    /// Nothing of it is posted; `unsettled`: but was, and its peer did not confirm a fence.
    Queued {
        unsettled: bool,
    },
    /// Its link works on it.
    Active,
    Ended,
}

struct Inner {
    phase: Phase,
    stop: Option<Stop>,
    sources: Sources,
}

/// One write.
pub(crate) struct WriteState {
    /// Unique in this data plane, unlike what a caller may do with ids.
    pub(crate) serial: u64,
    pub(crate) write: Write,
    pub(crate) total: u64,
    pub(crate) deadline: Instant,
    link: Weak<Link>,
    inner: Mutex<Inner>,
    outcome: Promise<WriteOutcome>,
}

impl WriteState {
    pub(crate) fn new(serial: u64, write: Write, sources: Sources, link: &Arc<Link>) -> Self {
        let total = write.copies.iter().map(|copy| copy.len.0).sum();
        // A century is "no deadline" and does not overflow the clock.
        let timeout = write.timeout.min(Duration::from_secs(100 * 365 * 86_400));
        let inner = Inner { phase: Phase::Queued { unsettled: false }, stop: None, sources };
        Self {
            serial,
            write,
            total,
            deadline: Instant::now() + timeout,
            link: Arc::downgrade(link),
            inner: Mutex::new(inner),
            outcome: Promise::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.lock().phase, Phase::Ended)
    }

    /// Whether it reads memory of a registration.
    pub(crate) fn reads(&self, generation: Generation) -> bool {
        self.lock().sources.iter().any(|it| it.generation == generation)
    }

    /// Asks it to end. What is not posted ends here; the rest is for its link. The first
    /// reason is the one reported.
    pub(crate) fn stop(self: &Arc<Self>, error: TransportError, at_once: bool) {
        let mut inner = self.lock();
        match inner.phase {
            Phase::Ended => {}
            Phase::Queued { unsettled } => {
                drop(inner);
                self.end(WriteOutcome::Failed { error, settled: !unsettled });
            }
            Phase::Active => {
                let stop = inner.stop.get_or_insert(Stop { error, at_once });
                stop.at_once |= at_once;
                drop(inner);
                if let Some(link) = self.link.upgrade() {
                    link.wake();
                }
            }
        }
    }

    /// Whether it was asked to end.
    pub(crate) fn stopped(&self) -> Option<Stop> {
        self.lock().stop.clone()
    }

    /// The link begins to work on it, and may post requests that read its memory; `None`
    /// when it has ended already.
    pub(crate) fn activate(&self) -> Option<Sources> {
        let mut inner = self.lock();
        if !matches!(inner.phase, Phase::Queued { .. }) {
            return None;
        }
        inner.phase = Phase::Active;
        Some(inner.sources.clone())
    }

    /// Nothing of it is posted any more, but it is to be tried again. False when it was
    /// asked to end meanwhile.
    pub(crate) fn requeue(&self, unsettled: bool) -> bool {
        let mut inner = self.lock();
        if inner.stop.is_some() {
            return false;
        }
        inner.phase = Phase::Queued { unsettled };
        true
    }

    /// Ends it: its memory is not read any more.
    pub(crate) fn end(self: &Arc<Self>, outcome: WriteOutcome) {
        let mut inner = self.lock();
        if matches!(inner.phase, Phase::Ended) {
            return;
        }
        inner.phase = Phase::Ended;
        let sources = std::mem::take(&mut inner.sources);
        drop(inner);
        // Ends a registration that waits for this, so before anybody hears of it.
        drop(sources);
        if let Some(link) = self.link.upgrade() {
            link.write_ended(self, &outcome);
        }
        self.outcome.set(outcome);
    }
}

/// What the caller of a write awaits. Dropping it asks the write to end early.
pub(crate) struct WriteFuture(pub(crate) Arc<WriteState>);

impl Future for WriteFuture {
    type Output = WriteOutcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<WriteOutcome> {
        let mut outcome = self.0.outcome.clone();
        Pin::new(&mut outcome).poll(context)
    }
}

impl Drop for WriteFuture {
    fn drop(&mut self) {
        if !self.0.outcome.is_set() {
            let peer = self.0.write.session.to_string();
            self.0.stop(TransportError::Cancelled { peer }, false);
        }
    }
}
