//! Which regions lie in which block rows of one side's memory.

use crate::region::{Region, RegionGroup};

/// A side's regions by address, with what may lie between them.
///
/// Packed layouts put several regions into one row. Bytes between two of them may be
/// copied along only if nothing else lives there.
pub(crate) struct RowMap<'a> {
    sorted: Vec<Placed<'a>>,
}

struct Placed<'a> {
    region: &'a Region,
    /// Base of the first region of the row.
    row: u64,
    /// Groups in the row overlay each other from its start, so their block ids are
    /// exclusive: a block's whole row belongs to its group.
    exclusive: bool,
}

impl<'a> RowMap<'a> {
    pub(crate) fn new(regions: &'a [Region]) -> Self {
        let mut by_base: Vec<&Region> = regions.iter().collect();
        by_base.sort_by_key(|region| region.base);
        let mut sorted = Vec::with_capacity(by_base.len());
        let mut rest = &by_base[..];
        while let Some(first) = rest.first() {
            let end = first.base.0.saturating_add(first.stride.0);
            let len = rest.partition_point(|region| region.base.0 < end);
            let (row, after) = rest.split_at(len);
            let exclusive = is_exclusive(row);
            let place = |&region| Placed { region, row: first.base.0, exclusive };
            sorted.extend(row.iter().map(place));
            rest = after;
        }
        Self { sorted }
    }

    /// Whether `[from, to)` of a row may be copied for `group`: no other region of the
    /// group starts there, and none of a group whose ids may be the same.
    pub(crate) fn is_free(&self, from: u64, to: u64, group: &RegionGroup) -> bool {
        let first = self.sorted.partition_point(|placed| placed.region.base.0 < from);
        self.sorted[first..]
            .iter()
            .take_while(|placed| placed.region.base.0 < to)
            .all(|placed| placed.exclusive && placed.region.group != *group)
    }

    /// (region, base of its row, whether groups are exclusive in it), by address.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'a Region, u64, bool)> + '_ {
        self.sorted.iter().map(|placed| (placed.region, placed.row, placed.exclusive))
    }
}

/// Every group of the row starts where the row starts, and all rows are equally long.
fn is_exclusive(row: &[&Region]) -> bool {
    let first = row[0];
    let at_start = row.iter().take_while(|region| region.base == first.base);
    let mut groups: Vec<&RegionGroup> = at_start.map(|region| &region.group).collect();
    groups.sort_unstable();
    row.iter()
        .all(|region| region.stride == first.stride && groups.binary_search(&&region.group).is_ok())
}
