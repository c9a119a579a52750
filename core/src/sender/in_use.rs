//! What keeps P's memory in use, for who waits until nothing does `[S01]`.

use super::transfer::{Stage, State, Transfer};
use super::{PlanCopies, Sender};
use crate::ids::{RequestId, SessionAddress, TransferId};
use crate::time::Timestamp;

/// One use of P's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendInUse<'a> {
    /// The transfer.
    pub transfer: &'a TransferId,
    /// P's request.
    pub request: Option<&'a RequestId>,
    /// What it is used for.
    pub state: SendUse<'a>,
    /// Since when: the hold, or the start of the write.
    pub since: Timestamp,
}

/// What P's memory is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SendUse<'a> {
    /// Held until D pulls it, or until it expires `[P06]`.
    WaitsForD,
    /// A write reads it.
    WrittenTo(&'a SessionAddress),
}

impl<L: PlanCopies + Clone> Sender<L> {
    /// What keeps local memory in use: each running write, and each held transfer that none
    /// reads `[S01]`. What has expired is not listed once [`Self::tick`] was called.
    pub fn in_use(&self) -> impl Iterator<Item = SendInUse<'_>> {
        self.transfers.iter().flat_map(|(id, transfer)| uses(id, transfer))
    }
}

fn uses<'a>(id: &'a TransferId, transfer: &'a Transfer) -> impl Iterator<Item = SendInUse<'a>> {
    let of =
        |state, since| SendInUse { transfer: id, request: transfer.request.as_ref(), state, since };
    let writes = transfer.pending.iter().filter_map(move |(reader, pending)| match pending.stage {
        Stage::Writing { since, .. } => Some(of(SendUse::WrittenTo(&reader.session), since)),
        Stage::Unready | Stage::Queued(_) => None,
    });
    let held = match &transfer.state {
        State::Ready(held) if transfer.reading == 0 => Some(held.since),
        _ => None,
    };
    writes.chain(held.map(|since| of(SendUse::WaitsForD, since)))
}
