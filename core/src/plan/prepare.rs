//! What planning needs of two layouts, worked out once per peer layout.

use super::coalesce::{Run, Surroundings, coalesce};
use super::heads::{RankPair, Slice};
use super::local::{LocalLayout, PeerTopology, groups_of};
use super::rows::RowMap;
use crate::align::{align, check_rows_named};
use crate::incompatible::Incompatible;
use crate::layout::{regions_from_columns, rows_in_memory};
use crate::region::{GroupKind, Region};
use crate::wire::LayoutColumns;
use smallvec::SmallVec;
use std::ops::Range;

/// Two aligned layouts, ready for requests.
///
/// Its size depends on P's own registration only, never on what a peer sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PreparedLayout {
    pub(super) groups: Vec<GroupRule>,
    pub(super) classes: Vec<SpanClass>,
    pub(super) spans: Vec<Span>,
}

/// How a group's block ids are read, and how far they may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct GroupRule {
    pub kind: GroupKind,
    /// Rows (kernel blocks) per logical block.
    pub rows_per_block: u32,
    /// Tokens per logical block; 0 when not known.
    pub block_tokens: u32,
    /// Rows that every one of the group's regions has on P `[A09]`.
    pub source_rows: u64,
    /// The same on D.
    pub destination_rows: u64,
}

/// Spans that the same block ids address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SpanClass {
    pub groups: SmallVec<[u32; 4]>,
    pub spans: Range<usize>,
    /// Rows of every span follow each other without a gap.
    pub rows_merge: bool,
    /// Fewest rows that a request's blocks must stretch over for the copies of one span to
    /// run into the next one's.
    pub join_rows: u64,
}

/// `len` bytes of each row that move from P to D.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Span {
    pub source: u64,
    pub destination: u64,
    pub source_stride: u64,
    pub destination_stride: u64,
    pub len: u64,
    /// Rows follow each other without a gap on both sides.
    pub rows_merge: bool,
}

impl PreparedLayout {
    /// Aligns `columns`, the layout of D's rank `peer`, with P's own.
    ///
    /// `local` must have passed [`LocalLayout::check`].
    ///
    /// # Errors
    /// Why the two cannot exchange KV.
    pub fn prepare(
        local: &LocalLayout,
        peer: PeerTopology,
        columns: &LayoutColumns,
    ) -> Result<Self, Incompatible> {
        check_fingerprint(local, columns)?;
        local.topology.check_paired(peer.tp_rank, peer.tp_size)?;
        let remote = regions_from_columns(columns, &local.regions)?;
        check_groups_known(local, &remote)?;
        let memory = columns.extension.as_ref().map_or(&[][..], |extension| &extension.memory);
        let (local_pp, remote_pp) = (local.topology.pp_size, peer.pp_size);
        check_rows_named(&local.regions, &remote, local_pp, remote_pp)?;
        let pairs = align(&local.regions, &remote, local_pp, remote_pp)?;
        let rank_pair =
            |region: &Region| RankPair { local: local.topology, peer, spec: local.spec_of(region) };
        for pair in &pairs {
            let region = &local.regions[pair.local];
            rank_pair(region).check(&region.layer_name, uncuttable(local, pair.local))?;
        }
        let around = Surroundings {
            remote_rows: RowMap::new(&remote),
            local_memory: &local.memory,
            remote_memory: memory,
            all_paired: pairs.len() == local.regions.len() && pairs.len() == remote.len(),
        };
        let runs = pairs.iter().map(|&pair| Run::new(pair, &local.regions, &remote));
        let runs = coalesce(runs, &around, |run| rank_pair(run.local).rows_move_whole());
        let mut builder = Builder::new(local);
        for run in &runs {
            let slice = rank_pair(run.local).slice(run.source_len, run.destination_len);
            let slice = slice.ok_or_else(|| Incompatible::RegionLengthsDiffer {
                layer_name: run.local.layer_name.to_string(),
                local: run.source_len,
                remote: run.destination_len,
                local_tp: local.topology.tp_size,
                remote_tp: peer.tp_size,
            })?;
            builder.add(run, slice, &around);
        }
        Ok(builder.finish())
    }

    /// Whether this P rank writes anything to that D rank. False for a replica that
    /// another rank speaks for, and where the two stages share no layer; such a pull is
    /// answered and counted all the same `[A02]`.
    #[must_use]
    pub fn sends(&self) -> bool {
        !self.spans.is_empty()
    }

    /// KV cache groups: how many block lists a request needs.
    #[must_use]
    pub fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// Spans that every block of their groups is copied by, after merging.
    #[must_use]
    pub fn span_count(&self) -> usize {
        self.spans.len()
    }
}

/// Why a region's heads cannot be told apart, if they cannot.
fn uncuttable(local: &LocalLayout, index: usize) -> Option<&'static str> {
    if local.padded_pages {
        return Some("its pages are padded or packed");
    }
    local.opaque.get(index).copied().unwrap_or(false).then_some("its rows hide several layers")
}

fn check_groups_known(local: &LocalLayout, remote: &[Region]) -> Result<(), Incompatible> {
    for region in remote {
        let groups = groups_of(&region.group);
        if let Some(&group) = groups.iter().find(|&&group| group as usize >= local.groups.len()) {
            return Err(Incompatible::GroupUnknown {
                layer_name: region.layer_name.to_string(),
                local: local.groups.len(),
                remote: group,
            });
        }
    }
    Ok(())
}

