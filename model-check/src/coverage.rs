//! What was seen on the way, so that a pass is no empty one.

use std::sync::atomic::{AtomicU64, Ordering};

/// Something worth reaching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// A load ended with all its bytes.
    Loaded,
    /// A load failed.
    Failed,
    /// A load ended as dropped.
    Dropped,
    /// A pull without a layout was served.
    LayoutLess,
    /// LAYOUT_MISS was answered.
    LayoutMiss,
    /// An echo of an older layout id arrived.
    LateEcho,
    /// A pull for the process before a restart was refused.
    OldIncarnation,
    /// A pull was refused, since P's memory was not registered.
    Asleep,
    /// D's data plane refused bytes.
    Refused,
    /// A write of a process that is gone, or that was given up, was still taken.
    LateButAllowed,
    /// A running write was cancelled.
    Cancelled,
    /// A drop came before its pull.
    EarlyDrop,
    /// A held transfer expired.
    Expired,
    /// A pull was answered since its deadline came.
    TimedOut,
    /// Nothing could happen any more.
    Rest,
}

/// Each thing's name, in the order of [`Seen`].
const NAMES: [&str; 15] = [
    "loaded",
    "failed",
    "dropped",
    "layout-less pull served",
    "LAYOUT_MISS",
    "late echo",
    "pull of an old incarnation",
    "pull while asleep",
    "write refused",
    "late write in live rows",
    "write cancelled",
    "drop before its pull",
    "hold expired",
    "pull timed out",
    "rest",
];

/// How many transitions did what.
#[derive(Debug, Default)]
pub struct Coverage([AtomicU64; NAMES.len()]);

impl Coverage {
    pub(crate) fn saw(&self, what: Seen) {
        self.0[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many transitions did it.
    #[must_use]
    pub fn of(&self, what: Seen) -> u64 {
        self.0[what as usize].load(Ordering::Relaxed)
    }

    /// Names and counts.
    #[must_use]
    pub fn list(&self) -> Vec<(&'static str, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        NAMES.into_iter().zip(counts).collect()
    }
}
