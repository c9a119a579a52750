//! Reads the vector files, and builds layouts from what they say.
#![allow(dead_code)]

mod folders;

pub use folders::contents;

use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::Bytes;
use kvbaton_core::layout::{Layout, regions_from_columns};
use kvbaton_core::plan::{GroupSpec, Heads, LocalLayout, PeerTopology};
use kvbaton_core::region::{Copy, GroupKind};
use kvbaton_core::topology::Topology;
use kvbaton_core::wire::LayoutColumns;
use serde::Deserialize;

#[derive(Deserialize)]
pub struct Columns {
    pub base_addrs: Vec<u64>,
    pub block_lens: Vec<u64>,
    pub kv_block_lens: Vec<u64>,
    pub layer_names: Vec<String>,
    pub layer_indices: Vec<i64>,
    pub group_indices: Vec<i64>,
    pub shared_group_ids: Vec<Vec<i64>>,
    pub row_offsets: Vec<i64>,
}

impl From<Columns> for LayoutColumns {
    fn from(columns: Columns) -> Self {
        Self {
            base_addrs: columns.base_addrs,
            block_lens: columns.block_lens,
            kv_block_lens: columns.kv_block_lens,
            layer_names: columns.layer_names,
            layer_indices: columns.layer_indices,
            group_indices: columns.group_indices,
            shared_group_ids: columns.shared_group_ids,
            row_offsets: columns.row_offsets,
            extension: None,
        }
    }
}

#[derive(Deserialize)]
pub struct Side {
    pub tp_rank: u32,
    pub tp_size: u32,
    pub pp_size: u32,
    pub layout: Columns,
}

#[derive(Deserialize)]
pub struct Request {
    pub producer_blocks: Vec<Vec<u32>>,
    pub consumer_blocks: Vec<Vec<u32>>,
}

#[derive(Deserialize, Clone)]
pub struct Expect {
    pub copies: Option<Vec<[u64; 3]>>,
    pub reference_descriptors: Option<usize>,
    pub error: Option<String>,
}

#[derive(Deserialize)]
pub struct PlanCase {
    pub name: String,
    pub groups: Vec<String>,
    pub kernel_blocks_per_block: u32,
    pub total_kv_heads: u32,
    pub replicated_latent: bool,
    pub padded_pages: bool,
    pub producer: Side,
    pub consumer: Side,
    pub request: Request,
    pub expect: Expect,
}

#[derive(Deserialize)]
pub struct Cases<T> {
    pub cases: Vec<T>,
}

pub fn groups(kinds: &[String], total_kv_heads: u32, replicated_latent: bool) -> Vec<GroupSpec> {
    let heads = if replicated_latent { Heads::Replicated } else { Heads::Split(total_kv_heads) };
    let spec = |kind: &String| GroupSpec {
        kind: match kind.as_str() {
            "attention" => GroupKind::Attention,
            "state" => GroupKind::State,
            other => panic!("kind {other}"),
        },
        heads,
        block_tokens: 0,
    };
    kinds.iter().map(spec).collect()
}

pub fn blocks(lists: &[Vec<u32>]) -> Vec<BlockList> {
    lists.iter().map(|list| BlockList::from(&list[..])).collect()
}

/// A registration whose columns are all that is known of it.
pub fn local_layout(
    topology: Topology,
    columns: &LayoutColumns,
    groups: Vec<GroupSpec>,
    kernel_blocks_per_block: u32,
) -> LocalLayout {
    let regions = regions_from_columns(columns, &[]).expect("columns");
    let layout = Layout { regions, ..Layout::default() };
    LocalLayout::new(topology, layout, groups, kernel_blocks_per_block)
}

impl PlanCase {
    /// P's registration, and D's rank and columns.
    pub fn sides(self) -> (LocalLayout, PeerTopology, LayoutColumns) {
        let side = self.producer;
        let topology = Topology {
            tp_rank: side.tp_rank,
            tp_size: side.tp_size,
            pp_rank: 0,
            pp_size: side.pp_size,
        };
        let groups = groups(&self.groups, self.total_kv_heads, self.replicated_latent);
        let columns = side.layout.into();
        let mut local = local_layout(topology, &columns, groups, self.kernel_blocks_per_block);
        local.padded_pages = self.padded_pages;
        local.check().expect("a registration that can be");
        let side = self.consumer;
        let peer =
            PeerTopology { tp_rank: side.tp_rank, tp_size: side.tp_size, pp_size: side.pp_size };
        (local, peer, side.layout.into())
    }
}

/// Copies sorted by destination, merged where both sides continue.
pub fn merged(copies: &[Copy]) -> Vec<[u64; 3]> {
    let mut sorted: Vec<Copy> = copies.to_vec();
    sorted.sort_by_key(|copy| (copy.destination, copy.source));
    let mut out: Vec<[u64; 3]> = Vec::new();
    for Copy { source, destination, len: Bytes(len) } in sorted {
        match out.last_mut() {
            Some(last) if last[0] + last[2] == source.0 && last[1] + last[2] == destination.0 => {
                last[2] += len;
            }
            _ => out.push([source.0, destination.0, len]),
        }
    }
    out
}
