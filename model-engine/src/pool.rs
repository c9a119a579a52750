//! Blocks: who holds them, and which full ones can be found again by their prefix.

use kvbaton_core::ids::BlockId;
use std::collections::BTreeMap;

/// What a cached block holds: the KV of one group for the tokens up to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheKey {
    /// Weight version it was computed with `[R07]`.
    pub weight_version: u64,
    /// The group.
    pub group: usize,
    /// Hash of the prefix up to the block's end.
    pub prefix: u64,
}

/// Where all blocks are: the three always add up to the pool's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Counts {
    /// Nobody's, and nothing worth keeping.
    pub free: usize,
    /// Held by at least one request.
    pub held: usize,
    /// Nobody's, but can be found again.
    pub cached: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Entry {
    holders: u32,
    key: Option<CacheKey>,
    /// When it was last given back: a place in `idle`.
    idle_since: u64,
}

/// The blocks of one engine, shared by all its groups. Block 0 is the null block, which is
/// never given out and not counted. Freed blocks are reused last in, first out, so that a
/// block finds its next owner as soon as possible: whatever still writes it is caught.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockPool {
    entries: Vec<Entry>,
    free: Vec<BlockId>,
    cache: BTreeMap<CacheKey, BlockId>,
    /// Cached blocks that nobody holds, longest idle first.
    idle: BTreeMap<u64, BlockId>,
    clock: u64,
}

impl BlockPool {
    /// A pool of blocks `1..blocks`.
    #[must_use]
    pub fn new(blocks: u32) -> Self {
        Self {
            entries: vec![Entry::default(); blocks as usize],
            free: (1..blocks).rev().map(BlockId).collect(),
            cache: BTreeMap::new(),
            idle: BTreeMap::new(),
            clock: 0,
        }
    }

    /// Blocks that can ever be given out.
    #[must_use]
    pub fn total(&self) -> usize {
        self.entries.len().saturating_sub(1)
    }

