//! One outgoing write: how its parts ended, and the future that its caller holds.

use super::lane::Lane;
use super::memory::Registered;
use super::peer::Peer;
use kvbaton_actors::transport::{PeerKind, Rejection, TransportError, Write, WriteOutcome};
use kvbaton_core::ids::SessionAddress;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// How the part of a write that one connection carried ended.
#[derive(Debug, Clone)]
pub(super) enum PartEnd {
    /// Acknowledged, whole.
    Applied,
    /// Given up; nothing of it can land any more.
    Aborted,
    /// Refused; nothing of it can land any more.
    Refused(Rejection),
    /// Failed.
    Failed { error: TransportError, settled: bool },
}

/// One write in flight.
pub(super) struct WriteState {
    /// Unique in this data plane, unlike what a caller may do with ids.
    pub(super) serial: u64,
    pub(super) write: Write,
    pub(super) total: u64,
    pub(super) sources: Vec<Arc<Registered>>,
    pub(super) deadline: Instant,
    peer: Weak<Peer>,
    stop: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    parts_left: usize,
    stop_reason: Option<TransportError>,
    refused: Option<Rejection>,
    failed: Option<TransportError>,
    unsettled: bool,
    /// Whether a part was not applied whole.
    incomplete: bool,
    retried: bool,
    outcome: Option<WriteOutcome>,
    waker: Option<Waker>,
}

impl WriteState {
    pub(super) fn new(
        serial: u64,
        write: Write,
        sources: Vec<Arc<Registered>>,
        peer: &Arc<Peer>,
    ) -> Self {
        let total = write.copies.iter().map(|copy| copy.len.0).sum();
        // A century is "no deadline" and does not overflow the clock.
        let timeout = write.timeout.min(Duration::from_secs(100 * 365 * 86_400));
        let deadline = Instant::now() + timeout;
        let (peer, stop) = (Arc::downgrade(peer), AtomicBool::new(false));
        Self { serial, write, total, sources, deadline, peer, stop, inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn peer(&self) -> Option<Arc<Peer>> {
        self.peer.upgrade()
    }

    /// Whether no further frame of it may be sent.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(SeqCst)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.lock().outcome.is_some()
    }

    /// Lets no further frame be sent; the first reason is the one reported.
    pub(super) fn stop(&self, reason: TransportError) {
        self.lock().stop_reason.get_or_insert(reason);
        self.stop.store(true, SeqCst);
    }

    /// Notes a refusal that was told before all was sent; the rest is not sent.
    pub(super) fn refuse(&self, rejection: Rejection) {
        self.lock().refused.get_or_insert(rejection);
        self.stop.store(true, SeqCst);
    }

    /// Starts (again) with so many parts.
    pub(super) fn begin(&self, parts: usize) {
        self.lock().parts_left = parts;
    }

    /// Notes how one part ended. The last one ends the write.
    pub(super) fn part_ended(self: &Arc<Self>, end: PartEnd) {
        let mut inner = self.lock();
        inner.incomplete |= !matches!(end, PartEnd::Applied);
        match end {
            PartEnd::Applied => {}
            PartEnd::Aborted => self.stop.store(true, SeqCst),
            PartEnd::Refused(rejection) => {
                inner.refused.get_or_insert(rejection);
                self.stop.store(true, SeqCst);
            }
            PartEnd::Failed { error, settled } => {
                inner.failed.get_or_insert(error);
                inner.unsettled |= !settled;
                self.stop.store(true, SeqCst);
            }
        }
        inner.parts_left = inner.parts_left.saturating_sub(1);
        if inner.parts_left > 0 {
            let others_must_stop = self.is_stopped();
            drop(inner);
            if let Some(peer) = self.peer().filter(|_| others_must_stop) {
                peer.kick_lanes();
            }
            return;
        }
        let outcome = inner.conclude(&self.write.session);
        if self.may_retry(&mut inner, &outcome) {
            drop(inner);
            if let Some(peer) = self.peer() {
                return peer.resolve(self.clone(), true);
            }
            inner = self.lock();
        }
        self.finish(inner, outcome);
    }

    /// Ends it without any part: nothing was sent.
    pub(super) fn end(self: &Arc<Self>, outcome: WriteOutcome) {
        self.finish(self.lock(), outcome);
    }

    fn finish(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>, outcome: WriteOutcome) {
        if inner.outcome.is_some() {
            return;
        }
        self.stop.store(true, SeqCst);
        if let Some(peer) = self.peer() {
            peer.write_ended(self, &outcome);
        }
        inner.outcome = Some(outcome);
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// A stock peer may have registered again since its descriptor was fetched: fetch it
    /// again and retry, once, if nothing of this try can land.
    fn may_retry(&self, inner: &mut Inner, outcome: &WriteOutcome) -> bool {
        let stale = match outcome {
            WriteOutcome::Rejected(_) => true,
            WriteOutcome::Failed { error, settled } => {
                use TransportError::{Disconnected, Unreachable};
                *settled && matches!(error, Unreachable { .. } | Disconnected { .. })
            }
            WriteOutcome::Written => false,
        };
        let retry = self.write.kind == PeerKind::Mooncake
            && stale
            && inner.stop_reason.is_none()
            && !inner.retried
            && Instant::now() < self.deadline;
        if retry {
            *inner = Inner { retried: true, waker: inner.waker.take(), ..Inner::default() };
            self.stop.store(false, SeqCst);
        }
        retry
    }
}

impl Inner {
    /// The outcome once every part has ended.
    fn conclude(&self, peer: &SessionAddress) -> WriteOutcome {
        if !self.incomplete {
            // Also when it was to stop: all of it was applied before that took effect.
            return WriteOutcome::Written;
        }
        let error = self.stop_reason.clone().or(self.failed.clone());
        match (self.unsettled, self.refused, error) {
            (false, Some(rejection), _) => WriteOutcome::Rejected(rejection),
            (unsettled, _, error) => WriteOutcome::Failed {
                error: error.unwrap_or_else(|| TransportError::Malformed {
                    peer: peer.to_string(),
                    what: "the end of a batch that was not given up".into(),
                }),
                settled: !unsettled,
            },
        }
    }
}

/// What the caller of a write awaits. Dropping it asks the write to end early.
pub(super) struct WriteFuture {
    pub(super) write: Arc<WriteState>,
    /// For a small write that was sent by the caller's thread: where to look for its
    /// acknowledgement, and how long, when the future is first polled.
    pub(super) spin: Option<(Arc<Lane>, Duration)>,
}

impl Future for WriteFuture {
    type Output = WriteOutcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<WriteOutcome> {
        if let Some((lane, spin)) = self.spin.take() {
            lane.spin_for(|| self.write.has_ended(), spin);
        }
        let mut inner = self.write.lock();
        if let Some(outcome) = &inner.outcome {
            return Poll::Ready(outcome.clone());
        }
        if !inner.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            inner.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for WriteFuture {
    fn drop(&mut self) {
        if let Some(peer) = self.write.peer().filter(|_| !self.write.has_ended()) {
            peer.cancel(&self.write);
        }
    }
}
