//! KV memory of a stand-alone node: a file mapped for everyone, or anonymous pages.

use anyhow::{Context, Result, ensure};
use kvbaton_core::ids::{Address, Bytes};
use kvbaton_core::region::MemoryRange;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::Path;

/// A mapping; unmapped when dropped.
pub(super) struct Mapping {
    start: *mut u8,
    len: usize,
}

// SAFETY: the mapping is plain memory that any thread may touch; every access goes through
// raw copies that claim no exclusive ownership.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes: of `file`, which is made or grown to that length, or anonymous.
    pub fn new(file: Option<&Path>, len: usize) -> Result<Self> {
        ensure!(len > 0, "the KV memory would be empty");
        let opened = file.map(|path| open(path, len)).transpose()?;
        let (flags, descriptor) = match &opened {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the system chooses touches no memory of
        // ours; the result is checked below.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, descriptor, 0) };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error())
                .with_context(|| format!("cannot map {len} bytes of KV memory"));
        }
        Ok(Self { start: start.cast(), len })
    }

    /// The mapping's range.
    pub fn range(&self) -> MemoryRange {
        let start = Address(self.start.expose_provenance() as u64);
        MemoryRange { start, len: Bytes(self.len as u64) }
    }

    /// Copies bytes out; `None` outside the mapping.
    pub fn read(&self, offset: usize, len: usize) -> Option<Vec<u8>> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        let mut bytes = vec![0; len];
        // SAFETY: the range was checked; peers may write meanwhile, which the caller of a
        // monitoring read accepts, and the copy goes byte by byte through raw pointers.
        unsafe { std::ptr::copy_nonoverlapping(self.start.add(offset), bytes.as_mut_ptr(), len) };
        Some(bytes)
    }
}

fn open(path: &Path, len: usize) -> Result<std::fs::File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .with_context(|| format!("cannot open {} for reading and writing", path.display()))?;
    let has = file.metadata()?.len();
    if has < len as u64 {
        file.set_len(len as u64)
            .with_context(|| format!("cannot grow {} to {len} bytes", path.display()))?;
    }
    Ok(file)
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped in `new` and is unmapped once, here.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_grown_and_seen_through_the_mapping() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kv");
        std::fs::write(&path, b"abc").unwrap();
        let mapping = Mapping::new(Some(&path), 8192).unwrap();
        assert_eq!(mapping.read(0, 4).unwrap(), b"abc\0");
        assert_eq!(mapping.read(8190, 3), None);
        assert_eq!(mapping.read(usize::MAX, 2), None);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 8192);
    }
}
