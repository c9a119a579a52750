//! A rank's memory: one range of addresses, and the physical pages behind it. Sleeping takes
//! the pages away; waking puts new ones at the same addresses. A registration pins the pages
//! that were there when it was made.

use kvbaton_core::ids::{Address, Bytes};
use kvbaton_core::region::MemoryRange;
use kvbaton_model_engine::KvMemory;
use std::sync::{Arc, Mutex};

/// What new pages are full of.
const GARBAGE: u8 = 0x5c;

/// Physical pages: whoever has them can read and write them, mapped or not.
#[derive(Debug)]
pub struct Pages {
    start: Address,
    bytes: Mutex<Vec<u8>>,
}

impl Pages {
    fn new(range: MemoryRange) -> Arc<Self> {
        let bytes = vec![GARBAGE; usize::try_from(range.len.0).expect("a small world")];
        Arc::new(Self { start: range.start, bytes: Mutex::new(bytes) })
    }

    fn with<R>(&self, address: Address, len: usize, act: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut bytes = self.bytes.lock().expect("no panic under the lock");
        let at = usize::try_from(address.0 - self.start.0).expect("a small world");
        act(&mut bytes[at..at + len])
    }

    /// Reads bytes that lie inside.
    pub fn read(&self, address: Address, out: &mut [u8]) {
        self.with(address, out.len(), |bytes| out.copy_from_slice(bytes));
    }

    /// Writes bytes that lie inside.
    pub fn write(&self, address: Address, bytes: &[u8]) {
        self.with(address, bytes.len(), |place| place.copy_from_slice(bytes));
    }
}

/// One rank's address range and what is mapped there. Clones see the same memory.
#[derive(Debug, Clone)]
pub struct SimMemory {
    range: MemoryRange,
    mapped: Arc<Mutex<Option<Arc<Pages>>>>,
}

impl SimMemory {
    /// Memory with pages.
    #[must_use]
    pub fn new(range: MemoryRange) -> Self {
        let memory = Self { range, mapped: Arc::default() };
        memory.map();
        memory
    }

    /// The addresses.
    #[must_use]
    pub const fn range(&self) -> MemoryRange {
        self.range
    }

    /// Maps new pages, full of garbage.
    pub fn map(&self) {
        *self.lock() = Some(Pages::new(self.range));
    }

    /// Takes the pages away.
    pub fn unmap(&self) {
        *self.lock() = None;
    }

    /// The pages that are mapped now.
    #[must_use]
    pub fn pages(&self) -> Option<Arc<Pages>> {
        self.lock().clone()
    }

    /// Whether these very pages are mapped.
    #[must_use]
    pub fn shows(&self, pages: &Arc<Pages>) -> bool {
        self.lock().as_ref().is_some_and(|mapped| Arc::ptr_eq(mapped, pages))
    }

    /// Whether a range lies inside.
    #[must_use]
    pub fn contains(&self, address: Address, len: Bytes) -> bool {
        self.range.contains(address, len)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<Pages>>> {
        self.mapped.lock().expect("no panic under the lock")
    }

    fn mapped(&self, address: Address, len: usize) -> Arc<Pages> {
        assert!(
            self.contains(address, Bytes(len as u64)),
            "the engine touches {len} bytes at {:#x}, outside its memory",
            address.0
        );
        self.pages().expect("the engine touches memory that is unmapped [S05]")
    }
}

impl KvMemory for SimMemory {
    /// # Panics
    /// When the memory is unmapped, or a byte lies outside.
    fn read(&self, address: Address, out: &mut [u8]) {
        self.mapped(address, out.len()).read(address, out);
    }

    /// # Panics
    /// When the memory is unmapped, or a byte lies outside.
    fn write(&mut self, address: Address, bytes: &[u8]) {
        self.mapped(address, bytes.len()).write(address, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s04_what_lands_in_old_pages_is_not_seen_after_a_wake() {
        let range = MemoryRange { start: Address(0x1000), len: Bytes(16) };
        let mut memory = SimMemory::new(range);
        let pinned = memory.pages().unwrap();
        memory.write(Address(0x1004), &[1, 2]);
        let mut seen = [0; 2];
        pinned.read(Address(0x1004), &mut seen);
        assert_eq!(seen, [1, 2]);
        memory.unmap();
        pinned.write(Address(0x1004), &[3, 4]);
        memory.map();
        assert!(!memory.shows(&pinned));
        memory.read(Address(0x1004), &mut seen);
        assert_eq!(seen, [GARBAGE; 2]);
    }
}
