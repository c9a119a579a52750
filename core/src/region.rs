//! Registered memory as both sides describe it: regions, in registration order.

use crate::ids::{Address, Bytes};
use smallvec::SmallVec;
use std::sync::Arc;

/// Which block ids address a region.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RegionGroup {
    /// One group's ids.
    One(u32),
    /// The ids of all these groups, one after the other (group index −1 on the wire).
    Shared(SmallVec<[u32; 4]>),
}

/// One strided run of block rows: row `b` holds block `b`'s payload.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Region {
    /// Name of the (first) layer; regions pair by (name, occurrence) `[A01]`.
    pub layer_name: Arc<str>,
    /// Index that the engine gives that layer.
    pub layer_index: i64,
    /// Address of row 0.
    pub base: Address,
    /// Distance between rows, `block_lens` on the wire.
    pub stride: Bytes,
    /// Payload of a row, `kv_block_lens` on the wire; never more than the stride.
    pub payload: Bytes,
    /// Whose block ids address it.
    pub group: RegionGroup,
    /// Groups that share the region as the peer named them; empty when an old peer
    /// named none. Kept beside `group` because both are compared `[A01]`.
    pub shared_groups: SmallVec<[u32; 4]>,
    /// Offset of this view in its row; `None` (−1 on the wire) when it is no view.
    pub row_offset: Option<u64>,
}

/// What the rows of a group hold, which decides how its block ids are read `[A05]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupKind {
    /// Attention KV: logical ids expand to kernel ids.
    Attention,
    /// Recurrent state (Mamba, GDN): ids are used as they are, null blocks are skipped.
    State,
}

/// One contiguous range of memory, as registered with a data plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MemoryRange {
    /// First byte.
    pub start: Address,
    /// Length; never 0 in a registration.
    pub len: Bytes,
}

impl MemoryRange {
    /// First address after the range; `None` on overflow.
    #[must_use]
    pub fn end(self) -> Option<Address> {
        self.start.0.checked_add(self.len.0).map(Address)
    }

    /// Whether `[start, start + len)` lies inside the range; false on overflow.
    #[must_use]
    pub fn contains(self, start: Address, len: Bytes) -> bool {
        match (self.end(), start.0.checked_add(len.0)) {
            (Some(end), Some(stop)) => self.start <= start && stop <= end.0,
            _ => false,
        }
    }
}

/// One copy from P's memory to D's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Copy {
    /// Address in P's memory.
    pub source: Address,
    /// Address in D's memory.
    pub destination: Address,
    /// Length; never 0.
    pub len: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a09_a_range_contains_what_lies_whole_in_it() {
        let range = MemoryRange { start: Address(100), len: Bytes(8) };
        let inside = |start, len| range.contains(Address(start), Bytes(len));
        assert!(inside(100, 8) && inside(107, 1) && inside(108, 0));
        assert!(!inside(99, 8) && !inside(100, 9) && !inside(101, 8));
        assert!(!inside(108, 1) && !inside(99, 10) && !inside(u64::MAX, 8));
        assert!(!inside(104, u64::MAX), "past the last address");
        let endless = MemoryRange { start: Address(u64::MAX), len: Bytes(8) };
        assert_eq!(endless.end(), None);
        assert!(!endless.contains(Address(u64::MAX), Bytes(0)));
    }
}
