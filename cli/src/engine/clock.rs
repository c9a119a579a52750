//! The machine's monotonic clock: the same for every process, so that times of P and D
//! can be subtracted. `std::time::Instant` cannot be handed to another process.

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[must_use]
pub fn monotonic_nanos() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid, writable timespec for the time of the call.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    assert_eq!(result, 0, "CLOCK_MONOTONIC exists on every Unix");
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
