//! How the engine reads and writes KV: the driver decides what lies behind it.

use kvbaton_core::ids::Address;

/// KV memory of one rank, addressed as the rank's tensors are.
///
/// The engine only names bytes inside the tensors that it was given; an implementation
/// may panic on anything else, since that is a bug of the engine.
pub trait KvMemory {
    /// Fills `out` with the bytes from `address` on.
    fn read(&self, address: Address, out: &mut [u8]);
    /// Replaces the bytes from `address` on.
    fn write(&mut self, address: Address, bytes: &[u8]);
}

impl<M: KvMemory + ?Sized> KvMemory for Box<M> {
    fn read(&self, address: Address, out: &mut [u8]) {
        (**self).read(address, out);
    }
    fn write(&mut self, address: Address, bytes: &[u8]) {
        (**self).write(address, bytes);
    }
}

/// Plain bytes at a made-up base address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VecMemory {
    base: Address,
    bytes: Vec<u8>,
}

impl VecMemory {
    /// `len` zero bytes from `base` on.
    #[must_use]
    pub fn new(base: Address, len: usize) -> Self {
        Self { base, bytes: vec![0; len] }
    }

    /// All bytes, the one at the base address first.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Where `[address, address + len)` lies in `bytes`.
    fn range(&self, address: Address, len: usize) -> std::ops::Range<usize> {
        let start =
            address.0.checked_sub(self.base.0).and_then(|start| usize::try_from(start).ok());
        match start.and_then(|start| Some(start..start.checked_add(len)?)) {
            Some(range) if range.end <= self.bytes.len() => range,
            _ => panic!(
                "{len} bytes at {:#x} are outside the {} bytes at {:#x}",
                address.0,
                self.bytes.len(),
                self.base.0
            ),
        }
    }
}

impl KvMemory for VecMemory {
    /// # Panics
    /// When a byte lies outside the memory.
    fn read(&self, address: Address, out: &mut [u8]) {
        out.copy_from_slice(&self.bytes[self.range(address, out.len())]);
    }

    /// # Panics
    /// When a byte lies outside the memory.
    fn write(&mut self, address: Address, bytes: &[u8]) {
        let range = self.range(address, bytes.len());
        self.bytes[range].copy_from_slice(bytes);
    }
}
