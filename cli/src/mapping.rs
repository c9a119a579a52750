//! Pages for KV memory. Everything unsafe about the command's memory is here.

use anyhow::{Context, Result, bail};
use kvbaton_core::ids::{Address, Bytes};
use kvbaton_core::region::MemoryRange;
use kvbaton_model_engine::KvMemory;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;

/// Pages that are zero until written, anonymous or a file's; given back on drop.
///
/// Raw pointers and not a slice: while a load runs the data plane writes blocks of it, and
/// Rust may not take those bytes for unchanging.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the pages belong to no thread, and `Mapping` hands out no references into them.
unsafe impl Send for Mapping {}
// SAFETY: as above; what is read while a peer writes it may be torn, which callers accept.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `len` bytes, page-aligned. Pages are taken from the system as they are touched.
    ///
    /// # Errors
    /// When `len` is 0 or the system refuses.
    pub fn new(len: usize) -> Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        Self::map(len, flags, -1)
    }

    /// The first `len` bytes of a file, shared with whoever else maps it. The file is
    /// made, or grown to that length.
    ///
    /// # Errors
    /// When the file cannot be opened, grown or mapped.
    pub fn of_file(path: &Path, len: usize) -> Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path);
        let file = file.with_context(|| format!("cannot open {} for writing", path.display()))?;
        if file.metadata()?.len() < len as u64 {
            file.set_len(len as u64)
                .with_context(|| format!("cannot grow {} to {len} bytes", path.display()))?;
        }
        Self::map(len, libc::MAP_SHARED, file.as_raw_fd())
    }

    fn map(len: usize, flags: i32, descriptor: i32) -> Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping where the system chooses touches nothing that exists.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, descriptor, 0) };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error())
                .with_context(|| format!("cannot map {len} bytes of KV memory"));
        }
        let Some(start) = NonNull::new(start.cast()) else { bail!("the system mapped address 0") };
        Ok(Self { start, len })
    }

    /// The whole of it.
    #[must_use]
    pub fn range(&self) -> MemoryRange {
        MemoryRange { start: self.start(), len: Bytes(self.len as u64) }
    }

    /// Copies `len` bytes from `offset` on; `None` outside the mapping.
    #[must_use]
    pub fn copy(&self, offset: usize, len: usize) -> Option<Vec<u8>> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        let mut bytes = vec![0; len];
        self.read(Address(self.start().0 + offset as u64), &mut bytes);
        Some(bytes)
    }

    /// Address of the first byte.
    #[must_use]
    pub fn start(&self) -> Address {
        Address(self.start.as_ptr() as u64)
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Never: a mapping has pages.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Pointer to `[address, address + len)`.
    fn at(&self, address: Address, len: usize) -> *mut u8 {
        let offset = (address.0).checked_sub(self.start().0).map(|offset| offset as usize);
        match offset {
            Some(offset) if offset.checked_add(len).is_some_and(|end| end <= self.len) => {
                self.start.as_ptr().wrapping_add(offset)
            }
            _ => panic!("{len} bytes at {:#x} are outside {self:?}", address.0),
        }
    }
}

impl KvMemory for Mapping {
    fn read(&self, address: Address, out: &mut [u8]) {
        // SAFETY: `at` checked the range, and `out` lies outside the mapping: it is Rust's.
        // Engines read blocks only while no load may write them.
        unsafe { self.at(address, out.len()).copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) }
    }

    fn write(&mut self, address: Address, bytes: &[u8]) {
        // SAFETY: as for `read`; engines write only blocks that they own.
        unsafe {
            self.at(address, bytes.len()).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `mmap` with this length, and nobody has a pointer any more: nodes
        // that registered it were dropped before.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_written_are_read_back_and_the_rest_is_zero() {
        let mut mapping = Mapping::new(8192).unwrap();
        let at = |offset| Address(mapping.start().0 + offset);
        let (end, before) = (at(8190), at(8186));
        mapping.write(end, &[1, 2]);
        let mut out = [9; 6];
        mapping.read(before, &mut out);
        assert_eq!(out, [0, 0, 0, 0, 1, 2]);
    }

    #[test]
    #[should_panic(expected = "are outside")]
    fn a_byte_past_the_end_is_a_bug_of_the_engine() {
        let mapping = Mapping::new(4096).unwrap();
        mapping.read(Address(mapping.start().0 + 4095), &mut [0; 2]);
    }

    #[test]
    fn a_file_is_grown_and_seen_through_the_mapping() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kv");
        std::fs::write(&path, b"abc").unwrap();
        let mapping = Mapping::of_file(&path, 8192).unwrap();
        assert_eq!(mapping.copy(0, 4).unwrap(), b"abc\0");
        assert_eq!(mapping.copy(8190, 3), None);
        assert_eq!(mapping.copy(usize::MAX, 2), None);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 8192);
    }
}
