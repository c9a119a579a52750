//! Small layouts of both sides, for rules that need a few regions.
#![allow(dead_code)]

use kvbaton_core::blocks::BlockList;
use kvbaton_core::incompatible::RequestError;
use kvbaton_core::layout::{Layout, regions_from_columns};
use kvbaton_core::plan::{
    BlockRequest, GroupSpec, Heads, LocalLayout, PeerTopology, PlanScratch, PreparedLayout,
    TokenEnds,
};
use kvbaton_core::region::{Copy, GroupKind};
use kvbaton_core::topology::Topology;
use kvbaton_core::wire::LayoutColumns;

pub const P: u64 = 0x10_0000_0000;
pub const D: u64 = 0x20_0000_0000;
pub const UNKNOWN: TokenEnds = TokenEnds { producer: None, consumer: None };

/// Adds one region to `columns`.
#[derive(Clone, Copy)]
pub struct Row {
    pub layer: i64,
    pub base: u64,
    pub stride: u64,
    pub payload: u64,
    pub group: i64,
    pub row_offset: i64,
}

pub fn row(layer: i64, base: u64, stride: u64, payload: u64) -> Row {
    Row { layer, base, stride, payload, group: 0, row_offset: -1 }
}

pub fn columns(rows: &[Row]) -> LayoutColumns {
    let mut columns = LayoutColumns::default();
    for row in rows {
        columns.base_addrs.push(row.base);
        columns.block_lens.push(row.stride);
        columns.kv_block_lens.push(row.payload);
        columns.layer_names.push(format!("model.layers.{}.attn", row.layer));
        columns.layer_indices.push(row.layer);
        columns.group_indices.push(row.group);
        columns.shared_group_ids.push(vec![row.group]);
        columns.row_offsets.push(row.row_offset);
    }
    columns
}

/// One region per layer, 64 rows each, with room between regions.
pub fn plain(base: u64, layers: impl IntoIterator<Item = i64>, payload: u64) -> LayoutColumns {
    let rows: Vec<Row> = layers
        .into_iter()
        .map(|layer| row(layer, base + layer as u64 * 0x10_0000, payload, payload))
        .collect();
    columns(&rows)
}

pub fn attention(heads: u32) -> GroupSpec {
    GroupSpec { kind: GroupKind::Attention, heads: Heads::Split(heads), block_tokens: 64 }
}

pub fn latent() -> GroupSpec {
    GroupSpec { heads: Heads::Replicated, ..attention(1) }
}

pub fn state() -> GroupSpec {
    GroupSpec { kind: GroupKind::State, ..attention(1) }
}

pub fn tp(tp_rank: u32, tp_size: u32) -> Topology {
    Topology { tp_rank, tp_size, pp_rank: 0, pp_size: 1 }
}

pub fn peer(tp_rank: u32, tp_size: u32) -> PeerTopology {
    PeerTopology { tp_rank, tp_size, pp_size: 1 }
}

pub fn local(topology: Topology, columns: &LayoutColumns, groups: &[GroupSpec]) -> LocalLayout {
    let regions = regions_from_columns(columns, &[]).expect("columns");
    let layout = Layout { regions, ..Layout::default() };
    let local = LocalLayout::new(topology, layout, groups.to_vec(), 1);
    local.check().expect("a registration that can be");
    local
}

pub fn lists(lists: &[&[u32]]) -> Vec<BlockList> {
    lists.iter().map(|list| BlockList::from(*list)).collect()
}

pub fn plan(
    prepared: &PreparedLayout,
    ours: &[&[u32]],
    theirs: &[&[u32]],
    ends: TokenEnds,
) -> Result<Vec<Copy>, RequestError> {
    let (ours, theirs) = (lists(ours), lists(theirs));
    let mut out = Vec::new();
    let request = BlockRequest { local: &ours, remote: &theirs, ends };
    prepared.plan(request, &mut PlanScratch::default(), &mut out)?;
    Ok(out)
}

/// Copies as (source, destination, length), relative to the two sides' first addresses.
pub fn relative(copies: &[Copy]) -> Vec<(u64, u64, u64)> {
    copies.iter().map(|c| (c.source.0 - P, c.destination.0 - D, c.len.0)).collect()
}
