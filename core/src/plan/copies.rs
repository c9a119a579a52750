//! The hot path: block lists to copies.

use super::prepare::{PreparedLayout, Span, SpanClass};
use super::runs::{RunPair, sort_and_merge, zip_group};
use crate::blocks::BlockList;
use crate::ids::{Address, Bytes};
use crate::incompatible::RequestError;
use crate::region::Copy;
use std::ops::Range;

/// Where a request ends on each side, in tokens from its start; `None` when not known.
/// With both, D's tail of P's blocks is found by position, not by count `[A06]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TokenEnds {
    /// Tokens up to the end of P's blocks.
    pub producer: Option<u32>,
    /// Tokens up to the end of D's blocks.
    pub consumer: Option<u32>,
}

/// One request's blocks, per group, in logical ids.
#[derive(Debug, Clone, Copy)]
pub struct BlockRequest<'a> {
    /// P's blocks.
    pub local: &'a [BlockList],
    /// D's blocks.
    pub remote: &'a [BlockList],
    /// Where both end.
    pub ends: TokenEnds,
}

/// Working memory that callers keep between plans, so that planning allocates nothing
/// but its result.
#[derive(Debug, Clone, Default)]
pub struct PlanScratch {
    runs: Vec<RunPair>,
    /// Per group, its part of `runs`.
    groups: Vec<Range<usize>>,
}

/// What a plan amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PlanSummary {
    /// Logical blocks that D asked for, null blocks left out, over all groups.
    pub blocks: u64,
    /// Copies appended.
    pub copies: usize,
    /// Bytes that they move.
    pub bytes: Bytes,
}

impl PreparedLayout {
    /// Appends the copies of one request to `out`. Copies of different requests are never
    /// merged with each other.
    ///
    /// Cost: one step per run of blocks and group, then one per copy.
    ///
    /// # Errors
    /// See [`RequestError`]; `out` is then as it was, and nothing may be written `[A09]`.
    pub fn plan(
        &self,
        request: BlockRequest<'_>,
        scratch: &mut PlanScratch,
        out: &mut Vec<Copy>,
    ) -> Result<PlanSummary, RequestError> {
        if request.remote.iter().all(BlockList::is_empty) {
            return Ok(PlanSummary::default());
        }
        let blocks = self.pair_blocks(request, scratch)?;
        let first = out.len();
        let mut bytes = 0;
        for class in &self.classes {
            match self.emit_class(class, scratch, first, out) {
                Ok(written) => bytes += written,
                Err(error) => {
                    out.truncate(first);
                    return Err(error);
                }
            }
        }
        Ok(PlanSummary { blocks, copies: out.len() - first, bytes: Bytes(bytes) })
    }

    fn pair_blocks(
        &self,
        request: BlockRequest<'_>,
        scratch: &mut PlanScratch,
    ) -> Result<u64, RequestError> {
        let BlockRequest { local, remote, ends } = request;
        let layout = self.groups.len();
        if local.len() != layout || remote.len() != layout {
            return Err(RequestError::GroupCountDiffers {
                local: local.len(),
                remote: remote.len(),
                layout,
            });
        }
        scratch.runs.clear();
        scratch.groups.clear();
        let mut blocks = 0;
        for (group, rule) in self.groups.iter().enumerate() {
            let first = scratch.runs.len();
            let (ours, theirs) = (&local[group], &remote[group]);
            blocks += zip_group(group, rule, ours, theirs, ends, &mut scratch.runs)?;
            scratch.groups.push(first..scratch.runs.len());
        }
        Ok(blocks)
    }

    /// Copies of one class; returns their bytes.
    fn emit_class(
        &self,
        class: &SpanClass,
        scratch: &mut PlanScratch,
        first: usize,
        out: &mut Vec<Copy>,
    ) -> Result<u64, RequestError> {
        let spans = &self.spans[class.spans.clone()];
        if let [group] = class.groups[..] {
            let runs = &scratch.runs[scratch.groups[group as usize].clone()];
            return Ok(emit(class, spans, runs, first, out));
        }
        // Groups that share memory: their lists, one after the other.
        let start = scratch.runs.len();
        for &group in &class.groups {
            scratch.runs.extend_from_within(scratch.groups[group as usize].clone());
        }
        let group = class.groups[0] as usize;
        sort_and_merge(group, &mut scratch.runs, start)?;
        let bytes = emit(class, spans, &scratch.runs[start..], first, out);
        scratch.runs.truncate(start);
        Ok(bytes)
    }
}

/// Applies runs to spans. No overflow: every row was checked to lie in memory.
fn emit(
    class: &SpanClass,
    spans: &[Span],
    runs: &[RunPair],
    first: usize,
    out: &mut Vec<Copy>,
) -> u64 {
    let (Some(head), Some(last)) = (runs.first(), runs.last()) else { return 0 };
    let start = out.len();
    // Runs are sorted by destination, so this is how far apart rows can be.
    let extent = last.destination + last.rows - head.destination;
    if extent >= class.join_rows {
        emit_joining(spans, runs, first, out);
    } else if class.rows_merge {
        for run in runs {
            out.extend(spans.iter().map(|span| span.copy(run.source, run.destination, run.rows)));
        }
        join_at(out, start, first);
    } else {
        for span in spans {
            emit_span(span, runs, out);
        }
        join_at(out, start, first);
    }
    let rows: u64 = runs.iter().map(|run| run.rows).sum();
    spans.iter().map(|span| span.len).sum::<u64>() * rows
}

fn emit_span(span: &Span, runs: &[RunPair], out: &mut Vec<Copy>) {
    if span.rows_merge {
        out.extend(runs.iter().map(|run| span.copy(run.source, run.destination, run.rows)));
        return;
    }
    for run in runs {
        let row = |row| span.copy(run.source + row, run.destination + row, 1);
        out.extend((0..run.rows).map(row));
    }
}

/// The rare case that the end of one span's memory is the start of the next one's.
fn emit_joining(spans: &[Span], runs: &[RunPair], first: usize, out: &mut Vec<Copy>) {
    for span in spans {
        for run in runs {
            let (step, count) = if span.rows_merge { (run.rows, 1) } else { (1, run.rows) };
            for row in 0..count {
                push(out, first, span.copy(run.source + row, run.destination + row, step));
            }
        }
    }
}

/// Joins the copy at `start`, the first of a class, to the one before it if it continues it.
fn join_at(out: &mut Vec<Copy>, start: usize, first: usize) {
    if start > first
        && let Some(&[last, next]) = out.get(start - 1..=start)
        && continues(last, next)
    {
        out[start - 1].len.0 += next.len.0;
        out.remove(start);
    }
}

fn continues(last: Copy, next: Copy) -> bool {
    last.destination.0 + last.len.0 == next.destination.0
        && last.source.0 + last.len.0 == next.source.0
}

impl Span {
    #[inline]
    fn copy(&self, source_row: u64, destination_row: u64, rows: u64) -> Copy {
        Copy {
            source: Address(self.source + source_row * self.source_stride),
            destination: Address(self.destination + destination_row * self.destination_stride),
            len: Bytes(self.len * rows),
        }
    }
}

/// Appends a copy, to the request's last one if it continues it on both sides `[A08]`.
fn push(out: &mut Vec<Copy>, first: usize, next: Copy) {
    if out.len() > first
        && let Some(last) = out.last_mut()
        && continues(*last, next)
    {
        last.len.0 += next.len.0;
        return;
    }
    out.push(next);
}
