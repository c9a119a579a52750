//! KV of one version of the weights is never served as another's `[R07]`.

use super::transfer::{State, Transfer};
use super::{Ended, PlanCopies, Reader, Sender};
use crate::ids::{TransferId, WeightVersion};
use crate::planted::{self, Bug};
use crate::time::Timestamp;
use crate::wire::FailureReason;

impl<L: PlanCopies + Clone> Sender<L> {
    /// The weights that P's engine runs.
    #[must_use]
    pub const fn weights(&self) -> WeightVersion {
        self.weights
    }

    /// P's engine goes over to other weights. What it holds of the old ones ends now: whoever
    /// pulls is told, writes are cancelled, blocks go back once none reads them. What it has
    /// only started goes back as soon as it is held, and D is told now. What only D has named
    /// stays. The same version again changes nothing `[R07]`.
    pub fn set_weights(&mut self, version: WeightVersion, now: Timestamp) {
        if version == self.weights {
            return;
        }
        self.weights = version;
        let why = FailureReason::OtherWeights;
        let named: Vec<TransferId> = self
            .transfers
            .iter()
            .filter(|(_, transfer)| transfer.request.is_some())
            .map(|(id, _)| id.clone())
            .collect();
        for id in named {
            let transfer = self.transfers.get_mut(&id).expect("listed just now");
            if transfer.state == State::Waiting {
                if !planted::is(Bug::WeightsNotStamped) {
                    self.end_with_its_hold(&id, why);
                }
                continue;
            }
            // Whatever it ended for before: what a write of it still brings is of old weights.
            transfer.ending = Some(why);
            self.end(&id, Ended::Failed(why));
        }
        self.settle_input(now);
    }

    /// Whoever pulls a started transfer is told now, and it ends once P's engine has held or
    /// aborted it. It is not only remembered, since what is remembered may be forgotten.
    fn end_with_its_hold(&mut self, id: &TransferId, why: FailureReason) {
        let Some(transfer) = self.transfers.get_mut(id) else { return };
        transfer.ending.get_or_insert(why);
        let waiting: Vec<Reader> = transfer.pending.keys().cloned().collect();
        for reader in waiting {
            self.fail_reader(id, &reader, why, true, super::message(why, id));
        }
    }

    /// P's engine has just named the transfer: readers that run other weights are told.
    pub(super) fn refuse_other_weights(&mut self, id: &TransferId) {
        let Some(transfer) = self.transfers.get(id) else { return };
        let unfit: Vec<(Reader, WeightVersion)> = transfer
            .pending
            .iter()
            .filter(|(_, pending)| !pending.weights.fits(self.weights))
            .map(|(reader, pending)| (reader.clone(), pending.weights))
            .collect();
        let why = FailureReason::OtherWeights;
        for (reader, weights) in unfit {
            let text = self.other_weights(id, weights);
            self.fail_reader(id, &reader, why, true, text);
        }
    }

    /// Whether D's weights are others than those of a transfer that P's engine has named.
    pub(super) fn is_of_other_weights(&self, transfer: &Transfer, of_d: WeightVersion) -> bool {
        transfer.request.is_some() && !of_d.fits(self.weights)
    }

    /// The refusal in words for D's operator.
    pub(super) fn other_weights(&self, id: &TransferId, of_d: WeightVersion) -> String {
        format!(
            "transfer {id} has KV of weights {}, the decode engine runs weights {of_d}: \
             recompute it, and update both engines",
            self.weights
        )
    }
}
