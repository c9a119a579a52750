//! One worker's side.

use super::HoldId;
use crate::blocks::BlockList;
use crate::ids::{BlockId, RequestId, TransferId};
use crate::receiver::LoadEnd;
use std::collections::{BTreeMap, BTreeSet};

/// What the engine must be told of one worker. Each thing once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// D: loads that are over, however they ended: blocks are the engine's again.
    pub received: Vec<RequestId>,
    /// D: those of them that failed, where failures are told by request.
    pub failed: Vec<RequestId>,
    /// D: blocks that a failed load did not fill, where failures are told by block.
    pub bad_blocks: BTreeSet<BlockId>,
    /// P: holds whose blocks this worker reads no more.
    pub given_back: Vec<HoldId>,
}

/// One worker's side of a connector.
#[derive(Debug, Clone)]
pub struct Working {
    /// Block ids mean something within their group only: failures are told by request.
    by_request: bool,
    loads: BTreeMap<RequestId, Vec<BlockList>>,
    holds: BTreeMap<TransferId, HoldId>,
    report: Report,
}

impl Working {
    /// A worker of an engine with so many groups.
    #[must_use]
    pub fn new(groups: usize) -> Self {
        let (loads, holds) = (BTreeMap::new(), BTreeMap::new());
        Self { by_request: groups > 1, loads, holds, report: Report::default() }
    }

    /// The node took a hold.
    pub fn hold_taken(&mut self, hold: HoldId, transfer: TransferId) {
        if let Some(before) = self.holds.insert(transfer, hold) {
            self.report.given_back.push(before); // the node would have refused; nobody leaks
        }
    }

    /// The node refused a hold.
    pub fn hold_refused(&mut self, hold: HoldId) {
        self.report.given_back.push(hold);
    }

    /// The node gave a transfer's blocks back.
    pub fn send_ended(&mut self, transfer: &TransferId) {
        self.report.given_back.extend(self.holds.remove(transfer));
    }

    /// The node is about to load a request.
    pub fn load_ordered(&mut self, request: RequestId, blocks: Vec<BlockList>) {
        self.loads.insert(request, blocks);
    }

    /// The node ended a load, or refused it (`None`).
    pub fn load_ended(&mut self, request: &RequestId, end: Option<&LoadEnd>) {
        let Some(blocks) = self.loads.remove(request) else { return };
        self.report.received.push(request.clone());
        if matches!(end, Some(LoadEnd::Loaded | LoadEnd::Dropped)) {
            return;
        }
        if self.by_request {
            self.report.failed.push(request.clone());
        } else {
            self.report.bad_blocks.extend(blocks.iter().flat_map(BlockList::iter));
        }
    }

    /// Takes what the engine must be told. Blocks that failed come no later than the load
    /// they belong to.
    pub fn take_report(&mut self) -> Report {
        std::mem::take(&mut self.report)
    }

    /// Whether there is something to tell.
    #[must_use]
    pub fn has_report(&self) -> bool {
        self.report != Report::default()
    }
}
