//! A granted write lands in the rows of its own load, never in another's.

use super::Oracle;
use super::lives::Lives;
use super::open::Open;
use super::ranges::{RangeSet, outside, words};
use crate::history::{Event, What};
use kvbaton_core::region::MemoryRange;

/// Tells whose rows a write lands in.
#[derive(Debug, Default)]
pub struct OwnLoadOnly {
    loads: Lives<Open<Vec<MemoryRange>>>,
}

impl Oracle for OwnLoadOnly {
    fn name(&self) -> &'static str {
        "own-load-only"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["G01", "P11", "A07"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, loads)) = self.loads.of(event) else { return Ok(()) };
        match &event.what {
            What::LoadAsked { request, transfer, rows, .. } => {
                loads.ask(request, transfer, rows.clone());
            }
            What::LoadRefused { request, transfer, .. } => {
                loads.refuse(request, transfer);
            }
            What::PullSent { pull, .. } => loads.pull(pull),
            What::LoadEnded { request, transfer, .. } => {
                loads.end(request, transfer);
                loads.grants(request, transfer);
            }
            What::Landed { write, grant: Some(grant), ranges, seen: true, .. } => {
                let Some(own) = loads.of_grant(*grant) else { return Ok(()) };
                if outside(own, ranges).is_none() {
                    return Ok(());
                }
                let mut stray = RangeSet::of(ranges);
                own.iter().for_each(|row| stray.remove(*row));
                let mut others = loads.iter();
                let hit =
                    others.find_map(|((request, _), rows)| Some((request, stray.shared(rows)?)));
                if let Some((request, bytes)) = hit {
                    return Err(format!(
                        "{node}: {write} under {grant} landed at {}, in rows of {request}'s load",
                        words(bytes)
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

    fn two() -> Story {
        let story = Story::new().d(load("a", &[(0, 64)])).d(load("b", &[(64, 64)]));
        story.d(pull_sent(1, pull(3, true, &[("a", 7), ("b", 8)])))
    }

    #[test]
    fn p11_each_write_keeps_to_its_load() {
        legal(
            OwnLoadOnly::default(),
            two().d(landed(1, Some(7), &[(0, 64)])).d(landed(2, Some(8), &[(64, 64)])),
        );
        caught(
            OwnLoadOnly::default(),
            two().d(landed(1, Some(7), &[(32, 40)])),
            "landed at 40+8, in rows of b's load",
        );
    }

    #[test]
    fn rows_that_two_loads_share_are_both_loads() {
        let story = Story::new().d(load("a", &[(0, 64)])).d(load("b", &[(0, 64)]));
        let story = story.d(pull_sent(1, pull(3, true, &[("a", 7), ("b", 8)])));
        legal(OwnLoadOnly::default(), story.d(landed(1, Some(7), &[(0, 64)])));
    }

    #[test]
    fn rows_of_an_ended_load_are_nobodys() {
        let story = two().d(loaded("b")).d(landed(1, Some(7), &[(64, 8)]));
        legal(OwnLoadOnly::default(), story);
    }

    #[test]
    fn a_load_that_was_refused_owns_no_rows() {
        let story = Story::new().d(load("a", &[(64, 64)])).d(load_refused("a"));
        let story = story.d(load("a", &[(0, 64)])).d(load("b", &[(64, 64)]));
        let story = story.d(pull_sent(1, pull(3, true, &[("a", 7), ("b", 8)])));
        caught(OwnLoadOnly::default(), story.d(landed(1, Some(7), &[(64, 8)])), "b's load");
    }
}
