//! Which of a request's blocks travel.

use crate::blocks::BlockList;
use crate::ids::BlockId;

/// One KV cache group, as far as it decides which blocks travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectorGroup {
    /// Tokens per block; 0 when blocks are not counted by tokens (recurrent state).
    pub block_tokens: u32,
    /// Most blocks that are read after a transfer, counted from the last one; `None` when
    /// all are.
    pub last_blocks: Option<u32>,
}

impl ConnectorGroup {
    /// A group of which every block travels.
    #[must_use]
    pub const fn all(block_tokens: u32) -> Self {
        Self { block_tokens, last_blocks: None }
    }

    /// A sliding window of `window` tokens: the blocks that it covers, and one more where
    /// it begins inside a block. A window or block of 0 tokens is none.
    #[must_use]
    pub const fn window(window: u32, block_tokens: u32) -> Self {
        if window == 0 || block_tokens == 0 {
            return Self::all(block_tokens);
        }
        Self { block_tokens, last_blocks: Some(window.div_ceil(block_tokens).saturating_add(1)) }
    }

    /// The blocks that hold a request's first `tokens` tokens.
    #[must_use]
    pub fn until(self, tokens: u32, blocks: &BlockList) -> BlockList {
        if self.block_tokens == 0 {
            return blocks.clone();
        }
        slice(blocks, 0, u64::from(tokens.div_ceil(self.block_tokens)))
    }

    /// The blocks that travel. Both sides clip alike, so tails still pair `[A06]`.
    #[must_use]
    pub fn clip(self, blocks: &BlockList) -> BlockList {
        let Some(last) = self.last_blocks else { return blocks.clone() };
        slice(blocks, blocks.len().saturating_sub(u64::from(last)), blocks.len())
    }
}

/// Blocks `[from, to)` of a list.
fn slice(blocks: &BlockList, from: u64, to: u64) -> BlockList {
    let (mut kept, mut at) = (BlockList::new(), 0);
    for run in blocks.runs() {
        let end = at + u64::from(run.len);
        let (first, last) = (from.max(at), to.min(end));
        if first < last {
            // Both differences lie below the run's length, which is a u32.
            let start = run.start.0 + (first - at) as u32;
            kept.push_run(BlockId(start), (last - first) as u32);
        }
        at = end;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_window_keeps_the_last_blocks(ids in prop::collection::vec(0u32..40, 0..30), last in 0u32..40) {
            let group = ConnectorGroup { block_tokens: 1, last_blocks: Some(last) };
            let blocks: BlockList = ids.iter().copied().collect();
            let expected = &ids[ids.len().saturating_sub(last as usize)..];
            prop_assert_eq!(group.clip(&blocks), BlockList::from(expected));
            let expected = &ids[..ids.len().min(last as usize)];
            prop_assert_eq!(group.until(last, &blocks), BlockList::from(expected));
        }
    }

    #[test]
    fn a_window_reaches_into_one_block_more() {
        assert_eq!(ConnectorGroup::window(64, 16).last_blocks, Some(5));
        assert_eq!(ConnectorGroup::window(65, 16).last_blocks, Some(6));
        assert_eq!(ConnectorGroup::window(0, 16), ConnectorGroup::all(16));
        assert_eq!(ConnectorGroup::window(64, 0), ConnectorGroup::all(0));
    }

    #[test]
    fn a_block_that_is_begun_belongs_to_the_tokens() {
        let blocks = BlockList::run(7, 4);
        assert_eq!(ConnectorGroup::all(16).until(33, &blocks), BlockList::run(7, 3));
        assert_eq!(ConnectorGroup::all(16).until(32, &blocks), BlockList::run(7, 2));
        assert_eq!(ConnectorGroup::all(0).until(1, &blocks), blocks);
    }
}
