//! Ordered lists of block ids, kept as runs of consecutive ids.
//!
//! Engines hand out mostly consecutive blocks, so everything from the wire to the
//! planner works on runs: its cost grows with the number of runs, not of blocks `[A08]`.

use crate::ids::BlockId;
use smallvec::SmallVec;
use std::fmt;

/// `len` consecutive block ids from `start`; `len` is never 0 and the run never
/// passes the last id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockRun {
    /// First id of the run.
    pub start: BlockId,
    /// Number of blocks, at least 1.
    pub len: u32,
}

impl BlockRun {
    /// The id after the run's last one.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.start.0 as u64 + self.len as u64
    }
}

/// Block ids of one group, in token order, as maximal runs.
///
/// Order and repetition are kept: the list reads back exactly as it was written.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BlockList {
    runs: SmallVec<[BlockRun; 2]>,
    len: u64,
}

impl BlockList {
    /// The empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One run of `len` blocks from `start`; empty for `len` 0.
    ///
    /// # Panics
    /// When the run passes the last possible id.
    #[must_use]
    pub fn run(start: u32, len: u32) -> Self {
        let mut list = Self::new();
        list.push_run(BlockId(start), len);
        list
    }

    /// Appends one block.
    pub fn push(&mut self, block: BlockId) {
        self.push_run(block, 1);
    }

    /// Appends `len` consecutive blocks; nothing for `len` 0.
    ///
    /// # Panics
    /// When the run passes the last possible id.
    pub fn push_run(&mut self, start: BlockId, len: u32) {
        if len == 0 {
            return;
        }
        assert!(
            start.0 as u64 + len as u64 <= 1 << 32,
            "a run of {len} blocks from {start} passes the last block id"
        );
        self.len += u64::from(len);
        if let Some(last) = self.runs.last_mut() {
            let joined = u64::from(last.len) + u64::from(len);
            if last.end() == u64::from(start.0) && joined <= u64::from(u32::MAX) {
                last.len = joined as u32;
                return;
            }
        }
        self.runs.push(BlockRun { start, len });
    }

    /// The runs, in order.
    #[must_use]
    pub fn runs(&self) -> &[BlockRun] {
        &self.runs
    }

    /// Number of blocks.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether the list names no block.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Every id, in order.
    pub fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.runs
            .iter()
            .flat_map(|run| (u64::from(run.start.0)..run.end()).map(|id| BlockId(id as u32)))
    }

    /// The largest id, if any.
    #[must_use]
    pub fn highest(&self) -> Option<BlockId> {
        self.runs.iter().map(|run| BlockId((run.end() - 1) as u32)).max()
    }
}

impl FromIterator<u32> for BlockList {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        let mut list = Self::new();
        for id in ids {
            list.push(BlockId(id));
        }
        list
    }
}

impl From<&[u32]> for BlockList {
    fn from(ids: &[u32]) -> Self {
        ids.iter().copied().collect()
    }
}

impl fmt::Debug for BlockList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_list();
        for run in &self.runs {
            if run.len == 1 {
                list.entry(&format_args!("{}", run.start));
            } else {
                list.entry(&format_args!("{}..{}", run.start, run.end()));
            }
        }
        list.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a08_runs_read_back_as_written_and_are_maximal(ids in prop::collection::vec(0u32..12, 0..40)) {
            let list: BlockList = ids.iter().copied().collect();
            prop_assert_eq!(list.iter().map(|id| id.0).collect::<Vec<_>>(), ids.clone());
            prop_assert_eq!(list.len(), ids.len() as u64);
            prop_assert_eq!(list.highest().map(|id| id.0), ids.iter().copied().max());
            for pair in list.runs().windows(2) {
                prop_assert_ne!(pair[0].end(), u64::from(pair[1].start.0));
            }
        }
    }

    #[test]
    fn the_last_id_is_usable() {
        let list = BlockList::run(u32::MAX - 1, 2);
        assert_eq!(list.highest(), Some(BlockId(u32::MAX)));
        assert_eq!(list.iter().count(), 2);
    }
}
