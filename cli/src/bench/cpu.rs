//! Processor time of this process.

/// User and system time of all threads, in seconds.
pub(super) fn seconds() -> f64 {
    // SAFETY: all zeroes is a valid `rusage`, and the call fills a live one.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
