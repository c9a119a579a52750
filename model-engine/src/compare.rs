//! Byte for byte: what memory holds against what the model says it must hold.

use kvbaton_core::ids::Address;
use std::fmt;
use std::sync::Arc;

/// What a comparison found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Comparison {
    /// Bytes compared.
    pub bytes: u64,
    /// Bytes that differ.
    pub different: u64,
    /// The first that differs.
    pub first: Option<Difference>,
}

/// One byte that is not what the model says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Name of the tensor's layer.
    pub layer: Arc<str>,
    /// Global head.
    pub head: u32,
    /// Token position.
    pub position: usize,
    /// The byte's address.
    pub address: Address,
    /// What the model says.
    pub expected: u8,
    /// What was read.
    pub found: u8,
}

impl Comparison {
    /// Adds what another comparison found.
    pub fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.different += other.different;
        self.first = self.first.take().or(other.first);
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, head {}, token {}, address {:#x}: {:#04x} instead of {:#04x}",
            self.layer, self.head, self.position, self.address.0, self.found, self.expected
        )
    }
}
