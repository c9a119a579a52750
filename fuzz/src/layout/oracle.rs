//! What a plan may touch, worked out from the definition of a row.

use super::sides::Model;
use super::sides::lists;
use crate::campaign::Check;
use crate::ensure;
use kvbaton_core::layout::GrantableRows;
use kvbaton_core::plan::LocalLayout;
use kvbaton_core::region::{Copy, MemoryRange, Region, RegionGroup};

/// Half-open, in bytes.
type Span = (u64, u64);

/// (P's block, D's block) of a group, tail to tail, as positions stay paired `[A06]`.
fn pairs(model: &Model, group: usize, ours: &[u32], theirs: &[u32]) -> Option<Vec<(u32, u32)>> {
    let keep = |list: &[u32]| -> Vec<u32> {
        list.iter().copied().filter(|block| !model.is_null(group, *block)).collect()
    };
    let (ours, theirs) = (keep(ours), keep(theirs));
    let skip = ours.len().checked_sub(theirs.len())?;
    Some(ours[skip..].iter().copied().zip(theirs).collect())
}

fn is_in(region: &Region, group: usize) -> bool {
    match &region.group {
        RegionGroup::One(of) => *of as usize == group,
        RegionGroup::Shared(of) => of.contains(&(group as u32)),
    }
}

/// Whole rows, and payloads in them, of the blocks that `pick` takes of each pair.
fn spans(
    model: &Model,
    side: &LocalLayout,
    pairs: &[Vec<(u32, u32)>],
    pick: fn(&(u32, u32)) -> u32,
) -> (Vec<Span>, Vec<Span>) {
    let (mut rows, mut payloads) = (Vec::new(), Vec::new());
    for region in &side.regions {
        for (group, pairs) in pairs.iter().enumerate().filter(|(at, _)| is_in(region, *at)) {
            for row in pairs.iter().flat_map(|pair| model.rows(group, pick(pair))) {
                let start = region.base.0 + row * region.stride.0;
                let row_start = start - region.row_offset.unwrap_or(0);
                rows.push((row_start, row_start + region.stride.0));
                payloads.push((start, start + region.payload.0));
            }
        }
    }
    (joined(rows), joined(payloads))
}

/// Sorted, and joined where they touch or overlap.
fn joined(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut out: Vec<Span> = Vec::new();
    for (start, end) in spans {
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}

fn covers(open: &[Span], (start, end): Span) -> bool {
    let after = open.partition_point(|span| span.0 <= start);
    after > 0 && end <= open[after - 1].1
}

/// Checks the copies of every P rank for one D rank `[A07, G01]`. `false` when P holds
/// fewer blocks than D wants, so that there may be no plan.
pub(super) fn check(
    model: &Model,
    p: &LocalLayout,
    d: &LocalLayout,
    (ours, theirs): (&[Vec<u32>], &[Vec<u32>]),
    copies: &[Copy],
) -> Check<bool> {
    let groups = ours.iter().zip(theirs).enumerate();
    let paired: Option<Vec<_>> =
        groups.map(|(group, (ours, theirs))| pairs(model, group, ours, theirs)).collect();
    let Some(paired) = paired else { return Ok(false) };
    let (sources, _) = spans(model, p, &paired, |pair| pair.0);
    let (rows, payloads) = spans(model, d, &paired, |pair| pair.1);
    let mut granted = Vec::new();
    GrantableRows::prepare(d).granted_rows(&lists(theirs), &mut granted);
    let mut written: Vec<Span> = Vec::new();
    for copy in copies {
        ensure!(copy.len.0 > 0, "A07", "an empty copy");
        let (from, to) = (copy.source.0, copy.destination.0);
        let (source, target) = ((from, from + copy.len.0), (to, to + copy.len.0));
        ensure!(covers(&sources, source), "A07", "{copy:x?} reads outside of {sources:x?}");
        ensure!(covers(&rows, target), "A07", "{copy:x?} writes outside of {rows:x?}");
        let open = granted.iter().any(|range| range.contains(copy.destination, copy.len));
        ensure!(open, "G01", "{copy:x?} is not granted: {granted:x?}");
        written.push(target);
    }
    written.sort_unstable();
    let twice = written.windows(2).find(|pair| pair[1].0 < pair[0].1);
    ensure!(twice.is_none(), "A07", "written twice: {twice:x?}");
    let written = joined(written);
    for payload in payloads {
        ensure!(covers(&written, payload), "A07", "{payload:x?} is not covered by {written:x?}");
    }
    Ok(true)
}

/// Checks copies for a peer that may say anything: P reads its own memory only, and D's
/// memory is left only where D did not say where it ends `[A09, Z01]`.
pub(super) fn check_hostile(p: &LocalLayout, memory: &[MemoryRange], copies: &[Copy]) -> Check {
    for copy in copies {
        let inside = p.memory.iter().any(|range| range.contains(copy.source, copy.len));
        ensure!(inside, "A09", "{copy:x?} reads outside of P's memory");
        let end = copy.destination.0.checked_add(copy.len.0);
        ensure!(end.is_some(), "A09", "{copy:x?} passes the last address");
        let open = memory.is_empty()
            || memory.iter().any(|range| range.contains(copy.destination, copy.len));
        ensure!(open, "A09", "{copy:x?} leaves the memory that D declared");
    }
    Ok(())
}
