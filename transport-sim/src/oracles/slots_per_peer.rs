//! P runs no more writes at once than it may, and towards one D no more than its share.

use super::Oracle;
use super::lives::Lives;
use crate::history::{Event, What, WriteName};
use crate::plan::Plan;
use kvbaton_core::ids::SessionAddress;
use std::collections::BTreeMap;

/// Counts running writes.
#[derive(Debug)]
pub struct SlotsPerPeer {
    all: usize,
    per_peer: usize,
    running: Lives<BTreeMap<WriteName, SessionAddress>>,
}

impl SlotsPerPeer {
    /// For runs of `plan`.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let bounds = &plan.bounds;
        Self { all: bounds.senders, per_peer: bounds.senders_per_peer, running: Lives::default() }
    }
}

impl Oracle for SlotsPerPeer {
    fn name(&self) -> &'static str {
        "slots-per-peer"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P03", "Z03"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let (all, per_peer) = (self.all, self.per_peer);
        let Some((node, running)) = self.running.of(event) else { return Ok(()) };
        match &event.what {
            What::WriteStarted { write, to, .. } => {
                running.insert(*write, to.clone());
                let same = running.values().filter(|it| *it == to).count();
                if same > per_peer {
                    return Err(format!("{node}: {same} writes to {to} at once, not {per_peer}"));
                }
                if running.len() > all {
                    return Err(format!("{node}: {} writes at once, not {all}", running.len()));
                }
            }
            What::WriteEnded { write, .. } => drop(running.remove(write)),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::WriteEnd;
    use crate::oracles::made_up::{Story, caught, legal, plan, write, write_ended};

    fn oracle(senders: usize, senders_per_peer: usize) -> SlotsPerPeer {
        let mut plan = plan();
        (plan.bounds.senders, plan.bounds.senders_per_peer) = (senders, senders_per_peer);
        SlotsPerPeer::new(&plan)
    }

    fn two() -> Story {
        Story::new().p(write(1, 7, &[])).p(write(2, 8, &[]))
    }

    #[test]
    fn p03_z03_slots_are_bounded_in_all_and_per_peer() {
        legal(oracle(4, 2), two());
        caught(oracle(4, 1), two(), "2 writes to d:1 at once");
        caught(oracle(1, 2), two(), "2 writes at once, not 1");
        let one = Story::new().p(write(1, 7, &[])).p(write_ended(1, WriteEnd::Written));
        legal(oracle(1, 1), one.p(write(2, 8, &[])));
    }
}
