//! Memory that nodes register and peers write into.

use kvbaton_core::ids::{Address, Bytes};
use kvbaton_core::region::MemoryRange;

/// Zeroed pages at a fixed address, which exist only once they are touched.
///
/// Others write into it at any time, so it is only ever copied, never borrowed.
#[derive(Debug)]
pub struct KvMemory {
    start: *mut u8,
    len: usize,
}

// SAFETY: the pages belong to the value alone; every access copies through raw pointers and
// makes no reference into them.
unsafe impl Send for KvMemory {}
// SAFETY: as above.
unsafe impl Sync for KvMemory {}

impl KvMemory {
    /// `len` bytes.
    ///
    /// # Panics
    /// When the system has none.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new anonymous mapping touches nothing that exists.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED, "no {len} bytes: {}", std::io::Error::last_os_error());
        Self { start: start.cast(), len }
    }

    /// The whole of it.
    #[must_use]
    pub fn range(&self) -> MemoryRange {
        MemoryRange { start: Address(self.start as u64), len: Bytes(self.len as u64) }
    }

    /// A copy of some bytes, as they are now.
    ///
    /// # Panics
    /// When they lie outside.
    #[must_use]
    pub fn get(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut copy = vec![0; len];
        // SAFETY: `at` checks the bounds, and `copy` is as long. Writers may race; then the
        // copy is torn, which callers expect of bytes in transfer.
        unsafe { std::ptr::copy_nonoverlapping(self.at(offset, len), copy.as_mut_ptr(), len) };
        copy
    }

    /// Overwrites some bytes.
    ///
    /// # Panics
    /// When they lie outside.
    pub fn put(&self, offset: usize, data: &[u8]) {
        // SAFETY: `at` checks the bounds.
        unsafe {
            std::ptr::copy_nonoverlapping(data.as_ptr(), self.at(offset, data.len()), data.len());
        }
    }

    /// Overwrites some bytes with one value.
    ///
    /// # Panics
    /// When they lie outside.
    pub fn fill(&self, offset: usize, len: usize, byte: u8) {
        // SAFETY: `at` checks the bounds.
        unsafe { std::ptr::write_bytes(self.at(offset, len), byte, len) };
    }

    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        let end = offset.checked_add(len).expect("no overflow");
        assert!(end <= self.len, "{offset}+{len} is outside {} bytes", self.len);
        // SAFETY: inside the mapping, or one past its end for no bytes.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for KvMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own; whoever registered it has ended by now
        // (see `TestNode`, which drops its node first).
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}
