//! Pages for KV memory and weights. Everything unsafe about the command's memory is here.

use anyhow::{Context, Result, bail};
use kvbaton_core::ids::{Address, Bytes};
use kvbaton_core::region::MemoryRange;
use kvbaton_model_engine::KvMemory;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Pages that are zero until written, anonymous or a file's; given back on drop. They can be
/// given back earlier and taken again at the same addresses: memory that sleeps.
///
/// Raw pointers and not a slice: while a load runs the data plane writes blocks of it, and
/// Rust may not take those bytes for unchanging.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    file: Option<File>,
    /// Whether there are pages. Held while bytes are read or written here, so that none goes
    /// away under a copy.
    mapped: RwLock<bool>,
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
        Self::fresh(len, None)
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
        Self::fresh(len, Some(file))
    }

    fn fresh(len: usize, file: Option<File>) -> Result<Self> {
        let (flags, descriptor) = kind(file.as_ref());
        // SAFETY: a new mapping where the system chooses touches nothing that exists.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), len, READ_WRITE, flags, descriptor, 0) };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error())
                .with_context(|| format!("cannot map {len} bytes of KV memory"));
        }
        let Some(start) = NonNull::new(start.cast()) else { bail!("the system mapped address 0") };
        Ok(Self { start, len, file, mapped: RwLock::new(true) })
    }

    /// Gives the pages back to the system, a file's too: its bytes are gone. The addresses
    /// stay taken, and whoever touches them faults: unregister them first `[S05]`. Idempotent.
    ///
    /// # Errors
    /// When the system or the file's file system refuses: nothing has changed.
    pub fn unmap(&self) -> Result<()> {
        let mut mapped = self.mapped.write().unwrap_or_else(PoisonError::into_inner);
        if !*mapped {
            return Ok(());
        }
        if let Some(file) = &self.file {
            let flags = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: no memory is named, and the descriptor is open.
            let punched =
                unsafe { libc::fallocate(file.as_raw_fd(), flags, 0, self.len as libc::off_t) };
            if punched != 0 {
                return Err(std::io::Error::last_os_error())
                    .context("the file's pages cannot be given back");
            }
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        self.replace(libc::PROT_NONE, flags, -1).context("KV memory cannot be unmapped")?;
        *mapped = false;
        Ok(())
    }

    /// Takes new pages, all zero, at the same addresses. Idempotent.
    ///
    /// # Errors
    /// When the system refuses: nothing has changed.
    pub fn map(&self) -> Result<()> {
        let mut mapped = self.mapped.write().unwrap_or_else(PoisonError::into_inner);
        if *mapped {
            return Ok(());
        }
        let (flags, descriptor) = kind(self.file.as_ref());
        self.replace(READ_WRITE, flags, descriptor).context("KV memory cannot be mapped again")?;
        *mapped = true;
        Ok(())
    }

    /// Puts other pages where ours are.
    fn replace(&self, protection: i32, flags: i32, descriptor: i32) -> std::io::Result<()> {
        let start = self.start.as_ptr().cast();
        let flags = flags | libc::MAP_FIXED;
        // SAFETY: the range is this mapping's own since `fresh`, page-aligned, and never
        // another's until it is dropped; bytes in it are only reached under `mapped`.
        let there = unsafe { libc::mmap(start, self.len, protection, flags, descriptor, 0) };
        if there == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Whether there are pages.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        *self.pages()
    }

    /// Bytes of it that are in memory now, in whole pages; of a file, those that the system
    /// caches.
    #[must_use]
    pub fn resident(&self) -> u64 {
        // SAFETY: it asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as usize;
        let mut pages = vec![0u8; self.len.div_ceil(page)];
        // SAFETY: the range is this mapping's own, and `pages` has a byte for each page of it.
        let told =
            unsafe { libc::mincore(self.start.as_ptr().cast(), self.len, pages.as_mut_ptr()) };
        assert_eq!(told, 0, "mincore knows a range that is mapped");
        pages.iter().filter(|it| **it & 1 == 1).count() as u64 * page as u64
    }

    /// The whole of it.
    #[must_use]
    pub fn range(&self) -> MemoryRange {
        MemoryRange { start: self.start(), len: Bytes(self.len as u64) }
    }

    /// Copies `len` bytes from `offset` on; `None` outside the mapping, and while it has no
    /// pages.
    #[must_use]
    pub fn copy(&self, offset: usize, len: usize) -> Option<Vec<u8>> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        let pages = self.pages();
        if !*pages {
            return None;
        }
        let mut bytes = vec![0; len];
        let from = self.start.as_ptr().wrapping_add(offset);
        // SAFETY: the range was checked, `pages` keeps it mapped, and `bytes` is Rust's.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), len) };
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

    /// Never: a mapping has addresses.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn pages(&self) -> RwLockReadGuard<'_, bool> {
        self.mapped.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pointer to `[address, address + len)`, good while the guard lives.
    fn at(&self, address: Address, len: usize) -> (*mut u8, RwLockReadGuard<'_, bool>) {
        let offset = (address.0).checked_sub(self.start().0).map(|offset| offset as usize);
        let pages = self.pages();
        match offset {
            Some(offset) if offset.checked_add(len).is_some_and(|end| end <= self.len) => {
                assert!(*pages, "{len} bytes at {:#x} are asleep: {self:?}", address.0);
                (self.start.as_ptr().wrapping_add(offset), pages)
            }
            _ => panic!("{len} bytes at {:#x} are outside {self:?}", address.0),
        }
    }
}

