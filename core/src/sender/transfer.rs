//! One transfer as P knows it.

use crate::blocks::BlockList;
use crate::ids::{Grant, RequestId, SessionAddress};
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// The request runs, or only D has named the transfer.
    Waiting,
    /// Blocks are held for D.
    Ready(Held),
}

/// The KV that waits for D.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub blocks: Arc<[BlockList]>,
    pub end_token: Option<u32>,
}

/// A reader's pull that has no terminal answer yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pending {
    pub pull: PullId,
    pub request: RequestId,
    pub grant: Option<Grant>,
    /// The write that serves it, once it has a slot.
    pub write: Option<SendWriteId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Transfer {
    /// P's request, once its engine has named it.
    pub request: Option<RequestId>,
    pub state: State,
    /// When it expires while no write reads it `[P06]`.
    pub expires: Timestamp,
    /// D ranks that will read it, known from the first pull `[A02]`.
    pub expected: Option<u32>,
    pub pending: BTreeMap<Reader, Pending>,
    /// Readers with a terminal answer; true where the KV was sent.
    pub answered: BTreeMap<Reader, bool>,
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

    pub fn all_sent(&self) -> bool {
        self.answered.values().all(|sent| *sent)
    }
}
