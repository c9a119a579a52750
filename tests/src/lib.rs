//! What the suites across crates share: processes that are driven by lines of JSON, real
//! peers, pulls that vLLM sent, and nodes with memory of their own.
//!
//! Everything here panics with what happened when a peer misbehaves: that fails the test.

pub mod captured;
pub mod memory;
pub mod mooncake;
pub mod node;
pub mod peer;
pub mod python;
pub mod stock;

use std::time::{Duration, Instant};

/// Longest wait for anything that must happen. Generous: a machine may be busy; a test that
/// waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `holds`, looking again and again.
///
/// # Panics
/// When it does not hold within [`PATIENCE`].
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}
