//! KV memory of one rank: pages of its own, which the rank's compute and the node's data
//! plane both reach by address. Everything unsafe about an engine's memory is here.

use anyhow::{Context, Result, bail};
use kvbaton_actors::node::registration::Memory;
use kvbaton_actors::node::{Node, NodeConfig};
use kvbaton_core::ids::Address;
use kvbaton_model_engine::KvMemory;
use kvbaton_transport_tcp::TcpTransport;
use std::ptr::NonNull;

/// Private anonymous pages, zero until written, given back on drop.
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

impl Mapping {
    /// `len` bytes, page-aligned. Pages are taken from the system as they are touched.
    ///
    /// # Errors
    /// When `len` is 0 or the system refuses.
    pub fn new(len: usize) -> Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping touches nothing that exists.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error())
                .with_context(|| format!("cannot map {len} bytes of KV memory"));
        }
        let Some(start) = NonNull::new(start.cast()) else { bail!("the system mapped address 0") };
        Ok(Self { start, len })
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
        // The scheduler reads blocks only while no load may write them.
        unsafe { self.at(address, out.len()).copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) }
    }

    fn write(&mut self, address: Address, bytes: &[u8]) {
        // SAFETY: as for `read`; the scheduler writes only blocks that it owns.
        unsafe {
            self.at(address, bytes.len()).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `mmap` with this length, and nobody has a pointer any more: the
        // node that did was dropped before (see `RankNode`).
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A node and the memory that it has registered. The node goes first.
pub struct RankNode {
    node: Node,
    memory: Mapping,
}

impl RankNode {
    /// Starts a node and registers `local`, which must lie in `memory`.
    ///
    /// # Errors
    /// When the node does not start, or memory or bootstrap server refuse.
    pub fn start(
        config: NodeConfig,
        transport: TcpTransport,
        local: Memory,
        memory: Mapping,
    ) -> Result<Self> {
        let rank = Self { node: Node::start(config, transport)?, memory };
        // SAFETY: `memory` stays mapped until the node is dropped, since it is a later field;
        // it is reached through raw pointers only, and what a load may write is not relied on.
        unsafe { rank.node.register(local)? };
        Ok(rank)
    }

    /// The node.
    #[must_use]
    pub const fn node(&self) -> &Node {
        &self.node
    }

    /// The memory.
    #[must_use]
    pub const fn memory(&self) -> &Mapping {
        &self.memory
    }

    /// The memory, to write blocks that the engine owns.
    pub const fn memory_mut(&mut self) -> &mut Mapping {
        &mut self.memory
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
}
