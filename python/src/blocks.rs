//! Block ids, from Python lists into runs.

use kvbaton_core::blocks::BlockList;

/// Block ids per group, in token order.
pub type Blocks = Vec<Vec<u32>>;

/// The same as runs.
pub fn lists(blocks: &[Vec<u32>]) -> Vec<BlockList> {
    blocks.iter().map(|group| BlockList::from(group.as_slice())).collect()
}
