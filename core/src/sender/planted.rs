//! Planted bugs that give blocks back while a write reads them.

use super::transfer::State;
use super::{Ended, PlanCopies, Sender, SenderAction};
use crate::ids::TransferId;
use crate::planted::{self, Bug};
use crate::wire::FailureReason;

/// Whether a planted bug gives blocks back before the writes that read them end.
pub(super) fn frees_while_read(ended: Ended) -> bool {
    match ended {
        Ended::Failed(FailureReason::Released | FailureReason::Aborted | FailureReason::Reset) => {
            planted::is(Bug::AbortAckedBeforeDrained)
        }
        Ended::Failed(FailureReason::Expired) => planted::is(Bug::ExpiryDuringWrite),
        _ => false,
    }
}

impl<L: PlanCopies + Clone> Sender<L> {
    /// The blocks go back now; the transfer itself ends with its last write.
    pub(super) fn give_back_early(&mut self, id: &TransferId, ended: Ended) {
        let Some(transfer) = self.transfers.get_mut(id) else { return };
        let Some(request) = transfer.request.clone() else { return };
        if let State::Ready(held) = std::mem::replace(&mut transfer.state, State::Waiting) {
            self.held -= 1;
            self.held_blocks -= held.len();
            self.actions.push_back(SenderAction::Finished { request, transfer: id.clone(), ended });
        }
    }
}
