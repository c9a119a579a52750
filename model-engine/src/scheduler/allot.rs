//! Finding blocks for a request: prefix hits first, then everything it will ever need.

use super::entry::Entry;
use crate::action::{BlockTable, NULL_BLOCK};
use crate::pool::{BlockPool, CacheKey};
use crate::shape::Shape;
use kvbaton_core::ids::BlockId;

/// Gives the entry its blocks, up to its longest `[F31]`: it never waits for a block once it
/// has started, so nobody waits for it for ever. False, and nothing taken, when short.
pub(super) fn allot(pool: &mut BlockPool, shape: &Shape, version: u64, entry: &mut Entry) -> bool {
    let tokens = entry.tokens.len();
    let hit = if entry.from_scratch { 0 } else { longest_hit(pool, shape, version, entry) };
    let mut table = BlockTable::default();
    for (index, group) in shape.groups.iter().enumerate() {
        let kept_from = group.kept(tokens).start;
        let hits_to = hit / group.block_size as usize;
        let cached = (kept_from..hits_to).map(|block| {
            let key = key(version, index, entry, (block + 1) * group.block_size as usize);
            pool.find(key).expect("the longest hit has every block that the request keeps")
        });
        let nulls = std::iter::repeat_n(NULL_BLOCK, kept_from);
        table.groups.push(nulls.chain(cached).collect());
    }
    // Hits are taken before the rest, which may evict what is only cached.
    let hits: Vec<BlockId> = table.blocks().collect();
    hits.iter().for_each(|&block| pool.share(block));
    let missing = |table: &BlockTable, group: usize| {
        shape.groups[group].blocks(entry.end()) - table.groups[group].len()
    };
    let needed: usize = (0..shape.groups.len()).map(|group| missing(&table, group)).sum();
    let Some(mut fresh) = pool.take(needed) else {
        for block in hits {
            pool.give_back(block);
        }
        return false;
    };
    for group in 0..shape.groups.len() {
        let rest = fresh.split_off(missing(&table, group));
        table.groups[group].append(&mut fresh);
        fresh = rest;
    }
    entry.table = table;
    entry.computed = hit;
    entry.published = hit;
    true
}

/// The longest prefix of the request for which every group has what it would keep there.
fn longest_hit(pool: &BlockPool, shape: &Shape, version: u64, entry: &Entry) -> usize {
    let step = shape.hit_step();
    let whole = |hit: &usize| {
        shape.groups.iter().enumerate().all(|(index, group)| {
            // From the back: what is not cached is mostly there.
            group.kept(*hit).rev().all(|block| {
                let end = (block + 1) * group.block_size as usize;
                pool.find(key(version, index, entry, end)).is_some()
            })
        })
    };
    (1..=entry.tokens.len() / step).rev().map(|steps| steps * step).find(whole).unwrap_or(0)
}

/// Offers the blocks that have become full to the prefix cache.
pub(super) fn publish(pool: &mut BlockPool, shape: &Shape, version: u64, entry: &mut Entry) {
    for (index, group) in shape.groups.iter().enumerate() {
        let size = group.block_size as usize;
        for block in entry.published / size..entry.computed / size {
            if let Some(id) = entry.table.block(index, block) {
                pool.publish(key(version, index, entry, (block + 1) * size), id);
            }
        }
    }
    entry.published = entry.computed;
}

fn key(weight_version: u64, group: usize, entry: &Entry, end: usize) -> CacheKey {
    CacheKey { weight_version, group, prefix: entry.chain.hashes()[end - 1] }
}
