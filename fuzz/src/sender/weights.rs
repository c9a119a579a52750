//! What weights have to do with transfers `[R07]`.

use super::model::Model;
use kvbaton_core::ids::{TransferId, WeightVersion};
use kvbaton_core::sender::Ended;
use kvbaton_core::time::Timestamp;
use kvbaton_core::wire::FailureReason;

const OTHER: FailureReason = FailureReason::OtherWeights;

impl Model {
    /// What P's engine has named is of the old weights: held blocks go back, and what it only
    /// started goes back with its hold. Whoever waits for either is told.
    pub fn set_weights(&mut self, version: WeightVersion, now: Timestamp) {
        if self.weights == version {
            return;
        }
        self.weights = version;
        let named = self.lives.iter_mut().filter(|it| it.owner.is_some());
        let mut named: Vec<(TransferId, bool)> = named
            .map(|life| {
                life.ending = Some(OTHER);
                (life.id.clone(), life.held.is_some())
            })
            .collect();
        named.sort();
        for (id, held) in named {
            if held {
                self.end(&id, Ended::Failed(OTHER));
                continue;
            }
            while let Some(at) = self.asks_of(&id).first() {
                self.fail(*at, OTHER, true);
            }
        }
        self.settle(now);
    }

    /// Whether P's KV is of D's weights, as far as both say.
    pub fn fits(&self, of_d: WeightVersion) -> bool {
        let unsaid = WeightVersion(0);
        of_d == self.weights || of_d == unsaid || self.weights == unsaid
    }

    /// P's engine has named the transfer: who runs other weights is told.
    pub fn refuse_other_weights(&mut self, id: &TransferId) {
        loop {
            let mut asks = self.asks_of(id).into_iter();
            let Some(at) = asks.find(|at| !self.fits(self.asks[*at].weights)) else { return };
            self.fail(at, OTHER, true);
        }
    }
}
