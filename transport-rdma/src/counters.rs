//! What the data plane counts.

use kvbaton_actors::transport::{DataCounters, Rejection};
use kvbaton_core::ids::Bytes;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters shared by every thread of one data plane.
#[derive(Default)]
pub(crate) struct Counters {
    sent: AtomicU64,
    received: AtomicU64,
    refused_grant: AtomicU64,
    refused_generation: AtomicU64,
    refused_range: AtomicU64,
    refused_connections: AtomicU64,
}

impl Counters {
    pub(crate) fn sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Relaxed);
    }

    /// Bytes that a sender says it wrote: nobody here saw them.
    pub(crate) fn received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn refused(&self, rejection: Rejection) {
        let counter = match rejection {
            Rejection::UnknownGrant | Rejection::GrantRequired => &self.refused_grant,
            Rejection::StaleGeneration => &self.refused_generation,
            Rejection::OutsideGrant | Rejection::OutsideMemory => &self.refused_range,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(crate) fn refused_connection(&self) {
        self.refused_connections.fetch_add(1, Relaxed);
    }

    pub(crate) fn read(&self) -> DataCounters {
        DataCounters {
            bytes_sent: Bytes(self.sent.load(Relaxed)),
            bytes_received: Bytes(self.received.load(Relaxed)),
            refused_grant: self.refused_grant.load(Relaxed),
            refused_generation: self.refused_generation.load(Relaxed),
            refused_range: self.refused_range.load(Relaxed),
            refused_connections: self.refused_connections.load(Relaxed),
        }
    }
}
