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
            return Ok(emit(spans, runs, first, out));
        }
        // Groups that share memory: their lists, one after the other.
        let start = scratch.runs.len();
        for &group in &class.groups {
            scratch.runs.extend_from_within(scratch.groups[group as usize].clone());
        }
        let group = class.groups[0] as usize;
        sort_and_merge(group, &mut scratch.runs, start)?;
        let bytes = emit(spans, &scratch.runs[start..], first, out);
        scratch.runs.truncate(start);
        Ok(bytes)
    }
}

/// Applies runs to spans. No overflow: every row was checked to lie in memory.
fn emit(spans: &[Span], runs: &[RunPair], first: usize, out: &mut Vec<Copy>) -> u64 {
    out.reserve(spans.len().saturating_mul(runs.len()).min(1 << 20));
    let rows: u64 = runs.iter().map(|run| run.rows).sum();
    let mut bytes = 0u64;
    for span in spans {
        bytes += span.len * rows;
        for run in runs {
            let source = span.source + run.source * span.source_stride;
            let destination = span.destination + run.destination * span.destination_stride;
            if span.rows_merge {
                push(out, first, source, destination, span.len * run.rows);
                continue;
            }
            for row in 0..run.rows {
                let source = source + row * span.source_stride;
                let destination = destination + row * span.destination_stride;
                push(out, first, source, destination, span.len);
            }
        }
    }
    bytes
}

/// Appends a copy, to the request's last one if it continues it on both sides `[A08]`.
#[inline]
fn push(out: &mut Vec<Copy>, first: usize, source: u64, destination: u64, len: u64) {
    if out.len() > first
        && let Some(last) = out.last_mut()
        && last.destination.0 + last.len.0 == destination
        && last.source.0 + last.len.0 == source
    {
        last.len.0 += len;
        return;
    }
    out.push(Copy { source: Address(source), destination: Address(destination), len: Bytes(len) });
}