/// Compared before anything else is looked at `[F56]`; only our own nodes send one.
fn check_fingerprint(local: &LocalLayout, columns: &LayoutColumns) -> Result<(), Incompatible> {
    let (Some(ours), Some(extension)) = (&local.fingerprint, &columns.extension) else {
        return Ok(());
    };
    let theirs = &extension.fingerprint;
    let mut differences: Vec<String> = Vec::new();
    let mut compare = |field: &str, ours: String, theirs: String| {
        if ours != theirs {
            differences.push(format!("{field} ({ours} on prefill, {theirs} on decode)"));
        }
    };
    compare("model", format!("{:?}", ours.model), format!("{:?}", theirs.model));
    compare("KV data type", format!("{:?}", ours.dtype), format!("{:?}", theirs.dtype));
    compare("block size", format!("{:?}", ours.block_size), format!("{:?}", theirs.block_size));
    compare("KV heads", ours.total_kv_heads.to_string(), theirs.total_kv_heads.to_string());
    compare("KV groups", format!("{:?}", ours.groups), format!("{:?}", theirs.groups));
    if differences.is_empty() {
        return Ok(());
    }
    Err(Incompatible::FingerprintDiffers { differences: differences.join(", ") })
}

/// Collects spans by the groups that address them.
struct Builder<'a> {
    local: &'a LocalLayout,
    groups: Vec<GroupRule>,
    spans: Vec<(SmallVec<[u32; 4]>, Span)>,
}

impl<'a> Builder<'a> {
    fn new(local: &'a LocalLayout) -> Self {
        let rule = |spec: &super::local::GroupSpec| GroupRule {
            kind: spec.kind,
            rows_per_block: match spec.kind {
                GroupKind::Attention => local.kernel_blocks_per_block,
                GroupKind::State => 1,
            },
            block_tokens: spec.block_tokens,
            source_rows: u64::MAX,
            destination_rows: u64::MAX,
        };
        Self { local, groups: local.groups.iter().map(rule).collect(), spans: Vec::new() }
    }

    fn add(&mut self, run: &Run<'_>, slice: Slice, around: &Surroundings<'_>) {
        let (local, remote) = (run.local, run.remote);
        let (source_stride, destination_stride) = (local.stride.0, remote.stride.0);
        let source_rows =
            rows_in_memory(local.base.0, source_stride, run.source_len, around.local_memory)
                .min(self.local.rows.get(run.local_index).copied().unwrap_or(u64::MAX));
        let destination_rows = rows_in_memory(
            remote.base.0,
            destination_stride,
            run.destination_len,
            around.remote_memory,
        );
        let groups = groups_of(&local.group);
        for &group in groups {
            let rule = &mut self.groups[group as usize];
            rule.source_rows = rule.source_rows.min(source_rows);
            rule.destination_rows = rule.destination_rows.min(destination_rows);
        }
        if slice.sends {
            let span = Span {
                source: local.base.0 + slice.source_offset,
                destination: remote.base.0 + slice.destination_offset,
                source_stride,
                destination_stride,
                len: slice.len,
                rows_merge: false,
            };
            self.spans.push((groups.into(), span));
        }
    }

    /// Sorts by groups and D's addresses, and merges spans that touch on both sides.
    fn finish(self) -> PreparedLayout {
        let mut spans = self.spans;
        spans.sort_by(|a, b| (&a.0, a.1.destination).cmp(&(&b.0, b.1.destination)));
        let mut classes: Vec<SpanClass> = Vec::new();
        let mut out: Vec<Span> = Vec::with_capacity(spans.len());
        for (groups, span) in spans {
            let same = classes.last().is_some_and(|class| class.groups == groups);
            match out.last_mut() {
                Some(last) if same && last.touches(&span) => last.len += span.len,
                _ => out.push(span),
            }
            match classes.last_mut() {
                Some(class) if same => class.spans.end = out.len(),
                _ => classes.push(SpanClass {
                    groups,
                    spans: out.len() - 1..out.len(),
                    rows_merge: true,
                    join_rows: u64::MAX,
                }),
            }
        }
        for span in &mut out {
            span.rows_merge = span.len == span.source_stride && span.len == span.destination_stride;
        }
        for class in &mut classes {
            let spans = &out[class.spans.clone()];
            class.rows_merge = spans.iter().all(|span| span.rows_merge);
            let distances = spans.windows(2).filter_map(|pair| pair[0].join_rows(&pair[1]));
            class.join_rows = distances.min().unwrap_or(u64::MAX);
        }
        PreparedLayout { groups: self.groups, classes, spans: out }
    }
}

impl Span {
    fn touches(&self, next: &Self) -> bool {
        self.source_stride == next.source_stride
            && self.destination_stride == next.destination_stride
            && self.source + self.len == next.source
            && self.destination + self.len == next.destination
            && self.len + next.len <= self.source_stride
            && self.len + next.len <= self.destination_stride
    }

    /// Rows from this span's first copied row to the one that ends where `next`'s first
    /// copied row starts; `None` when no row can. 0 where strides leave it open.
    fn join_rows(&self, next: &Self) -> Option<u64> {
        if self.destination_stride != next.destination_stride {
            return Some(0);
        }
        let distance = next.destination.checked_sub(self.destination)?.checked_sub(self.len)?;
        let whole = distance.is_multiple_of(self.destination_stride);
        whole.then_some(distance / self.destination_stride + 1)
    }
}
