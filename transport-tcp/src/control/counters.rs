//! What the control plane counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// Live counters; answers are dropped on any thread.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) accepted: Count,
    pub(super) received: Count,
    pub(super) answered: Count,
    pub(super) dropped_answers: Count,
    pub(super) malformed: Count,
    pub(super) oversized: Count,
    pub(super) misshapen: Count,
    pub(super) not_authentic: Count,
    pub(super) timed_out: Count,
    pub(super) crowded_out: Count,
}

/// One counter.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(super) fn snapshot(&self) -> ControlCounters {
        ControlCounters {
            accepted: self.accepted.get(),
            received: self.received.get(),
            answered: self.answered.get(),
            dropped_answers: self.dropped_answers.get(),
            malformed: self.malformed.get(),
            oversized: self.oversized.get(),
            misshapen: self.misshapen.get(),
            not_authentic: self.not_authentic.get(),
            timed_out: self.timed_out.get(),
            crowded_out: self.crowded_out.get(),
        }
    }
}

/// What the listening side has counted since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ControlCounters {
    /// Connections accepted.
    pub accepted: u64,
    /// Messages handed to the inbox.
    pub received: u64,
    /// Answers written to a peer's connection.
    pub answered: u64,
    /// Answers to peers that were gone, or that had stopped reading.
    pub dropped_answers: u64,
    /// Connections closed for bytes that are not our protocol.
    pub malformed: u64,
    /// Connections closed for a frame above the bound.
    pub oversized: u64,
    /// Messages dropped for a wrong number of parts.
    pub misshapen: u64,
    /// Connections closed for a missing or wrong proof of the cluster key `[Z04]`.
    pub not_authentic: u64,
    /// Connections closed for a handshake or frame that did not finish in time.
    pub timed_out: u64,
    /// Connections closed or refused to stay within the bounds on connections and memory.
    pub crowded_out: u64,
}
