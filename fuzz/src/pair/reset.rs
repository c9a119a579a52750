//! Resets and weight updates of either engine.

use super::{WEIGHTS, World};
use crate::campaign::Check;
use kvbaton_core::ids::WeightVersion;

impl World<'_> {
    pub(super) fn abort_transfers_of_p(&mut self, at: usize) -> Check {
        self.trace.step(|| format!("P {at}: aborts transfers"));
        self.p[at].sender.abort_transfers(self.now)?;
        self.drain_p(at)
    }

    pub(super) fn abort_transfers_of_d(&mut self, at: usize) -> Check {
        self.trace.step(|| format!("D {at}: aborts transfers"));
        self.d[at].receiver.abort_transfers(self.now)?;
        self.drain_d(at)
    }

    /// A stock P knows no weights: whoever mixes with those must reset both sides at once.
    pub(super) fn update_p(&mut self, at: usize) -> Check {
        if self.stock {
            return Ok(());
        }
        let p = &mut self.p[at];
        p.weights = p.weights % WEIGHTS + 1;
        let version = WeightVersion(p.weights);
        self.trace.step(|| format!("P {at}: runs weights {version}"));
        self.p[at].sender.set_weights(version, self.now)?;
        self.drain_p(at)
    }

    /// Mostly to what P runs.
    pub(super) fn update_d(&mut self, at: usize, alone: bool) -> Check {
        if self.stock {
            return Ok(());
        }
        let weights = if alone { self.d[at].weights % WEIGHTS + 1 } else { self.p[0].weights };
        let version = WeightVersion(weights);
        self.trace.step(|| format!("D {at}: runs weights {version}"));
        let d = &mut self.d[at];
        d.weights = weights;
        d.receiver.set_weights(version, self.now)?;
        self.drain_d(at)
    }
}
