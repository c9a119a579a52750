//! The memory that a load opens to P `[G01]`.

use super::{rows_are_whole, rows_in_memory};
use crate::blocks::BlockList;
use crate::ids::{Address, Bytes};
use crate::plan::{GroupSpec, LocalLayout, RowMap};
use crate::region::{GroupKind, MemoryRange, Region, RegionGroup};

/// D's rows, ready to be granted block by block. Worked out once per registration.
///
/// A row is granted with the padding between and behind its regions where nothing else
/// lives there: P merges copies across it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GrantableRows {
    pieces: Vec<Piece>,
    /// Per group: rows per logical block, and whether block 0 is no block.
    groups: Vec<(u32, bool)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    group: RegionGroup,
    base: u64,
    stride: u64,
    len: u64,
    rows: u64,
    /// It starts its row, so that P may take the whole of it.
    widen: bool,
}

impl GrantableRows {
    /// Prepares D's own registration.
    #[must_use]
    pub fn prepare(local: &LocalLayout) -> Self {
        Self::new(&local.regions, &local.groups, local.kernel_blocks_per_block, &local.memory)
    }

    /// Prepares `regions`; `memory`, when given, clips rows to what is registered.
    #[must_use]
    pub fn new(
        regions: &[Region],
        groups: &[GroupSpec],
        kernel_blocks_per_block: u32,
        memory: &[MemoryRange],
    ) -> Self {
        let mut open: Vec<(u64, Piece)> = Vec::new();
        for (region, row, exclusive) in RowMap::new(regions).iter() {
            let (base, stride, payload) = (region.base.0, region.stride.0, region.payload.0);
            let known = open.iter_mut().rev().take_while(|(other, _)| *other == row);
            let found = known
                .map(|(_, piece)| piece)
                .find(|piece| exclusive && piece.group == region.group && piece.stride == stride);
            if let Some(piece) = found {
                piece.len = piece.len.max(base - piece.base + payload);
                continue;
            }
            let widen = exclusive && region.row_offset == Some(0);
            let group = region.group.clone();
            open.push((row, Piece { group, base, stride, len: payload, rows: 0, widen }));
        }
        let finish = |(_, piece): (u64, Piece)| piece.fitted(memory);
        let group = |spec: &GroupSpec| match spec.kind {
            GroupKind::Attention => (kernel_blocks_per_block.max(1), false),
            GroupKind::State => (1, true),
        };
        Self {
            pieces: open.into_iter().map(finish).collect(),
            groups: groups.iter().map(group).collect(),
        }
    }

    /// Replaces `out` by the rows of the named logical blocks, one list per group, as
    /// sorted ranges that do not touch. Null blocks of state groups are left out, and so
    /// are blocks past the registered memory.
    pub fn granted_rows(&self, blocks: &[BlockList], out: &mut Vec<MemoryRange>) {
        out.clear();
        for piece in &self.pieces {
            for &group in crate::plan::groups_of(&piece.group) {
                let (Some(list), Some(&(factor, has_null))) =
                    (blocks.get(group as usize), self.groups.get(group as usize))
                else {
                    continue;
                };
                for run in list.runs() {
                    let start = u64::from(run.start.0).max(u64::from(has_null));
                    let from = start * u64::from(factor);
                    piece.grant(from, run.end() * u64::from(factor), out);
                }
            }
        }
        merge(out);
    }
}

impl Piece {
    /// Counts rows, and takes the whole row where every row has room for it.
    fn fitted(mut self, memory: &[MemoryRange]) -> Self {
        self.rows = rows_in_memory(self.base, self.stride, self.len, memory);
        if self.widen && rows_are_whole(self.base, self.stride, self.len, memory) {
            self.len = self.stride;
        }
        self
    }

    /// Rows `[from, to)`.
    fn grant(&self, from: u64, to: u64, out: &mut Vec<MemoryRange>) {
        let to = to.min(self.rows);
        if from >= to {
            return;
        }
        let address = |row: u64| Address(self.base + row * self.stride);
        if self.len == self.stride {
            let len = Bytes((to - from) * self.stride);
            out.push(MemoryRange { start: address(from), len });
            return;
        }
        out.extend((from..to).map(|row| MemoryRange { start: address(row), len: Bytes(self.len) }));
    }
}

/// Sorts, and joins ranges that touch or overlap.
fn merge(ranges: &mut Vec<MemoryRange>) {
    if !ranges.is_sorted() {
        ranges.sort_unstable();
    }
    ranges.dedup_by(|next, last| {
        let end = last.start.0 + last.len.0;
        let joins = next.start.0 <= end;
        if joins {
            last.len.0 = end.max(next.start.0 + next.len.0) - last.start.0;
        }
        joins
    });
}