/// Flags and descriptor of pages of a file, or of nothing.
fn kind(file: Option<&File>) -> (i32, i32) {
    match file {
        Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1),
    }
}

impl KvMemory for Mapping {
    fn read(&self, address: Address, out: &mut [u8]) {
        let (from, _pages) = self.at(address, out.len());
        // SAFETY: `at` checked the range and keeps it mapped, and `out` lies outside the
        // mapping: it is Rust's. Engines read blocks only while no load may write them.
        unsafe { from.copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) }
    }

    fn write(&mut self, address: Address, bytes: &[u8]) {
        let (to, _pages) = self.at(address, bytes.len());
        // SAFETY: as for `read`; engines write only blocks that they own.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
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

    /// All of it touched.
    fn written(mut mapping: Mapping) -> Mapping {
        let bytes = vec![7; mapping.len()];
        let start = mapping.start();
        mapping.write(start, &bytes);
        mapping
    }

    const LEN: usize = 1 << 20;

    #[test]
    fn s05_memory_asleep_is_given_back_and_comes_again_empty_at_the_same_addresses() {
        let mapping = written(Mapping::new(LEN).unwrap());
        let range = mapping.range();
        assert_eq!(mapping.resident(), LEN as u64);
        for _ in 0..2 {
            mapping.unmap().unwrap();
            assert!(!mapping.is_mapped());
            assert_eq!((mapping.resident(), mapping.copy(0, 1)), (0, None));
        }
        for _ in 0..2 {
            mapping.map().unwrap();
            assert_eq!((mapping.range(), mapping.resident()), (range, 0));
        }
        assert_eq!(mapping.copy(LEN - 4, 4).unwrap(), [0; 4]);
        assert_eq!(written(mapping).resident(), LEN as u64);
    }

    #[test]
    fn s05_a_file_gives_its_pages_back_too_and_keeps_what_lies_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kv");
        std::fs::write(&path, vec![3; LEN + 5]).unwrap();
        let mapping = written(Mapping::of_file(&path, LEN).unwrap());
        assert_eq!(mapping.resident(), LEN as u64);
        mapping.unmap().unwrap();
        assert_eq!(mapping.resident(), 0);
        mapping.map().unwrap();
        assert_eq!(mapping.copy(0, 2).unwrap(), [0, 0]);
        let mapping = written(mapping);
        let there = std::fs::read(&path).unwrap();
        assert_eq!((there.len(), there[LEN - 1], there[LEN + 4]), (LEN + 5, 7, 3));
        drop(mapping);
    }

    #[test]
    #[should_panic(expected = "are asleep")]
    fn s05_a_read_of_memory_asleep_is_a_bug_of_the_engine_that_says_so() {
        let mapping = Mapping::new(4096).unwrap();
        mapping.unmap().unwrap();
        mapping.read(mapping.start(), &mut [0; 2]);
    }
}
