//! What a node knows of its own registration, and what it needs to know of a peer's rank.

use crate::fingerprint::Fingerprint;
use crate::layout::{Layout, LayoutError};
use crate::region::{GroupKind, MemoryRange, Region, RegionGroup};
use crate::topology::Topology;
use crate::wire::Pull;

/// How a group's KV is spread over tensor-parallel ranks `[A04]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Heads {
    /// So many KV heads in all, outermost in each row; ranks beyond that number hold
    /// copies. 0 when not known: then rows cannot be re-sharded.
    Split(u32),
    /// Every rank holds the same (latent KV).
    Replicated,
}

/// One KV cache group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupSpec {
    /// What its rows hold.
    pub kind: GroupKind,
    /// How they are spread over ranks; a draft model's groups may differ from the others
    /// `[F43]`. Not looked at for state.
    pub heads: Heads,
    /// Tokens per logical block; 0 when not known, then tails are taken by count.
    pub block_tokens: u32,
}

/// One rank's registration, as the planner sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LocalLayout {
    /// The rank.
    pub topology: Topology,
    /// Regions in registration order.
    pub regions: Vec<Region>,
    /// Per region: rows that it has. Empty: only memory bounds them.
    pub rows: Vec<u64>,
    /// Per region: whether it hides layers, see [`Layout::opaque`]. Empty: not known.
    pub opaque: Vec<bool>,
    /// Registered memory, sorted. Empty: not known.
    pub memory: Vec<MemoryRange>,
    /// KV cache groups; block lists come one per group.
    pub groups: Vec<GroupSpec>,
    /// Kernel blocks per logical attention block, at least 1 `[A05]`.
    pub kernel_blocks_per_block: u32,
    /// Pages carry padding, or a packed data type, so that their heads cannot be cut.
    pub padded_pages: bool,
    /// Compared with the peer's where it sends one.
    pub fingerprint: Option<Fingerprint>,
}

impl LocalLayout {
    /// A registration made by [`Layout::build`], with nothing known to be padded and no
    /// fingerprint.
    #[must_use]
    pub fn new(
        topology: Topology,
        layout: Layout,
        groups: Vec<GroupSpec>,
        kernel_blocks_per_block: u32,
    ) -> Self {
        let mut memory = layout.storages;
        memory.sort_unstable();
        Self {
            topology,
            regions: layout.regions,
            rows: layout.rows,
            opaque: layout.opaque,
            memory,
            groups,
            kernel_blocks_per_block,
            padded_pages: false,
            fingerprint: None,
        }
    }

    /// Checks what the planner relies on.
    ///
    /// # Errors
    /// Impossible ranks or ratio, a region of a group that is not described, groups that
    /// share a region but not their heads, or memory out of order.
    pub fn check(&self) -> Result<(), LayoutError> {
        let Topology { tp_rank, tp_size, pp_rank, pp_size } = self.topology;
        if tp_rank >= tp_size || pp_rank >= pp_size || self.kernel_blocks_per_block == 0 {
            return Err(LayoutError::Topology(format!(
                "rank {tp_rank} of {tp_size}, stage {pp_rank} of {pp_size}, {} kernel blocks per \
                 block",
                self.kernel_blocks_per_block
            )));
        }
        crate::layout::check_memory(&self.memory)?;
        for (column, len) in [("rows", self.rows.len()), ("opaque", self.opaque.len())] {
            if len != 0 && len != self.regions.len() {
                let expected = self.regions.len();
                return Err(LayoutError::ColumnLength { column, len, expected });
            }
        }
        for region in &self.regions {
            self.check_region(region)?;
        }
        Ok(())
    }

    fn check_region(&self, region: &Region) -> Result<(), LayoutError> {
        let layer_name = || region.layer_name.to_string();
        let (payload, stride) = (region.payload.0, region.stride.0);
        if payload == 0 || payload > stride || region.base.0.checked_add(stride).is_none() {
            return Err(LayoutError::PayloadExceedsStride {
                layer_name: layer_name(),
                payload,
                stride,
            });
        }
        let groups = groups_of(&region.group);
        if groups.is_empty() {
            return Err(LayoutError::GroupNotDescribed {
                layer_name: layer_name(),
                group: u32::MAX,
                groups: self.groups.len(),
            });
        }
        if let Some(&group) = groups.iter().find(|&&group| group as usize >= self.groups.len()) {
            let groups = self.groups.len();
            return Err(LayoutError::GroupNotDescribed { layer_name: layer_name(), group, groups });
        }
        let first = self.groups[groups[0] as usize];
        let alike = |group: &u32| {
            let other = self.groups[*group as usize];
            other.heads == first.heads && other.kind == first.kind
        };
        if !groups.iter().all(alike) {
            let groups = groups.to_vec();
            return Err(LayoutError::SharedHeadsDiffer { layer_name: layer_name(), groups });
        }
        Ok(())
    }

    /// Group that tells how a region's heads are spread; valid after [`Self::check`].
    pub(super) fn spec_of(&self, region: &Region) -> GroupSpec {
        self.groups[groups_of(&region.group)[0] as usize]
    }
}

/// The groups whose block ids address a region, in order.
pub(crate) fn groups_of(group: &RegionGroup) -> &[u32] {
    match group {
        RegionGroup::One(index) => std::slice::from_ref(index),
        RegionGroup::Shared(groups) => groups,
    }
}

/// What a plan depends on of the peer's rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerTopology {
    /// Tensor-parallel rank.
    pub tp_rank: u32,
    /// Tensor-parallel size.
    pub tp_size: u32,
    /// Pipeline-parallel size.
    pub pp_size: u32,
}

impl From<&Pull> for PeerTopology {
    fn from(pull: &Pull) -> Self {
        Self { tp_rank: pull.tp_rank, tp_size: pull.tp_size, pp_size: pull.pp_size }
    }
}
