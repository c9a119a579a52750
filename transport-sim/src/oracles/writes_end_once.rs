//! Every write ends once, in its bound, and a settled write is settled.

use super::Oracle;
use super::due::{Clocks, Due, MS};
use super::lives::Lives;
use crate::history::{Event, NodeId, What, WriteEnd, WriteName};
use crate::plan::Plan;
use std::collections::{BTreeMap, BTreeSet};

const SLACK_MS: u64 = 1_000;

/// Counts writes, their pieces and their ends.
#[derive(Debug)]
pub struct WritesEndOnce {
    clocks: Clocks,
    write_ms: u64,
    running: Lives<BTreeSet<WriteName>>,
    due: Due<WriteName>,
    ours: BTreeSet<NodeId>,
    /// Bytes of ours that have yet to land in a D of ours.
    missing: BTreeMap<WriteName, u64>,
    settled: BTreeSet<WriteName>,
}

impl WritesEndOnce {
    /// For runs of `plan`.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self {
            clocks: Clocks::of(plan),
            write_ms: plan.bounds.write_ms,
            running: Lives::default(),
            due: Due::default(),
            ours: BTreeSet::new(),
            missing: BTreeMap::new(),
            settled: BTreeSet::new(),
        }
    }

    fn landed(&mut self, write: WriteName, bytes: u64) -> Result<(), String> {
        if !self.ours.contains(&write.from) {
            return Ok(());
        }
        if self.settled.contains(&write) {
            return Err(format!("{write} lands after it had settled"));
        }
        let Some(missing) = self.missing.get_mut(&write) else {
            return Err(format!("{write} lands, which was never started"));
        };
        *missing = missing.saturating_sub(bytes);
        Ok(())
    }

    fn ended(&mut self, write: WriteName, how: &WriteEnd) -> Result<(), String> {
        let missing = self.missing.get(&write).copied().unwrap_or(0);
        match how {
            WriteEnd::Written if missing > 0 => {
                Err(format!("{write} counts as written, but {missing} bytes have not landed"))
            }
            WriteEnd::Written | WriteEnd::Rejected(_) | WriteEnd::Failed { settled: true, .. } => {
                self.settled.insert(write);
                Ok(())
            }
            WriteEnd::Failed { settled: false, .. } => Ok(()),
        }
    }
}

impl Oracle for WritesEndOnce {
    fn name(&self) -> &'static str {
        "writes-end-once"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P04", "P07", "G02"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        if let Some((_, write)) = self.due.late(event) {
            return Err(format!("{write} has not ended in time"));
        }
        if let What::Landed { write, ranges, .. } = &event.what {
            self.landed(*write, ranges.iter().map(|it| it.len.0).sum())?;
        }
        let Some((node, running)) = self.running.of(event) else { return Ok(()) };
        match &event.what {
            What::Started { .. } => {
                self.ours.insert(node);
            }
            What::WriteStarted { write, bytes, grant, .. } => {
                // A stock D need not tell what landed.
                let bytes = if grant.is_some() { *bytes } else { 0 };
                if self.missing.insert(*write, bytes).is_some() {
                    return Err(format!("{write} starts twice"));
                }
                running.insert(*write);
                let within = self.clocks.longest(node, self.write_ms) + SLACK_MS * MS;
                self.due.set(node, *write, event.at, within);
            }
            What::WriteEnded { write, how } => {
                if !running.remove(write) {
                    return Err(format!("{write} ends, which does not run"));
                }
                self.due.clear(node, write);
                self.ended(*write, how)?;
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{
        Story, caught, landed, legal, plan, write, write_ended, write_failed,
    };

    fn oracle() -> WritesEndOnce {
        WritesEndOnce::new(&plan())
    }

    fn writing() -> Story {
        Story::new().at(100).p(write(1, 7, &[(0, 64)]))
    }

    fn whole() -> Story {
        writing().d(landed(1, Some(7), &[(500, 32)])).d(landed(1, Some(7), &[(600, 32)]))
    }

    #[test]
    fn p04_a_write_ends_once_in_time() {
        let story = whole().at(4_100).p(write_ended(1, WriteEnd::Written));
        legal(oracle(), story.clone().at(9_000).world(What::Healed));
        caught(oracle(), story.p(write_ended(1, WriteEnd::Written)), "which does not run");
        caught(oracle(), whole().at(4_101).p(write_ended(1, WriteEnd::Written)), "in time");
        caught(oracle(), writing().p(write(1, 7, &[])), "starts twice");
        legal(oracle(), writing().p(What::Killed).at(9_000).world(What::Healed));
    }

    #[test]
    fn p04_written_is_every_byte() {
        let story = writing().d(landed(1, Some(7), &[(500, 63)]));
        caught(oracle(), story.p(write_ended(1, WriteEnd::Written)), "1 bytes have not landed");
    }

    #[test]
    fn p04_settled_means_that_nothing_lands_any_more() {
        let late = |how| writing().p(write_ended(1, how)).d(landed(1, Some(7), &[(500, 64)]));
        legal(oracle(), late(write_failed(false)));
        caught(oracle(), late(write_failed(true)), "after it had settled");
        caught(oracle(), late(WriteEnd::Rejected("old".into())), "after it had settled");
        let story = whole().p(write_ended(1, WriteEnd::Written));
        caught(oracle(), story.d(landed(1, Some(7), &[(500, 8)])), "after it had settled");
    }

    #[test]
    fn nothing_lands_out_of_nowhere() {
        caught(oracle(), Story::new().d(landed(1, None, &[(0, 8)])), "never started");
        let stock = Story::empty().p(crate::oracles::made_up::started(true, "p"));
        legal(oracle(), stock.d(landed(1, None, &[(0, 8)])));
        let story = writing().p(What::Killed).d(landed(1, Some(7), &[(500, 8)]));
        legal(oracle(), story);
    }
}
