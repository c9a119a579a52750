//! Sets of bytes. Slices of ranges are sorted and merged, as events give them.

use kvbaton_core::ids::{Address, Bytes};
use kvbaton_core::region::MemoryRange;
use std::collections::BTreeMap;

/// First address after a range.
pub(super) fn end(range: MemoryRange) -> u64 {
    range.start.0.saturating_add(range.len.0)
}

fn range(start: u64, end: u64) -> MemoryRange {
    MemoryRange { start: Address(start), len: Bytes(end - start) }
}

/// A range in words.
pub(super) fn words(range: MemoryRange) -> String {
    format!("{:x}+{}", range.start.0, range.len.0)
}

/// The row that begins at or before an address and is nearest to it.
pub(super) fn row_of(rows: &[MemoryRange], address: u64) -> Option<MemoryRange> {
    let after = rows.partition_point(|row| row.start.0 <= address);
    after.checked_sub(1).map(|index| rows[index])
}

/// The first of `ranges` that does not lie inside one of `rows`.
pub(super) fn outside(rows: &[MemoryRange], ranges: &[MemoryRange]) -> Option<MemoryRange> {
    let inside =
        |it: &MemoryRange| row_of(rows, it.start.0).is_some_and(|row| end(*it) <= end(row));
    ranges.iter().find(|it| !inside(it)).copied()
}

/// The first of `ranges` that shares a byte with `rows`.
pub(super) fn shared(rows: &[MemoryRange], ranges: &[MemoryRange]) -> Option<MemoryRange> {
    let meets = |it: &MemoryRange| {
        let first = rows.partition_point(|row| end(*row) <= it.start.0);
        rows.get(first).is_some_and(|row| row.start.0 < end(*it))
    };
    ranges.iter().find(|it| meets(it)).copied()
}

/// A set of bytes that grows and shrinks.
#[derive(Debug, Default)]
pub(super) struct RangeSet(BTreeMap<u64, u64>);

impl RangeSet {
    pub fn of(ranges: &[MemoryRange]) -> Self {
        let mut set = Self::default();
        ranges.iter().for_each(|it| set.insert(*it));
        set
    }

    pub fn insert(&mut self, added: MemoryRange) {
        let (mut from, mut to) = (added.start.0, end(added));
        if let Some((&start, &stop)) = self.0.range(..=from).next_back()
            && stop >= from
        {
            (from, to) = (start, to.max(stop));
        }
        while let Some((&start, &stop)) = self.0.range(from..=to).next() {
            self.0.remove(&start);
            to = to.max(stop);
        }
        self.0.insert(from, to);
    }

    pub fn remove(&mut self, removed: MemoryRange) {
        let (from, to) = (removed.start.0, end(removed));
        if let Some((&start, &stop)) = self.0.range(..from).next_back()
            && stop > from
        {
            self.0.insert(start, from);
            if stop > to {
                self.0.insert(to, stop);
            }
        }
        while let Some((&start, &stop)) = self.0.range(from..to).next() {
            self.0.remove(&start);
            if stop > to {
                self.0.insert(to, stop);
            }
        }
    }

    /// A range of the set that shares a byte with one of `ranges`.
    pub fn shared(&self, ranges: &[MemoryRange]) -> Option<MemoryRange> {
        ranges.iter().find_map(|it| {
            let (&start, &stop) = self.0.range(..end(*it)).next_back()?;
            (stop > it.start.0).then(|| range(start, stop))
        })
    }

    pub fn first(&self) -> Option<MemoryRange> {
        self.0.first_key_value().map(|(start, stop)| range(*start, *stop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_grows_and_shrinks_by_bytes() {
        let mut set = RangeSet::of(&[range(0, 10), range(20, 30)]);
        set.insert(range(10, 20));
        assert_eq!(set.first(), Some(range(0, 30)));
        set.remove(range(5, 7));
        set.remove(range(25, 40));
        assert_eq!(set.0, BTreeMap::from([(0, 5), (7, 25)]));
        assert_eq!(set.shared(&[range(5, 7)]), None);
        assert_eq!(set.shared(&[range(5, 8)]), Some(range(7, 25)));
        assert_eq!(set.shared(&[range(25, 99)]), None);
        set.remove(range(0, 99));
        assert_eq!(set.first(), None);
    }

    #[test]
    fn rows_cover_or_share() {
        let rows = [range(0, 10), range(20, 30)];
        assert_eq!(outside(&rows, &[range(0, 10), range(21, 30)]), None);
        assert_eq!(outside(&rows, &[range(8, 12)]), Some(range(8, 12)));
        assert_eq!(outside(&[], &[range(8, 12)]), Some(range(8, 12)));
        assert_eq!(shared(&rows, &[range(10, 20), range(30, 99)]), None);
        assert_eq!(shared(&rows, &[range(10, 20), range(29, 99)]), Some(range(29, 99)));
    }
}
