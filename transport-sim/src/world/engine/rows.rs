//! The bytes of a rank's blocks.

use crate::data::merged;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{Address, Bytes};
use kvbaton_core::plan::LocalLayout;
use kvbaton_core::region::{GroupKind, MemoryRange, RegionGroup};

/// Payload bytes of logical blocks, one list per group: what a transfer reads or fills.
#[must_use]
pub fn payload(local: &LocalLayout, blocks: &[BlockList]) -> Vec<MemoryRange> {
    let mut rows = Vec::new();
    for region in &local.regions {
        let groups: &[u32] = match &region.group {
            RegionGroup::One(group) => std::slice::from_ref(group),
            RegionGroup::Shared(groups) => groups,
        };
        for &group in groups {
            let (Some(list), Some(spec)) =
                (blocks.get(group as usize), local.groups.get(group as usize))
            else {
                continue;
            };
            let state = spec.kind == GroupKind::State;
            let each = if state { 1 } else { u64::from(local.kernel_blocks_per_block.max(1)) };
            for block in list.iter().filter(|block| !state || block.0 != 0) {
                for row in u64::from(block.0) * each..(u64::from(block.0) + 1) * each {
                    let start = Address(region.base.0 + row * region.stride.0);
                    rows.push(MemoryRange { start, len: Bytes(region.payload.0) });
                }
            }
        }
    }
    merged(rows)
}
