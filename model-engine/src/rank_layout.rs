//! One rank's part of a model: its tensors, and where they lie.

use crate::shape::{Layer, Packing, Shape, Sharding, TensorKind};
use kvbaton_core::ids::{Address, Bytes};
use kvbaton_core::region::MemoryRange;
use std::ops::Range;
use std::sync::Arc;

/// Storages start at multiples of this many bytes.
const STORAGE_ALIGNMENT: u64 = 64;

/// Which rank of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RankPlace {
    /// Tensor-parallel rank, below `tp_size`.
    pub tp_rank: u32,
    /// Tensor-parallel ranks.
    pub tp_size: u32,
    /// Pipeline stage, below `pp_size`.
    pub pp_rank: u32,
    /// Pipeline stages.
    pub pp_size: u32,
}

/// Why a model cannot be split so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// A rank is not below its size.
    #[error("rank tp {tp_rank}/{tp_size}, pp {pp_rank}/{pp_size} does not exist: ranks count from 0 to size - 1",
        tp_rank = .0.tp_rank, tp_size = .0.tp_size, pp_rank = .0.pp_rank, pp_size = .0.pp_size)]
    NoSuchRank(RankPlace),
    /// Heads and TP ranks do not divide.
    #[error(
        "{heads} heads of {layer} cannot be divided over {tp_size} TP ranks: choose sizes of which one divides the other"
    )]
    HeadsDoNotDivide {
        /// The layer.
        layer: Arc<str>,
        /// Its heads.
        heads: u32,
        /// TP ranks.
        tp_size: u32,
    },
    /// A pipeline stage would have no layer.
    #[error(
        "{layers} layers cannot be divided over {pp_size} pipeline stages: use at most {layers} stages"
    )]
    TooManyStages {
        /// Layers of the model.
        layers: u32,
        /// Pipeline stages.
        pp_size: u32,
    },
}

impl RankPlace {
    /// The only rank of an engine of one.
    pub const SINGLE: Self = Self { tp_rank: 0, tp_size: 1, pp_rank: 0, pp_size: 1 };

    /// All ranks of an engine, TP rank first.
    pub fn all(tp_size: u32, pp_size: u32) -> impl Iterator<Item = Self> {
        (0..pp_size).flat_map(move |pp_rank| {
            (0..tp_size).map(move |tp_rank| Self { tp_rank, tp_size, pp_rank, pp_size })
        })
    }

    /// The model layers of this stage.
    #[must_use]
    pub const fn stage(&self, model_layers: u32) -> Range<u32> {
        self.stage_start(self.pp_rank, model_layers)
            ..self.stage_start(self.pp_rank + 1, model_layers)
    }

    const fn stage_start(&self, stage: u32, model_layers: u32) -> u32 {
        (stage as u64 * model_layers as u64 / self.pp_size as u64) as u32
    }

    /// The global heads that this rank holds; `0..1` for a replicated layer.
    #[must_use]
    pub const fn heads(&self, sharding: Sharding) -> Range<u32> {
        match sharding {
            Sharding::Replicated => 0..1,
            Sharding::Heads(heads) if heads >= self.tp_size => {
                let each = heads / self.tp_size;
                self.tp_rank * each..(self.tp_rank + 1) * each
            }
            Sharding::Heads(heads) => {
                let head = self.tp_rank / (self.tp_size / heads);
                head..head + 1
            }
        }
    }

    fn check(&self, shape: &Shape) -> Result<(), PlaceError> {
        if self.tp_rank >= self.tp_size || self.pp_rank >= self.pp_size {
            return Err(PlaceError::NoSuchRank(*self));
        }
        if self.pp_size > shape.model_layers {
            let (layers, pp_size) = (shape.model_layers, self.pp_size);
            return Err(PlaceError::TooManyStages { layers, pp_size });
        }
        for layer in &shape.layers {
            if let Sharding::Heads(heads) = layer.sharding
                && !heads.is_multiple_of(self.tp_size)
                && !self.tp_size.is_multiple_of(heads)
            {
                let (layer, tp_size) = (layer.name.clone(), self.tp_size);
                return Err(PlaceError::HeadsDoNotDivide { layer, heads, tp_size });
            }
        }
        Ok(())
    }
}

