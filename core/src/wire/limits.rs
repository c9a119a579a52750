//! Bounds on what a peer may send `[Z01]`.

/// Bounds that decoding enforces before it uses a size or a count.
///
/// Whatever the limits, decoding never allocates more than a small constant times the
/// bytes that are really there: a header that claims 2^32 elements reserves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one message.
    pub frame_bytes: usize,
    /// Requests of one pull, transfers of one drop, entries of each list of a reply.
    pub requests: usize,
    /// Entries of each layout column, and ranges of registered memory.
    pub regions: usize,
    /// KV groups of one request, and groups that share one region.
    pub groups: usize,
    /// Blocks that one request may name over all its groups. Runs make a large number
    /// cheap to write, so the frame does not bound it.
    pub blocks_per_request: u64,
    /// Bytes of one string.
    pub string_bytes: usize,
    /// Arrays and maps inside one another, in fields that are skipped.
    pub nesting: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: 16 << 20,
            requests: 4096,
            regions: 65_536,
            groups: 256,
            blocks_per_request: u32::MAX as u64,
            string_bytes: 64 << 10,
            nesting: 32,
        }
    }
}
