//! A load's rows are the engine's again once it has ended: nothing lands there any more.

use super::Oracle;
use super::lives::Lives;
use super::open::Open;
use super::ranges::{RangeSet, words};
use crate::history::{Event, What};
use kvbaton_core::ids::Grant;
use kvbaton_core::region::MemoryRange;
use std::collections::BTreeSet;

#[derive(Debug, Default)]
struct Node {
    loads: Open<Vec<MemoryRange>>,
    /// Rows of ended loads that no other load has taken.
    closed: RangeSet,
    ended: BTreeSet<Grant>,
}

/// Remembers the rows and grants of loads that have ended.
#[derive(Debug, Default)]
pub struct NothingAfterSettled {
    nodes: Lives<Node>,
}

impl Oracle for NothingAfterSettled {
    fn name(&self) -> &'static str {
        "nothing-after-settled"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P08", "P09", "G02"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, it)) = self.nodes.of(event) else { return Ok(()) };
        match &event.what {
            What::LoadAsked { request, transfer, rows, .. } => {
                rows.iter().for_each(|row| it.closed.remove(*row));
                it.loads.ask(request, transfer, rows.clone());
            }
            What::LoadRefused { request, transfer, .. } => {
                it.loads.refuse(request, transfer);
            }
            What::PullSent { pull, .. } => it.loads.pull(pull),
            What::LoadEnded { request, transfer, .. } => {
                let Some(rows) = it.loads.end(request, transfer) else { return Ok(()) };
                it.ended.extend(it.loads.grants(request, transfer));
                rows.iter().for_each(|row| it.closed.insert(*row));
                for (_, taken) in it.loads.iter() {
                    taken.iter().for_each(|row| it.closed.remove(*row));
                }
            }
            What::Landed { write, grant, ranges, seen: true, .. } => {
                if let Some(grant) = grant.filter(|grant| it.ended.contains(grant)) {
                    return Err(format!(
                        "{node}: {write} landed under {grant}, whose load has ended"
                    ));
                }
                if let Some(row) = it.closed.shared(ranges) {
                    return Err(format!(
                        "{node}: {write} landed at {}, the engine's since a load ended",
                        words(row)
                    ));
                }
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
        Story, caught, landed, legal, load, load_refused, loaded, pull, pull_sent,
    };

    fn ended() -> Story {
        let story =
            Story::new().d(load("a", &[(0, 64)])).d(pull_sent(1, pull(3, true, &[("a", 7)])));
        story.d(landed(1, Some(7), &[(0, 64)])).d(loaded("a"))
    }

    #[test]
    fn p08_rows_are_written_until_the_load_ends_and_by_the_next_load() {
        legal(NothingAfterSettled::default(), ended());
        let again = ended().d(load("b", &[(0, 64)])).d(pull_sent(2, pull(3, true, &[("b", 8)])));
        legal(NothingAfterSettled::default(), again.d(landed(2, Some(8), &[(0, 64)])));
    }

    #[test]
    fn g02_a_late_write_hits_nothing() {
        let story = ended().d(landed(2, None, &[(60, 8)]));
        caught(NothingAfterSettled::default(), story, "the engine's since");
        let story = ended().d(load("b", &[(0, 64)])).d(landed(1, Some(7), &[(0, 8)]));
        caught(NothingAfterSettled::default(), story, "whose load has ended");
    }

    #[test]
    fn rows_of_another_load_that_runs_stay_open() {
        let story = Story::new().d(load("a", &[(0, 64)])).d(load("b", &[(32, 64)]));
        let story = story.d(loaded("a")).d(landed(1, None, &[(32, 64)]));
        legal(NothingAfterSettled::default(), story.clone());
        caught(NothingAfterSettled::default(), story.d(landed(1, None, &[(31, 1)])), "engine's");
    }

    #[test]
    fn p11_a_load_that_was_refused_does_not_end_the_one_that_runs() {
        let story = Story::new().d(load("a", &[(0, 64)])).d(load("a", &[(64, 64)]));
        let story = story.d(load_refused("a")).d(landed(1, None, &[(0, 64)]));
        legal(NothingAfterSettled::default(), story);
    }

    #[test]
    fn p11_a_load_that_was_refused_keeps_no_rows_open() {
        let story = Story::new().d(load("a", &[(0, 64)])).d(load("a", &[(0, 64)]));
        let story = story.d(load_refused("a")).d(loaded("a")).d(landed(1, None, &[(0, 64)]));
        caught(NothingAfterSettled::default(), story, "the engine's since");
    }
}