/// One allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorageShape {
    /// First byte.
    pub address: Address,
    /// Length.
    pub len: Bytes,
}

/// One KV tensor, as an engine hands it to a connector.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorShape {
    /// Name of the layer.
    pub layer_name: Arc<str>,
    /// Index of the model layer.
    pub layer_index: u32,
    /// Index of its group.
    pub group: usize,
    /// Index of its storage.
    pub storage: usize,
    /// Offset of its first element in the storage, in bytes.
    pub offset: u64,
    /// Elements along each dimension; the first counts rows.
    pub shape: Vec<u64>,
    /// Distance between neighbours along each dimension, in elements.
    pub strides: Vec<u64>,
    /// Bytes of an element.
    pub element_size: u32,
    /// What it holds.
    pub kind: TensorKind,
    /// Bytes of one logical block.
    pub page_size: u64,
}

/// All of one rank's KV memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RankLayout {
    /// The allocations, in address order.
    pub storages: Vec<StorageShape>,
    /// The tensors, in registration order.
    pub tensors: Vec<TensorShape>,
}

impl RankLayout {
    /// The memory of rank `place` with `blocks` blocks (block 0, the null block,
    /// included), from `base` on, which should be 64-byte aligned.
    ///
    /// # Errors
    /// When the model cannot be split so.
    pub fn new(
        shape: &Shape,
        place: RankPlace,
        blocks: u32,
        base: Address,
    ) -> Result<Self, PlaceError> {
        place.check(shape)?;
        let layers: Vec<&Layer> = local_layers(shape, place).map(|(_, layer)| layer).collect();
        let row_of_all: u64 = layers.iter().map(|layer| row_bytes(shape, place, layer)).sum();
        let mut layout = Self { storages: Vec::new(), tensors: Vec::new() };
        let mut packed = 0;
        for layer in layers {
            let rows = u64::from(blocks) * u64::from(shape.rows_per_block(layer.group));
            let row = row_bytes(shape, place, layer);
            let (stride, offset) = match shape.packing {
                Packing::Separate => (row, 0),
                Packing::PackedRow => (row_of_all, packed),
            };
            packed += row;
            if shape.packing == Packing::Separate || layout.storages.is_empty() {
                layout.add_storage(base, rows * stride);
            }
            let storage = layout.storages.len() - 1;
            layout.tensors.push(tensor(shape, place, layer, storage, offset, rows, stride));
        }
        Ok(layout)
    }

    fn add_storage(&mut self, base: Address, len: u64) {
        let end = self.storages.last().map_or(base.0, |last| last.address.0 + last.len.0);
        let address = Address(end.next_multiple_of(STORAGE_ALIGNMENT));
        self.storages.push(StorageShape { address, len: Bytes(len) });
    }

    /// From the first byte of the first storage to the last byte of the last.
    #[must_use]
    pub fn range(&self) -> MemoryRange {
        let (first, last) = (self.storages[0], self.storages[self.storages.len() - 1]);
        MemoryRange {
            start: first.address,
            len: Bytes(last.address.0 + last.len.0 - first.address.0),
        }
    }

    /// Address of the tensor's first byte.
    #[must_use]
    pub fn address(&self, tensor: &TensorShape) -> Address {
        Address(self.storages[tensor.storage].address.0 + tensor.offset)
    }
}

/// The layers of the rank's stage, each with its place in the shape.
pub(crate) fn local_layers(shape: &Shape, place: RankPlace) -> impl Iterator<Item = (u32, &Layer)> {
    let stage = place.stage(shape.model_layers);
    (0..).zip(&shape.layers).filter(move |(_, layer)| stage.contains(&layer.index))
}

