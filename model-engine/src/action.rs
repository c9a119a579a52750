//! What a scheduler asks of its driver.

use crate::shape::Shape;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{BlockId, RequestId, TransferId};

/// The block that is never given out; an entry that names it holds nothing.
pub(crate) const NULL_BLOCK: BlockId = BlockId(0);

/// A request's logical blocks: per group, in token order, null where nothing is kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct BlockTable {
    /// One list per group.
    pub groups: Vec<Vec<BlockId>>,
}

impl BlockTable {
    /// The block that entry `index` of `group` names, `None` when it is null or not there.
    #[must_use]
    pub fn block(&self, group: usize, index: usize) -> Option<BlockId> {
        self.groups[group].get(index).copied().filter(|&block| block != NULL_BLOCK)
    }

    /// Every block that is not null, group by group.
    pub fn blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.groups.iter().flatten().copied().filter(|&block| block != NULL_BLOCK)
    }

    /// The lists of a transfer of the KV of `first_token..end_token`, as the engine names
    /// them to its connector: only blocks that hold these tokens, state groups with their
    /// null entries in front `[A06]` `[F48]` `[F53]`.
    #[must_use]
    pub fn lists(&self, shape: &Shape, first_token: usize, end_token: usize) -> Vec<BlockList> {
        let list = |(entries, group): (&Vec<BlockId>, &crate::shape::Group)| {
            let first = group.first_listed(end_token).max(first_token / group.block_size as usize);
            let listed = entries.get(first..group.blocks(end_token)).unwrap_or_default();
            listed.iter().map(|block| block.0).collect()
        };
        self.groups.iter().zip(&shape.groups).map(list).collect()
    }
}

/// One forward pass of one request, for every rank of the engine to carry out: write the
/// KV of tokens `from..to`, then read back that of all tokens before `to`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Step {
    /// The request.
    pub request: RequestId,
    /// Tokens whose KV is there already.
    pub from: usize,
    /// Tokens whose KV is there afterwards; `from` when there is nothing to write.
    pub to: usize,
    /// Prefix hashes of the tokens `from..to`.
    pub prefix: Vec<u64>,
    /// Where the request's KV lies.
    pub table: BlockTable,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The generated tokens, all of them.
    Tokens(Vec<u32>),
    /// Its load failed and the engine does not recompute.
    LoadFailed,
    /// It was aborted.
    Aborted,
}

/// What the driver must do, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Run the step on every rank, then report the combined digest (`computed`).
    Compute(Step),
    /// P: the KV of `..end_token` is ready; keep it for `transfer` until `send_finished`.
    Hold {
        /// The request.
        request: RequestId,
        /// Its transfer.
        transfer: TransferId,
        /// Logical blocks per group.
        blocks: Vec<BlockList>,
        /// Tokens that the blocks hold.
        end_token: usize,
    },
    /// P: nobody needs the transfer any more. If it is held, `send_finished` still comes.
    Release {
        /// The request.
        request: RequestId,
        /// Its transfer.
        transfer: TransferId,
    },
    /// D: load the KV of tokens `first_token..end_token` into these blocks on every rank,
    /// then report `load_finished` or `load_failed` once, when no byte can land any more.
    Load {
        /// The request.
        request: RequestId,
        /// Its transfer.
        transfer: TransferId,
        /// Logical blocks per group.
        blocks: Vec<BlockList>,
        /// First token to load: those before were hits in the prefix cache.
        first_token: usize,
        /// One past the last token to load.
        end_token: usize,
    },
    /// D: give the load up. Its end is still to be reported, and frees the blocks.
    DropLoad {
        /// The request.
        request: RequestId,
        /// Its transfer.
        transfer: TransferId,
    },
    /// D: there is nothing to load; P may release the transfer `[P10]`.
    ReleaseRemote {
        /// The request.
        request: RequestId,
        /// Its transfer.
        transfer: TransferId,
    },
    /// These blocks are nobody's now, and hold nothing worth keeping.
    Free {
        /// The request that had them.
        request: RequestId,
        /// The blocks.
        blocks: Vec<BlockId>,
    },
    /// The request's answer; each request has exactly one.
    Answer {
        /// The request.
        request: RequestId,
        /// How it ended.
        outcome: Outcome,
    },
}
