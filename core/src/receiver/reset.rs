//! Loads that end early because D's engine goes on without them: drops, resets, new weights.

use super::load::{LoadFailure, LoadFailureReason, LoadId, Phase};
use super::{Receiver, Timer, Wait};
use crate::ids::WeightVersion;
use crate::planted::{self, Bug};
use crate::time::Timestamp;

impl Receiver {
    /// The weights that D's engine runs.
    #[must_use]
    pub const fn weights(&self) -> WeightVersion {
        self.weights
    }

    /// D's engine goes over to other weights: every load fails at once, even if all of it is
    /// there and only its grant is still being revoked. Later pulls carry the new version.
    /// The same version again changes nothing `[R07]`.
    pub fn set_weights(&mut self, version: WeightVersion, now: Timestamp) {
        if version == self.weights {
            return;
        }
        let text = format!(
            "weights went from {} to {version} while it loaded: recompute it",
            self.weights
        );
        self.weights = version;
        if !planted::is(Bug::LoadOutlivesWeights) {
            self.cut_all_short(LoadFailureReason::WeightsUpdated, &text, now);
        }
    }

    /// D's engine needs every block back `[R03]`: every load fails as
    /// [`LoadFailureReason::Reset`], and P is asked to drop it, or to release what was not
    /// pulled yet. Blocks come back once grants are revoked `[G02]`.
    pub fn abort_transfers(&mut self, now: Timestamp) {
        let text = "the decode engine was reset while it loaded: recompute it";
        self.cut_all_short(LoadFailureReason::Reset, text, now);
    }

    fn cut_all_short(&mut self, reason: LoadFailureReason, text: &str, now: Timestamp) {
        let running: Vec<LoadId> = self.by_request.values().copied().collect();
        for id in running {
            let Some(load) = self.loads.get_mut(&id) else { continue };
            load.failure.get_or_insert_with(|| LoadFailure {
                reason,
                message: format!("request {}: {text}", load.spec.request),
            });
            self.give_up(id, now);
        }
        self.flush(now); // only now: nothing is pulled to be dropped
    }

    /// Ends a load that D's engine does not want any more. P is told, at the next flush also
    /// one that was not asked yet: it may hold blocks for it.
    pub(super) fn give_up(&mut self, id: LoadId, now: Timestamp) {
        let Some(load) = self.loads.get_mut(&id) else { return };
        match load.phase {
            Phase::Revoking => {}
            Phase::Pulling => self.settle_early(id, Wait::IfRevokingDoesNotSettle, now),
            Phase::Staged | Phase::Discovering => self.report_then_release(id),
            Phase::Quarantined => {
                load.phase = Phase::Staged;
                self.timers.clear(&Timer::Quarantine(id));
                self.staged.push(id);
                self.report_then_release(id);
            }
        }
    }
}