/// Bytes of one row (kernel block) of the layer on this rank.
fn row_bytes(shape: &Shape, place: RankPlace, layer: &Layer) -> u64 {
    let heads = place.heads(layer.sharding).len() as u64;
    heads * tokens_per_row(shape, layer) * u64::from(layer.unit)
}

/// Units per head in one row.
pub(crate) fn tokens_per_row(shape: &Shape, layer: &Layer) -> u64 {
    match layer.kind {
        TensorKind::State => 1,
        _ => u64::from(shape.groups[layer.group].block_size / shape.kernel_blocks_per_block),
    }
}

fn tensor(
    shape: &Shape,
    place: RankPlace,
    layer: &Layer,
    storage: usize,
    offset: u64,
    rows: u64,
    stride: u64,
) -> TensorShape {
    let element = u64::from(shape.element_size);
    let (unit, row_stride) = (u64::from(layer.unit) / element, stride / element);
    let heads = place.heads(layer.sharding).len() as u64;
    let tokens = tokens_per_row(shape, layer);
    let (dimensions, strides) = match layer.kind {
        TensorKind::Attention => {
            (vec![rows, heads, tokens, unit], vec![row_stride, tokens * unit, unit, 1])
        }
        TensorKind::Latent => (vec![rows, tokens, unit], vec![row_stride, unit, 1]),
        TensorKind::State => (vec![rows, heads * unit], vec![row_stride, 1]),
    };
    TensorShape {
        layer_name: layer.name.clone(),
        layer_index: layer.index,
        group: layer.group,
        storage,
        offset,
        shape: dimensions,
        strides,
        element_size: shape.element_size,
        kind: layer.kind,
        page_size: row_bytes(shape, place, layer) * u64::from(shape.rows_per_block(layer.group)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{Dense, Mla};

    fn place(tp_rank: u32, tp_size: u32) -> RankPlace {
        RankPlace { tp_rank, tp_size, pp_rank: 0, pp_size: 1 }
    }

    #[test]
    fn a04_heads_are_split_or_copied_to_neighbouring_ranks() {
        assert_eq!(place(1, 2).heads(Sharding::Heads(8)), 4..8);
        let copies: Vec<_> =
            (0..8).map(|rank| place(rank, 8).heads(Sharding::Heads(2)).start).collect();
        assert_eq!(copies, [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(place(3, 4).heads(Sharding::Replicated), 0..1);
    }

    #[test]
    fn a02_every_model_layer_belongs_to_one_stage() {
        for pp_size in 1..6 {
            let stages = RankPlace::all(1, pp_size).flat_map(|place| place.stage(5));
            assert_eq!(stages.collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn packed_rows_hold_every_layers_page_side_by_side() {
        let shape = Mla { layers: 4, latent_bytes: 32, block_size: 16 }.shape();
        let layout = RankLayout::new(&shape, place(0, 2), 16, Address(64)).unwrap();
        assert_eq!(layout.storages, [StorageShape { address: Address(64), len: Bytes(32_768) }]);
        let last = &layout.tensors[3];
        assert_eq!((last.offset, last.page_size), (1536, 512));
        assert_eq!((&last.shape[..], &last.strides[..]), (&[16, 16, 16][..], &[1024, 16, 1][..]));
    }

    #[test]
    fn splits_that_do_not_divide_are_refused_with_what_to_do() {
        let shape = Dense {
            layers: 2,
            kv_heads: 4,
            head_bytes: 4,
            block_size: 4,
            kernel_blocks_per_block: 1,
        }
        .shape();
        let error = |place| RankLayout::new(&shape, place, 4, Address(0)).unwrap_err().to_string();
        assert!(
            error(place(0, 3))
                .contains("4 heads of model.layers.0.self_attn.attn cannot be divided over 3")
        );
        assert!(error(RankPlace { pp_size: 3, ..place(0, 1) }).contains("use at most 2 stages"));
        assert!(error(place(2, 2)).contains("does not exist"));
    }
}
