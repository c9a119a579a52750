//! Where blocks lie: one region per node, one row per block.
//!
//! Every registration has addresses of its own, so that a plan made for another one is
//! seen in the addresses of its copies.

use kvbaton_core::ids::{Address, LayoutId, SessionAddress};
use kvbaton_core::layout::{Layout, regions_from_columns};
use kvbaton_core::plan::{
    BlockRequest, GroupSpec, Heads, LocalLayout, PlanScratch, PreparedLayout, TokenEnds,
};
use kvbaton_core::region::{Copy, GroupKind};
use kvbaton_core::sender::{BlocksUntil, PlanCopies};
use kvbaton_core::topology::Topology;
use kvbaton_core::wire::{LayoutColumns, Pull};
use std::sync::Arc;

/// What core's bounded memories hold at most: more than a world ever fills, and little, since
/// every state has its own.
pub const REMEMBERED: usize = 64;
/// Bytes of one head of one block.
const HEAD: u64 = 64;
/// Addresses of one registration.
const SPACE: u64 = 1 << 32;
const PREFILL: u64 = 1 << 40;
const DECODE: u64 = 1 << 41;

fn columns(base: u64, row: u64) -> LayoutColumns {
    LayoutColumns {
        base_addrs: vec![base],
        block_lens: vec![row],
        kv_block_lens: vec![row],
        layer_names: vec!["layer".into()],
        layer_indices: vec![0],
        group_indices: vec![0],
        shared_group_ids: vec![vec![0]],
        row_offsets: vec![-1],
        extension: None,
    }
}

/// D's layout in its `registration`th registration; each P rank holds one of its heads.
pub fn decode_columns(registration: u8, ranks: u8) -> LayoutColumns {
    columns(DECODE + u64::from(registration) * SPACE, HEAD * u64::from(ranks))
}

/// P's layout in its `registration`th registration.
pub fn prefill_layout(registration: u8, rank: u8, ranks: u8) -> LocalLayout {
    let columns = columns(PREFILL + u64::from(registration) * SPACE, HEAD);
    let regions = regions_from_columns(&columns, &[]).expect("one region");
    let topology = Topology { tp_rank: rank.into(), tp_size: ranks.into(), pp_rank: 0, pp_size: 1 };
    let group = GroupSpec {
        kind: GroupKind::Attention,
        heads: Heads::Split(ranks.into()),
        block_tokens: 16,
    };
    LocalLayout::new(topology, Layout { regions, ..Layout::default() }, vec![group], 1)
}

/// P's (registration, block) of an address.
pub fn prefill_place(address: Address) -> (u8, u8) {
    let offset = address.0.wrapping_sub(PREFILL);
    ((offset / SPACE) as u8, (offset % SPACE / HEAD) as u8)
}

/// D's (registration, block, P rank whose part it is) of an address.
pub fn decode_place(address: Address, ranks: u8) -> (u8, u8, u8) {
    let offset = address.0.wrapping_sub(DECODE);
    let head = offset % SPACE / HEAD;
    let ranks = u64::from(ranks);
    ((offset / SPACE) as u8, (head / ranks) as u8, (head % ranks) as u8)
}

/// The pull of another D with its layout, which takes the place of ours in P's table.
pub fn foreign_pull(ranks: u8) -> Pull {
    Pull {
        session: SessionAddress { host: "other".into(), port: 1 },
        tp_size: 1,
        tp_rank: 0,
        pp_size: 1,
        layout_id: LayoutId(1),
        layout: Some(columns(DECODE * 2, HEAD * u64::from(ranks))),
        requests: Vec::new(),
        extension: None,
    }
}

/// A pair of layouts that core has prepared.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Plan(pub Arc<PreparedLayout>);

impl PlanCopies for Plan {
    fn plan(
        &self,
        held: BlocksUntil<'_>,
        wanted: BlocksUntil<'_>,
        out: &mut Vec<Copy>,
    ) -> Result<(), String> {
        let ends = TokenEnds { producer: held.end_token, consumer: wanted.end_token };
        let request = BlockRequest { local: held.groups, remote: wanted.groups, ends };
        let planned = self.0.plan(request, &mut PlanScratch::default(), out);
        planned.map(|_| ()).map_err(|error| error.to_string())
    }
}
