//! A rank's tensors as core registers them.

use crate::rank_layout::{RankLayout, RankPlace, TensorShape};
use crate::shape::{Shape, Sharding, TensorKind};
use kvbaton_core::ids::Bytes;
use kvbaton_core::layout::{self, Layout, LayoutError, TensorSpec};
use kvbaton_core::plan::{GroupSpec, Heads, LocalLayout};
use kvbaton_core::region::MemoryRange;
use kvbaton_core::topology::Topology;

impl From<RankPlace> for Topology {
    fn from(place: RankPlace) -> Self {
        let RankPlace { tp_rank, tp_size, pp_rank, pp_size } = place;
        Self { tp_rank, tp_size, pp_rank, pp_size }
    }
}

impl From<TensorKind> for layout::TensorKind {
    fn from(kind: TensorKind) -> Self {
        match kind {
            TensorKind::Attention => Self::Attention,
            TensorKind::Latent => Self::Latent,
            TensorKind::State => Self::State,
        }
    }
}

impl Shape {
    /// The groups, as the planner must know them.
    #[must_use]
    pub fn group_specs(&self) -> Vec<GroupSpec> {
        let heads = |group: usize| {
            let layer = self.layers.iter().find(|layer| layer.group == group);
            match layer.map(|layer| layer.sharding) {
                Some(Sharding::Heads(heads)) => Heads::Split(heads),
                Some(Sharding::Replicated) | None => Heads::Replicated,
            }
        };
        let spec = |(index, group): (usize, &crate::shape::Group)| GroupSpec {
            kind: group.kind(),
            heads: heads(index),
            block_tokens: group.block_size,
        };
        self.groups.iter().enumerate().map(spec).collect()
    }
}

impl RankLayout {
    /// What a node registers for this rank, with `blocks` as in [`RankLayout::new`].
    ///
    /// # Errors
    /// When core does not take the tensors.
    pub fn register(
        &self,
        shape: &Shape,
        place: RankPlace,
        blocks: u32,
    ) -> Result<LocalLayout, LayoutError> {
        let tensors: Vec<_> = self.tensors.iter().map(|tensor| self.tensor(tensor)).collect();
        let layout = Layout::build(&tensors, u64::from(blocks), shape.kernel_blocks_per_block)?;
        let groups = shape.group_specs();
        let mut local =
            LocalLayout::new(place.into(), layout, groups, shape.kernel_blocks_per_block);
        local.fingerprint = Some(shape.fingerprint());
        local.check()?;
        Ok(local)
    }

    fn tensor(&self, tensor: &TensorShape) -> layout::Tensor {
        let storage = self.storages[tensor.storage];
        layout::Tensor {
            layer_name: tensor.layer_name.to_string(),
            group: tensor.group as u32,
            storage: MemoryRange { start: storage.address, len: storage.len },
            offset: Bytes(tensor.offset),
            shape: tensor.shape.clone(),
            strides: tensor.strides.clone(),
            element_size: Bytes(u64::from(tensor.element_size)),
            spec: TensorSpec { kind: tensor.kind.into(), page_size: Bytes(tensor.page_size) },
        }
    }
}
