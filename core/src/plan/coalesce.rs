//! Merges paired regions that lie side by side in the same rows of both sides.
//!
//! Bytes between payloads (page padding) move along, as with stock peers, but only where
//! D's memory holds nothing else there.

use super::rows::RowMap;
use crate::align::Pair;
use crate::layout::rows_are_whole;
use crate::region::{MemoryRange, Region};

/// A run of paired regions that is copied as one: `source_len` bytes per row on P and
/// `destination_len` on D, from the first region's base.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run<'a> {
    pub local: &'a Region,
    pub remote: &'a Region,
    /// Index of the first region among P's.
    pub local_index: usize,
    pub source_len: u64,
    pub destination_len: u64,
}

/// What merging depends on besides the pairs.
pub(super) struct Surroundings<'a> {
    pub remote_rows: RowMap<'a>,
    pub local_memory: &'a [MemoryRange],
    pub remote_memory: &'a [MemoryRange],
    /// Every region of both sides is paired, so whole rows may move.
    pub all_paired: bool,
}

impl<'a> Run<'a> {
    pub(super) fn new(pair: Pair, local: &'a [Region], remote: &'a [Region]) -> Self {
        let (ours, theirs) = (&local[pair.local], &remote[pair.remote]);
        Self {
            local: ours,
            remote: theirs,
            local_index: pair.local,
            source_len: ours.payload.0,
            destination_len: theirs.payload.0,
        }
    }
}

/// Merges neighbours of `runs` for which `may_merge` holds, in their order.
pub(super) fn coalesce<'a>(
    runs: impl Iterator<Item = Run<'a>>,
    around: &Surroundings<'_>,
    may_merge: impl Fn(&Run<'a>) -> bool,
) -> Vec<Run<'a>> {
    let mut merged: Vec<Run<'a>> = Vec::new();
    for next in runs {
        match merged.last_mut() {
            Some(run) if may_merge(run) && continues(run, &next, around) => {
                run.source_len = next.local.base.0 - run.local.base.0 + next.source_len;
                run.destination_len = next.remote.base.0 - run.remote.base.0 + next.destination_len;
            }
            _ => merged.push(next),
        }
    }
    if around.all_paired {
        for run in &mut merged {
            if may_merge(run) {
                widen(run, around);
            }
        }
    }
    merged
}

/// Whether `next` lies behind `run` in the same rows, equally far on both sides.
fn continues(run: &Run<'_>, next: &Run<'_>, around: &Surroundings<'_>) -> bool {
    let follows = |first: &Region, len: u64, other: &Region| {
        first.stride == other.stride
            && first.base.0 + len <= other.base.0
            && other.base.0 + other.payload.0 <= first.base.0 + first.stride.0
    };
    run.local.group == next.local.group
        && run.local.shared_groups == next.local.shared_groups
        && run.remote.shared_groups == next.remote.shared_groups
        && follows(run.local, run.source_len, next.local)
        && follows(run.remote, run.destination_len, next.remote)
        && next.local.base.0 - run.local.base.0 == next.remote.base.0 - run.remote.base.0
        && around.remote_rows.is_free(
            run.remote.base.0 + run.destination_len,
            next.remote.base.0,
            &run.remote.group,
        )
}

/// Lets a run that starts its row take the whole row, so that consecutive blocks merge.
fn widen(run: &mut Run<'_>, around: &Surroundings<'_>) {
    let (local, remote) = (run.local, run.remote);
    let starts_row = local.row_offset == Some(0) && remote.row_offset == Some(0);
    let whole = |region: &Region, len: u64, memory: &[MemoryRange]| {
        rows_are_whole(region.base.0, region.stride.0, len, memory)
    };
    let end = remote.base.0 + remote.stride.0;
    if starts_row
        && local.stride == remote.stride
        && around.remote_rows.is_free(remote.base.0 + run.destination_len, end, &remote.group)
        && whole(local, run.source_len, around.local_memory)
        && whole(remote, run.destination_len, around.remote_memory)
    {
        run.source_len = local.stride.0;
        run.destination_len = remote.stride.0;
    }
}