    /// Where all blocks are.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let held = self.entries.iter().filter(|entry| entry.holders > 0).count();
        Counts { free: self.free.len(), held, cached: self.idle.len() }
    }

    /// How many hold the block.
    #[must_use]
    pub fn holders(&self, block: BlockId) -> u32 {
        self.entries[block.0 as usize].holders
    }

    /// Takes `count` blocks, or none when there are not so many: free ones first, then
    /// cached ones, longest idle first, which the cache forgets.
    pub fn take(&mut self, count: usize) -> Option<Vec<BlockId>> {
        if self.free.len() + self.idle.len() < count {
            return None;
        }
        let taken: Vec<_> =
            (0..count).filter_map(|_| self.free.pop().or_else(|| self.evict())).collect();
        for &block in &taken {
            let entry = &mut self.entries[block.0 as usize];
            assert!(entry.holders == 0 && entry.key.is_none(), "block {block} was given out twice");
            entry.holders = 1;
        }
        Some(taken)
    }

    fn evict(&mut self) -> Option<BlockId> {
        let (_, block) = self.idle.pop_first()?;
        if let Some(key) = self.entries[block.0 as usize].key.take() {
            self.cache.remove(&key);
        }
        Some(block)
    }

    /// The block that holds this prefix, if any; it is not taken.
    #[must_use]
    pub fn find(&self, key: CacheKey) -> Option<BlockId> {
        self.cache.get(&key).copied()
    }

    /// Takes one more share of a block that is held or cached.
    ///
    /// # Panics
    /// When the block is free or null.
    pub fn share(&mut self, block: BlockId) {
        let entry = &mut self.entries[block.0 as usize];
        if entry.holders == 0 {
            assert!(entry.key.is_some(), "block {block} is free and cannot be shared");
            self.idle.remove(&entry.idle_since);
        }
        entry.holders += 1;
    }

    /// Makes a held block findable. The first block of a prefix wins, and a block keeps
    /// its first prefix.
    pub fn publish(&mut self, key: CacheKey, block: BlockId) {
        let entry = &mut self.entries[block.0 as usize];
        assert!(entry.holders > 0, "block {block} is nobody's and cannot be published");
        if entry.key.is_none() && !self.cache.contains_key(&key) {
            entry.key = Some(key);
            self.cache.insert(key, block);
        }
    }

    /// Gives one share back; says whether the block is free now (not held, not cached).
    ///
    /// # Panics
    /// When nobody holds it: giving back twice loses somebody else's block.
    pub fn give_back(&mut self, block: BlockId) -> bool {
        let entry = &mut self.entries[block.0 as usize];
        assert!(entry.holders > 0, "block {block} was given back twice");
        entry.holders -= 1;
        if entry.holders > 0 {
            return false;
        }
        if entry.key.is_some() {
            self.clock += 1;
            entry.idle_since = self.clock;
            self.idle.insert(self.clock, block);
            return false;
        }
        self.free.push(block);
        true
    }

    /// Forgets every prefix; idle blocks become free. Held blocks stay held, and are free
    /// once given back.
    pub fn forget_cache(&mut self) {
        self.cache.clear();
        for entry in &mut self.entries {
            entry.key = None;
        }
        self.free.extend(std::mem::take(&mut self.idle).into_values());
    }

    /// Checks what must hold between calls.
    ///
    /// # Panics
    /// When it does not.
    pub fn assert_consistent(&self) {
        let Counts { free, held, cached } = self.counts();
        assert_eq!(free + held + cached, self.total(), "free {free}, held {held}, cached {cached}");
        assert!(self.entries.first().is_none_or(|null| null.holders == 0 && null.key.is_none()));
        let mut free: Vec<_> = self.free.clone();
        free.sort_unstable();
        free.dedup();
        assert_eq!(free.len(), self.free.len(), "a block is free twice");
        assert!(!free.contains(&BlockId(0)), "the null block is free");
        for (key, block) in &self.cache {
            assert_eq!(self.entries[block.0 as usize].key, Some(*key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(prefix: u64) -> CacheKey {
        CacheKey { weight_version: 1, group: 0, prefix }
    }

    #[test]
    fn the_block_freed_last_is_reused_first_and_block_0_never() {
        let mut pool = BlockPool::new(4);
        let all = pool.take(3).unwrap();
        assert!(!all.contains(&BlockId(0)));
        assert_eq!(pool.take(1), None);
        for block in [2, 1, 3].map(BlockId) {
            assert!(pool.give_back(block));
        }
        assert_eq!(pool.take(2).unwrap(), [3, 1].map(BlockId));
    }

    #[test]
    #[should_panic(expected = "given back twice")]
    fn p01_giving_back_twice_is_caught() {
        let mut pool = BlockPool::new(2);
        let block = pool.take(1).unwrap()[0];
        pool.give_back(block);
        pool.give_back(block);
    }

    #[test]
    #[should_panic(expected = "cannot be shared")]
    fn a_free_block_cannot_be_shared() {
        BlockPool::new(2).share(BlockId(1));
    }

    #[test]
    fn free_blocks_go_before_cached_ones_and_the_longest_idle_first() {
        let mut pool = BlockPool::new(4);
        let blocks = pool.take(3).unwrap();
        pool.publish(key(1), blocks[0]);
        pool.publish(key(2), blocks[1]);
        for &block in &blocks {
            pool.give_back(block);
        }
        assert_eq!(pool.counts(), Counts { free: 1, held: 0, cached: 2 });
        assert_eq!(pool.take(2).unwrap(), [blocks[2], blocks[0]]);
        assert_eq!((pool.find(key(1)), pool.find(key(2))), (None, Some(blocks[1])));
    }

    proptest! {
        #[test]
        fn p01_every_block_is_free_held_or_cached(ops in prop::collection::vec((0u8..6, any::<prop::sample::Index>(), 0u64..6), 0..80)) {
            let mut pool = BlockPool::new(9);
            let mut held: Vec<BlockId> = Vec::new();
            for (op, at, prefix) in ops {
                match op {
                    0 | 1 => held.extend(pool.take(at.index(4)).unwrap_or_default()),
                    2 if !held.is_empty() => { pool.give_back(held.swap_remove(at.index(held.len()))); }
                    3 if !held.is_empty() => pool.publish(key(prefix), held[at.index(held.len())]),
                    4 => if let Some(block) = pool.find(key(prefix)) { pool.share(block); held.push(block); }
                    5 if prefix == 0 => pool.forget_cache(),
                    _ => {}
                }
                pool.assert_consistent();
                for id in 1..9 {
                    let holders = held.iter().filter(|block| block.0 == id).count();
                    prop_assert_eq!(pool.holders(BlockId(id)) as usize, holders);
                }
            }
            for block in held.drain(..) { pool.give_back(block); }
            prop_assert_eq!(pool.counts().held, 0);
            pool.assert_consistent();
        }
    }
}
