//! Blocks that a stock P may still write to.
//!
//! A stock P has no grants: a late write of an ended load would be taken if the same
//! blocks were open to another stock load. So they stay closed to stock loads for a while.

use crate::blocks::BlockList;
use crate::time::Timestamp;
use std::collections::VecDeque;

/// Recently ended stock loads whose writer was not seen to end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Quarantine {
    entries: VecDeque<(Timestamp, Vec<BlockList>)>,
}

impl Quarantine {
    pub fn add(&mut self, until: Timestamp, blocks: Vec<BlockList>) {
        self.entries.push_back((until, blocks));
    }

    /// Until when `blocks` must wait; `None` when they are free.
    pub fn blocks_until(&mut self, blocks: &[BlockList], now: Timestamp) -> Option<Timestamp> {
        while self.entries.front().is_some_and(|(until, _)| *until <= now) {
            self.entries.pop_front();
        }
        let shared = self.entries.iter().filter(|(_, theirs)| overlap(theirs, blocks));
        shared.map(|(until, _)| *until).max()
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

    #[test]
    fn g03_blocks_wait_until_the_last_stock_writer_has_ended() {
        let mut quarantine = Quarantine::default();
        quarantine.add(Timestamp(10), vec![BlockList::run(4, 4)]);
        quarantine.add(Timestamp(20), vec![BlockList::run(7, 4)]);
        assert_eq!(quarantine.blocks_until(&[BlockList::run(0, 4)], Timestamp(1)), None);
        assert_eq!(
            quarantine.blocks_until(&[BlockList::run(3, 2)], Timestamp(1)),
            Some(Timestamp(10))
        );
        assert_eq!(
            quarantine.blocks_until(&[BlockList::run(7, 1)], Timestamp(1)),
            Some(Timestamp(20))
        );
        assert_eq!(quarantine.blocks_until(&[BlockList::run(3, 2)], Timestamp(10)), None);
    }
}
