//! Blocks that a stock P may still write to.
//!
//! A stock P has no grants: a late write of an ended load would be taken if the same
//! blocks were open to another stock load. So they stay closed to stock loads until P has
//! answered and a little longer, or until P has surely given up.

use super::load::LoadId;
use crate::blocks::BlockList;
use crate::sender::PullId;
use crate::time::Timestamp;
use std::collections::BTreeSet;

/// Ended stock loads whose writers were not seen to end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub(super) struct Quarantine {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Entry {
    load: LoadId,
    until: Timestamp,
    blocks: Vec<BlockList>,
    /// Pulls that a stock P has yet to answer.
    unanswered: BTreeSet<PullId>,
}

impl Quarantine {
    pub fn add(
        &mut self,
        load: LoadId,
        until: Timestamp,
        blocks: Vec<BlockList>,
        unanswered: BTreeSet<PullId>,
        now: Timestamp,
    ) {
        self.entries.retain(|entry| entry.until > now);
        self.entries.push(Entry { load, until, blocks, unanswered });
    }

    /// A stock P has answered a pull for an ended load. True when it was the last one: then
    /// the blocks wait until `until` at most.
    pub fn answered(&mut self, load: LoadId, pull: PullId, until: Timestamp) -> bool {
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.load == load) else {
            return false;
        };
        let last = entry.unanswered.remove(&pull) && entry.unanswered.is_empty();
        if last {
            entry.until = entry.until.min(until);
        }
        last
    }

    /// A stock P that has yet to answer for an ended load may write until then.
    pub fn extend(&mut self, load: LoadId, until: Timestamp) {
        for entry in self.entries.iter_mut().filter(|entry| entry.load == load) {
            entry.until = entry.until.max(until);
        }
    }

    /// Until when `blocks` must wait; `None` when they are free.
    pub fn blocks_until(&mut self, blocks: &[BlockList], now: Timestamp) -> Option<Timestamp> {
        self.entries.retain(|entry| entry.until > now);
        let shared = self.entries.iter().filter(|entry| overlap(&entry.blocks, blocks));
        shared.map(|entry| entry.until).max()
    }
}

fn overlap(left: &[BlockList], right: &[BlockList]) -> bool {
    left.iter().zip(right).any(|(left, right)| {
        left.runs().iter().any(|l| {
            right
                .runs()
                .iter()
                .any(|r| u64::from(l.start.0) < r.end() && u64::from(r.start.0) < l.end())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: BTreeSet<PullId> = BTreeSet::new();

    #[test]
    fn g03_blocks_wait_until_the_last_stock_writer_has_ended() {
        let mut quarantine = Quarantine::default();
        quarantine.add(LoadId(1), Timestamp(20), vec![BlockList::run(7, 4)], NOBODY, Timestamp(0));
        quarantine.add(LoadId(2), Timestamp(10), vec![BlockList::run(4, 4)], NOBODY, Timestamp(0));
        let mut until = |start, len, now| {
            quarantine.blocks_until(&[BlockList::run(start, len)], Timestamp(now))
        };
        assert_eq!(until(0, 4, 1), None);
        assert_eq!(until(3, 2, 1), Some(Timestamp(10)));
        assert_eq!(until(7, 1, 1), Some(Timestamp(20)));
        assert_eq!(until(11, 1, 1), None, "the block after the last");
        assert_eq!(until(3, 2, 10), None);
        assert_eq!(until(10, 1, 10), Some(Timestamp(20)));
    }

    #[test]
    fn l08_entries_that_are_over_are_not_kept() {
        let mut quarantine = Quarantine::default();
        for now in 0..1000 {
            let (until, blocks) = (Timestamp(now + 10), vec![BlockList::run(0, 1)]);
            quarantine.add(LoadId(now), until, blocks, NOBODY, Timestamp(now));
            assert!(quarantine.entries.len() <= 10);
        }
    }

    #[test]
    fn g03_the_last_answer_shortens_the_wait_and_never_lengthens_it() {
        let mut quarantine = Quarantine::default();
        let pulls = BTreeSet::from([PullId(1), PullId(2)]);
        let blocks = vec![BlockList::run(0, 4)];
        quarantine.add(LoadId(1), Timestamp(100), blocks.clone(), pulls, Timestamp(0));
        assert!(!quarantine.answered(LoadId(1), PullId(1), Timestamp(10)));
        assert!(!quarantine.answered(LoadId(1), PullId(1), Timestamp(10)), "twice is once");
        assert_eq!(quarantine.blocks_until(&blocks, Timestamp(1)), Some(Timestamp(100)));
        assert!(quarantine.answered(LoadId(1), PullId(2), Timestamp(10)));
        assert_eq!(quarantine.blocks_until(&blocks, Timestamp(1)), Some(Timestamp(10)));
        assert!(!quarantine.answered(LoadId(1), PullId(2), Timestamp(200)));
        assert_eq!(quarantine.blocks_until(&blocks, Timestamp(1)), Some(Timestamp(10)));
    }
}
