//! What the scheduler's side tells every worker.

use super::Source;
use crate::blocks::BlockList;
use crate::ids::{RequestId, TransferId};

/// Names one hold of one engine run. Request ids come back after a request has ended,
/// while its blocks are still held; these never do `[P11]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId(pub u64);

/// One thing for a worker's node to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Order {
    /// P: a request that D will pull is scheduled.
    Started {
        /// P's request.
        request: RequestId,
        /// The transfer.
        transfer: TransferId,
    },
    /// P: a request's KV is complete; hold it for D.
    Hold {
        /// Names it in the answer.
        hold: HoldId,
        /// P's request.
        request: RequestId,
        /// The transfer.
        transfer: TransferId,
        /// Logical blocks per group.
        blocks: Vec<BlockList>,
        /// Tokens up to the end of `blocks` `[A06]`.
        end_token: u32,
    },
    /// P: a request ended before it could be held.
    Abort(TransferId),
    /// P: every block is wanted back.
    ReleaseAll,
    /// D: load a request's KV.
    Load {
        /// D's request.
        request: RequestId,
        /// The transfer.
        transfer: TransferId,
        /// Where it comes from.
        source: Source,
        /// Logical blocks per group, at least one in all.
        blocks: Vec<BlockList>,
        /// Tokens up to the end of `blocks` `[A06]`.
        end_token: u32,
    },
    /// D: tell P that a request needs its KV no more `[P10]`.
    Release {
        /// D's request.
        request: RequestId,
        /// The transfer.
        transfer: TransferId,
        /// Where it would have come from.
        source: Source,
    },
    /// D: a load is not wanted any more.
    Drop(RequestId),
}

/// Orders of one step, in order.
pub type Orders = Vec<Order>;
