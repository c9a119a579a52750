//! Real layouts of one small region per rank, and P's table of them beside its model.
//!
//! A block's row is two bytes, one per KV head; unequal tensor-parallel sizes slice it.

use crate::campaign::Check;
use crate::ensure;
use crate::sender::{Foretell, Foretold};
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{Address, Bytes, LayoutId};
use kvbaton_core::layout::Layout;
use kvbaton_core::peer_layouts::{LayoutTable, PeerKey, Resolution};
use kvbaton_core::plan::{
    BlockRequest, GroupSpec, Heads, LocalLayout, PlanScratch, PreparedLayout, TokenEnds,
};
use kvbaton_core::region::{Copy, GroupKind, MemoryRange, Region, RegionGroup};
use kvbaton_core::sender::{BlocksUntil, PlanCopies};
use kvbaton_core::topology::Topology;
use kvbaton_core::wire::{LayoutColumns, LayoutExtension, Pull};
use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// KV heads of the model, each one byte of a block's row.
pub(super) const HEADS: u32 = 2;
/// Blocks of P's pool.
pub(super) const P_BLOCKS: u32 = 24;
/// Blocks of a D rank's pool.
pub(super) const D_BLOCKS: u32 = 8;
/// First byte of P's memory.
pub(super) const P_BASE: u64 = 0x1000;
/// First byte of the memory of a D rank's process: another one after each restart.
pub(super) const fn d_base(epoch: u64) -> u64 {
    0x9000 + epoch * 0x100
}

/// A prepared layout, as P's sender holds it.
#[derive(Debug, Clone)]
pub struct Rows(Arc<PreparedLayout>);

impl PlanCopies for Rows {
    fn plan(
        &self,
        held: BlocksUntil<'_>,
        wanted: BlocksUntil<'_>,
        out: &mut Vec<Copy>,
    ) -> Result<(), String> {
        thread_local!(static SCRATCH: RefCell<PlanScratch> = RefCell::default());
        let ends = TokenEnds { producer: held.end_token, consumer: wanted.end_token };
        let request = BlockRequest { local: held.groups, remote: wanted.groups, ends };
        let planned = SCRATCH.with_borrow_mut(|scratch| self.0.plan(request, scratch, out));
        planned.map(|_| ()).map_err(|error| error.to_string())
    }
}

impl Foretell for Rows {
    fn foretell(&self) -> fn(u64, u64) -> Foretold {
        |held, wanted| if held < wanted { Foretold::Differ } else { Foretold::Copies }
    }
}

/// A rank of `tp_size`.
pub(super) fn topology(tp_rank: usize, tp_size: usize) -> Topology {
    Topology { tp_rank: tp_rank as u32, tp_size: tp_size as u32, pp_rank: 0, pp_size: 1 }
}

/// Bytes of a block on a rank of `tp_size`.
pub(super) const fn row_bytes(tp_size: usize) -> u64 {
    (HEADS as usize / tp_size) as u64
}

/// One region of `blocks` rows.
fn layout(base: u64, blocks: u32, tp_size: usize) -> Layout {
    let row = row_bytes(tp_size);
    let region = Region {
        layer_name: "model.layers.0.attn".into(),
        layer_index: 0,
        base: Address(base),
        stride: Bytes(row),
        payload: Bytes(row),
        group: RegionGroup::One(0),
        shared_groups: [0].into_iter().collect(),
        row_offset: None,
    };
    let memory = MemoryRange { start: Address(base), len: Bytes(row * u64::from(blocks)) };
    Layout {
        regions: vec![region],
        rows: vec![u64::from(blocks)],
        opaque: vec![false],
        storages: vec![memory],
    }
}

/// What a D rank sends; its memory's bounds only when both are ours.
pub(super) fn columns(tp_size: usize, stock: bool, epoch: u64) -> Arc<LayoutColumns> {
    let layout = layout(d_base(epoch), D_BLOCKS, tp_size);
    let mut columns = layout.to_columns();
    columns.extension = (!stock)
        .then(|| LayoutExtension { memory: layout.storages.clone(), ..LayoutExtension::default() });
    Arc::new(columns)
}

/// One P rank's layout cache, and which layouts it must hold.
#[derive(Debug, Clone)]
pub(super) struct WatchedTable {
    table: LayoutTable,
    most: usize,
    /// The least recently used first.
    known: Vec<PeerKey>,
}

impl WatchedTable {
    /// Nothing is registered yet.
    pub fn new(most: usize) -> Self {
        let capacity = NonZeroUsize::new(most).unwrap_or(NonZeroUsize::MIN);
        Self { table: LayoutTable::new(capacity, 1 << 20), most, known: Vec::new() }
    }

    /// Registers P's own memory, anew `[L09]`.
    pub fn register(&mut self, tp_rank: usize, tp_size: usize) -> Check {
        let heads = Heads::Split(HEADS);
        let group = GroupSpec { kind: GroupKind::Attention, heads, block_tokens: 16 };
        let layout = layout(P_BASE, P_BLOCKS, tp_size);
        let local = LocalLayout::new(topology(tp_rank, tp_size), layout, vec![group], 1);
        let taken = self.table.register(local);
        ensure!(taken.is_ok(), "L09", "cannot register: {taken:?}");
        self.known.clear();
        ensure!(self.table.is_empty(), "L09", "layouts outlive the registration");
        Ok(())
    }

    /// Resolves a pull; `None` is a miss.
    pub fn resolve(&mut self, pull: &Pull) -> Check<Option<(Rows, LayoutId)>> {
        let key = PeerKey::from(pull);
        let id = pull.layout_id;
        let known = self.known.iter().position(|it| *it == key);
        let resolved = match self.table.resolve(pull) {
            Resolution::Ready { layout, echo } => {
                let may = pull.layout.is_some() || known.is_some();
                ensure!(may, "L05", "{id} is found though it was never stored, or evicted");
                ensure!(echo == id, "L03", "echoes {echo} for {id}");
                Some((Rows(layout), echo))
            }
            Resolution::Miss => {
                ensure!(pull.layout.is_none(), "L06", "a miss of a layout that is there");
                ensure!(known.is_none(), "L05", "a miss of {id}, which is stored");
                None
            }
            Resolution::Incompatible(why) => {
                ensure!(false, "A04", "the layouts fit: {why}");
                None
            }
        };
        if resolved.is_some() && !id.is_none() {
            if let Some(at) = known {
                self.known.remove(at);
            }
            self.known.push(key);
            if self.known.len() > self.most {
                self.known.remove(0);
            }
        }
        let (peers, prepared) = self.table.len();
        ensure!(peers == self.known.len(), "L02", "{peers} peers, must be {}", self.known.len());
        ensure!(prepared <= self.most, "L08", "{prepared} prepared layouts");
        Ok(resolved)
    }

    /// Nothing of the registration is left `[L09]`.
    pub fn unregister(&mut self) {
        self.table.unregister();
        self.known.clear();
    }

    /// Whether P's memory is registered.
    pub fn is_registered(&self) -> bool {
        self.table.local().is_some()
    }
}

/// The blocks of a list of one group.
pub(super) fn one_group(blocks: &[u32]) -> Vec<BlockList> {
    vec![blocks.iter().copied().collect()]
}
