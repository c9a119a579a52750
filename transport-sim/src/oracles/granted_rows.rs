//! No byte lands outside the rows of a live grant.

use super::Oracle;
use super::lives::Lives;
use super::ranges::{end, outside, row_of, words};
use crate::history::{Event, What};
use kvbaton_core::ids::Grant;
use kvbaton_core::region::MemoryRange;
use std::collections::BTreeMap;

#[derive(Debug)]
struct Opened {
    rows: Vec<MemoryRange>,
    ungranted: bool,
}

/// Compares landings with the grants that are open.
#[derive(Debug, Default)]
pub struct GrantedRows {
    grants: Lives<BTreeMap<Grant, Opened>>,
}

/// The first of `ranges` that the open rows together do not cover.
fn outside_all(opened: &BTreeMap<Grant, Opened>, ranges: &[MemoryRange]) -> Option<MemoryRange> {
    let covered = |range: &MemoryRange| {
        let mut from = range.start.0;
        while from < end(*range) {
            let open = opened.values().filter(|it| it.ungranted);
            let ends = open.filter_map(|it| row_of(&it.rows, from).map(end));
            match ends.max() {
                Some(to) if to > from => from = to,
                _ => return false,
            }
        }
        true
    };
    ranges.iter().find(|it| !covered(it)).copied()
}

impl Oracle for GrantedRows {
    fn name(&self) -> &'static str {
        "granted-rows"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["G01", "G02", "Z02", "A07"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, grants)) = self.grants.of(event) else { return Ok(()) };
        match &event.what {
            What::GrantOpened { grant, rows, ungranted, .. } => {
                let opened = Opened { rows: rows.clone(), ungranted: *ungranted };
                grants.insert(*grant, opened);
            }
            What::Revoked { grant } => {
                grants.remove(grant);
            }
            What::Landed { write, grant: Some(grant), ranges, seen: true, .. } => {
                let Some(opened) = grants.get(grant) else {
                    return Err(format!("{node}: {write} landed under {grant}, which is not live"));
                };
                if let Some(range) = outside(&opened.rows, ranges) {
                    return Err(format!(
                        "{node}: {write} landed at {}, outside the rows of {grant}",
                        words(range)
                    ));
                }
            }
            What::Landed { write, grant: None, ranges, seen: true, .. } => {
                if let Some(range) = outside_all(grants, ranges) {
                    return Err(format!(
                        "{node}: {write} landed at {}, which no load has open to stock writers",
                        words(range)
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
    use crate::oracles::made_up::{D, Story, caught, grant, landed, legal, started};

    fn open() -> Story {
        Story::new().d(grant(7, &[(0, 64), (128, 64)], false)).d(grant(8, &[(64, 64)], true))
    }

    fn revoked(grant: u64) -> What {
        What::Revoked { grant: Grant(grant) }
    }

    #[test]
    fn g01_bytes_inside_open_rows_are_fine() {
        let story = open().d(landed(1, Some(7), &[(0, 32), (128, 64)]));
        let story = story.d(What::RevokeAsked { grant: Grant(7) });
        let story = story.d(landed(1, Some(7), &[(32, 32)])).d(landed(2, None, &[(64, 64)]));
        legal(GrantedRows::default(), story.d(revoked(7)).d(revoked(8)));
    }

    #[test]
    fn g02_nothing_lands_under_a_grant_that_is_revoked_or_unknown() {
        let story = open().d(revoked(7)).d(landed(1, Some(7), &[(0, 32)]));
        caught(GrantedRows::default(), story, "not live");
        let story = open().d(landed(1, Some(9), &[(0, 32)]));
        caught(GrantedRows::default(), story, "not live");
    }

    #[test]
    fn g02_pages_that_are_gone_may_be_written() {
        let What::Landed { write, grant, generation, ranges, .. } = landed(1, Some(9), &[(0, 9)])
        else {
            unreachable!()
        };
        let unseen = What::Landed { write, grant, generation, ranges, seen: false };
        legal(GrantedRows::default(), open().d(unseen));
    }

    #[test]
    fn g01_a_write_keeps_to_its_own_rows() {
        let story = open().d(landed(1, Some(7), &[(0, 32), (60, 8)]));
        caught(GrantedRows::default(), story, "at 3c+8, outside");
        caught(GrantedRows::default(), open().d(landed(1, Some(8), &[(0, 8)])), "outside");
    }

    #[test]
    fn z02_stock_writers_need_rows_that_are_open_to_them() {
        caught(GrantedRows::default(), open().d(landed(1, None, &[(0, 8)])), "no load has open");
        let both = || open().d(grant(7, &[(0, 64), (128, 64)], true));
        legal(GrantedRows::default(), both().d(landed(1, None, &[(32, 128)])));
        let story = both().d(revoked(8)).d(landed(1, None, &[(32, 128)]));
        caught(GrantedRows::default(), story, "no load has open");
    }

    #[test]
    fn a_new_life_has_no_grants_and_stock_peers_are_not_judged() {
        let next = crate::history::NodeId { life: 1, ..D };
        let story = open().d(What::Killed).node(next, started(false, "d"));
        caught(GrantedRows::default(), story.node(next, landed(1, Some(7), &[(0, 8)])), "not live");
        let story = open().d(What::Killed).node(next, started(true, "d"));
        legal(GrantedRows::default(), story.node(next, landed(1, Some(7), &[(0, 8)])));
    }
}
