//! One transfer as P knows it.

use super::memory::Ended;
use crate::blocks::BlockList;
use crate::ids::{Grant, RequestId, SessionAddress, WeightVersion};
use crate::time::Timestamp;
use crate::wire::FailureReason;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One D rank that reads a transfer. D's pipeline stages differ by their session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reader {
    /// D's data-plane session.
    pub session: SessionAddress,
    /// D's tensor-parallel rank.
    pub tp_rank: u32,
}

/// Names a pull within a [`super::Sender`]; the caller makes it, unique per sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PullId(pub u64);

/// Names a write within a [`super::Sender`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SendWriteId(pub u64);

/// What P's engine knows of a transfer `[P01]`. DONE is the entry's absence: an ended
/// transfer is only remembered by why it ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum State {
    /// The request runs, or only D has named the transfer.
    Waiting,
    /// Blocks are held for D.
    Ready(Held),
}

/// The KV that waits for D.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub blocks: Arc<[BlockList]>,
    pub end_token: Option<u32>,
    pub since: Timestamp,
}

impl Held {
    /// Logical blocks, over all groups.
    pub fn len(&self) -> u64 {
        self.blocks.iter().map(BlockList::len).sum()
    }
}

/// A reader's pull that has no terminal answer yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Pending {
    pub pull: PullId,
    pub request: RequestId,
    pub grant: Option<Grant>,
    /// The weights that D runs; zero when it did not say `[R07]`.
    pub weights: WeightVersion,
    pub stage: Stage,
    /// D gave the load up while it was being written `[P09]`.
    pub dropped: bool,
}

/// How far a reader's pull has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// Waits for P's engine.
    Unready,
    /// Waits for a slot, at this place of the queue.
    Queued(u64),
    /// A write serves it.
    Writing {
        write: SendWriteId,
        since: Timestamp,
        /// The caller has been told to end it early.
        cancelled: bool,
    },
}

impl Stage {
    pub const fn is_writing(self) -> bool {
        matches!(self, Self::Writing { .. })
    }
}

/// What a reader was told last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    Sent,
    /// It asked for no blocks `[P10]`.
    Released,
    Failed(FailureReason),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Transfer {
    /// P's request, once its engine has named it.
    pub request: Option<RequestId>,
    pub state: State,
    /// When it expires while no write reads it `[P06]`.
    pub expires: Timestamp,
    /// D ranks that will read it, known from the first pull `[A02]`.
    pub expected: Option<u32>,
    pub pending: BTreeMap<Reader, Pending>,
    /// Readers with a terminal answer.
    pub answered: BTreeMap<Reader, Answer>,
    /// Writes that read its blocks now.
    pub reading: u32,
    /// Why it ends, once decided; blocks go back when `reading` is 0.
    pub ending: Option<FailureReason>,
}

impl Transfer {
    pub fn waiting(request: Option<RequestId>, expires: Timestamp) -> Self {
        Self {
            request,
            state: State::Waiting,
            expires,
            expected: None,
            pending: BTreeMap::new(),
            answered: BTreeMap::new(),
            reading: 0,
            ending: None,
        }
    }

    /// Whether every D rank has its terminal answer.
    pub fn all_answered(&self) -> bool {
        self.expected.is_some_and(|expected| self.answered.len() as u32 >= expected)
    }

    /// Whether the reader pulled this transfer before.
    pub fn knows(&self, reader: &Reader) -> bool {
        self.pending.contains_key(reader) || self.answered.contains_key(reader)
    }

    /// How the transfer ends once everybody is answered: badly if one reader failed,
    /// well if one got its KV, released if nobody wanted any.
    pub fn outcome(&self) -> Ended {
        let mut ended = Ended::Failed(FailureReason::Released);
        for answer in self.answered.values() {
            match answer {
                Answer::Failed(why) => return Ended::Failed(*why),
                Answer::Sent => ended = Ended::Sent,
                Answer::Released => {}
            }
        }
        ended
    }
}
