//! One rank's work on memory: write KV, read it back.

use crate::action::Step;
use crate::compare::{Comparison, Difference};
use crate::memory::KvMemory;
use crate::model::{RankDigest, Unit};
use crate::rank_layout::{PlaceError, RankLayout, RankPlace, local_layers, tokens_per_row};
use crate::shape::Shape;
use kvbaton_core::ids::{Address, BlockId};
use kvbaton_core::region::GroupKind;
use std::ops::Range;
use std::sync::Arc;

/// What a poisoned block is full of.
const POISON: u8 = 0xa5;

/// One rank of an engine. It knows addresses but holds no memory: each call is given it.
#[derive(Debug, Clone)]
pub struct Rank {
    shape: Arc<Shape>,
    layout: RankLayout,
    tensors: Vec<Tensor>,
}

/// One of the rank's tensors, as the rank walks through it.
#[derive(Debug, Clone)]
struct Tensor {
    /// The layer's place in the shape.
    layer: u32,
    group: usize,
    base: u64,
    row_stride: u64,
    heads: Range<u32>,
    /// Units per head in a row.
    tokens: usize,
    unit: usize,
}

/// Consecutive units of one head that lie side by side in one row.
struct Chunk {
    address: Address,
    head: u32,
    /// Positions whose units these are.
    positions: Range<usize>,
}

impl Rank {
    /// Rank `place` with `blocks` blocks (null block included) at `base`.
    ///
    /// # Errors
    /// When the model cannot be split so.
    pub fn new(
        shape: Arc<Shape>,
        place: RankPlace,
        blocks: u32,
        base: Address,
    ) -> Result<Self, PlaceError> {
        let layout = RankLayout::new(&shape, place, blocks, base)?;
        let tensors =
            local_layers(&shape, place).zip(&layout.tensors).map(|((index, layer), shaped)| {
                Tensor {
                    layer: index,
                    group: layer.group,
                    base: layout.address(shaped).0,
                    row_stride: shaped.strides[0] * u64::from(shaped.element_size),
                    heads: place.heads(layer.sharding),
                    tokens: tokens_per_row(&shape, layer) as usize,
                    unit: layer.unit as usize,
                }
            });
        Ok(Self { tensors: tensors.collect(), layout, shape })
    }

    /// The rank's tensors and storages.
    #[must_use]
    pub const fn layout(&self) -> &RankLayout {
        &self.layout
    }

    /// Carries a step out: [`write`](Self::write), then [`read_back`](Self::read_back).
    pub fn run<M: KvMemory + ?Sized>(&self, memory: &mut M, step: &Step) -> RankDigest {
        self.write(memory, step);
        self.read_back(memory, step)
    }

    /// Writes the KV of tokens `from..to`, where the table keeps it.
    ///
    /// # Panics
    /// When the step lacks a prefix hash, or its table a block that must be there.
    pub fn write<M: KvMemory + ?Sized>(&self, memory: &mut M, step: &Step) {
        assert_eq!(step.prefix.len(), step.to - step.from, "a step names every token's prefix");
        let mut bytes = Vec::new();
        for tensor in &self.tensors {
            self.each_chunk(tensor, step, step.from, |chunk| {
                bytes.resize(chunk.positions.len() * tensor.unit, 0);
                for (position, out) in
                    chunk.positions.clone().zip(bytes.chunks_exact_mut(tensor.unit))
                {
                    let unit = Unit { layer: tensor.layer, head: chunk.head, position };
                    unit.fill(step.prefix[position - step.from], out);
                }
                memory.write(chunk.address, &bytes);
            });
        }
    }

    /// Reads all KV that the groups keep at token `to`, every byte of it.
    ///
    /// # Panics
    /// When the table lacks a block that must be there.
    pub fn read_back<M: KvMemory + ?Sized>(&self, memory: &M, step: &Step) -> RankDigest {
        let mut bytes = Vec::new();
        let sum_of = |tensor: &Tensor| {
            let mut sum = 0u64;
            let first = self.shape.groups[tensor.group].first_position(step.to);
            self.each_chunk(tensor, step, first, |chunk| {
                bytes.resize(chunk.positions.len() * tensor.unit, 0);
                memory.read(chunk.address, &mut bytes);
                for (position, read) in chunk.positions.clone().zip(bytes.chunks_exact(tensor.unit))
                {
                    let unit = Unit { layer: tensor.layer, head: chunk.head, position };
                    sum = sum.wrapping_add(unit.hash(read));
                }
            });
            (tensor.layer, tensor.heads.start, sum)
        };
        RankDigest { parts: self.tensors.iter().map(sum_of).collect() }
    }

    /// Compares every byte that the groups keep at token `to`, from token `from` on, with
    /// what the model says it is. Unlike a digest this tells which byte differs.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn compare<M: KvMemory + ?Sized>(&self, memory: &M, step: &Step) -> Comparison {
        assert_eq!(step.prefix.len(), step.to - step.from, "a step names every token's prefix");
        let mut result = Comparison::default();
        let (mut read, mut expected) = (Vec::new(), Vec::new());
        for tensor in &self.tensors {
            expected.resize(tensor.unit, 0);
            self.each_chunk(tensor, step, step.from, |chunk| {
                read.resize(chunk.positions.len() * tensor.unit, 0);
                memory.read(chunk.address, &mut read);
                result.bytes += read.len() as u64;
                let units = read.chunks_exact(tensor.unit).enumerate();
                for (position, (index, found)) in chunk.positions.clone().zip(units) {
                    let unit = Unit { layer: tensor.layer, head: chunk.head, position };
                    unit.fill(step.prefix[position - step.from], &mut expected);
                    if found == expected {
                        continue;
                    }
                    let differ = |at: &usize| found[*at] != expected[*at];
                    result.different += (0..tensor.unit).filter(differ).count() as u64;
                    let at = (0..tensor.unit).find(differ).unwrap_or_default();
                    result.first.get_or_insert_with(|| Difference {
                        layer: self.shape.layers[tensor.layer as usize].name.clone(),
                        head: chunk.head,
                        position,
                        address: Address(chunk.address.0 + (index * tensor.unit + at) as u64),
                        expected: expected[at],
                        found: found[at],
                    });
                }
            });
        }
        result
    }

    /// Fills blocks of a group with a pattern that no model writes, so that whatever should
    /// have been written there and was not, or is read too late, changes an answer.
    pub fn poison<M: KvMemory + ?Sized>(
        &self,
        memory: &mut M,
        group: usize,
        blocks: impl IntoIterator<Item = BlockId>,
    ) {
        let blocks: Vec<_> = blocks.into_iter().collect();
        for tensor in self.tensors.iter().filter(|tensor| tensor.group == group) {
            let rows = self.shape.rows_per_block(group);
            let bytes = vec![POISON; tensor.heads.len() * tensor.tokens * tensor.unit];
            for block in &blocks {
                for row in 0..rows {
                    memory
                        .write(tensor.address(block.0 * rows + row, tensor.heads.start, 0), &bytes);
                }
            }
        }
    }

    /// Calls `visit` for all units of the tensor that the group keeps at `step.to` and whose
    /// position is at least `first`, chunk by chunk.
    fn each_chunk(&self, tensor: &Tensor, step: &Step, first: usize, mut visit: impl FnMut(Chunk)) {
        let group = &self.shape.groups[tensor.group];
        let kept = group.kept(step.to);
        let missing = |index| -> ! {
            panic!(
                "request {}: group {} has no block for entry {index}",
                step.request, tensor.group
            )
        };
        if group.kind() == GroupKind::State {
            for index in kept {
                let position = group.covered(index, step.to) - 1;
                if position >= first {
                    let block =
                        step.table.block(tensor.group, index).unwrap_or_else(|| missing(index));
                    for head in tensor.heads.clone() {
                        let address = tensor.address(block.0, head, 0);
                        visit(Chunk { address, head, positions: position..position + 1 });
                    }
                }
            }
            return;
        }
        let rows = self.shape.kernel_blocks_per_block;
        for index in kept.start.max(first / group.block_size as usize)..kept.end {
            let block = step.table.block(tensor.group, index).unwrap_or_else(|| missing(index));
            for row in 0..rows {
                let start = index * group.block_size as usize + row as usize * tensor.tokens;
                let positions = start.max(first)..(start + tensor.tokens).min(step.to);
                if positions.is_empty() {
                    continue;
                }
                for head in tensor.heads.clone() {
                    let address =
                        tensor.address(block.0 * rows + row, head, positions.start - start);
                    visit(Chunk { address, head, positions: positions.clone() });
                }
            }
        }
    }
}

impl Tensor {
    /// Address of a unit: kernel row, global head, token within the row.
    fn address(&self, row: u32, head: u32, token: usize) -> Address {
        let head = (head - self.heads.start) as usize;
        let in_row = (head * self.tokens + token) * self.unit;
        Address(self.base + u64::from(row) * self.row_stride + in_row as u64)
    }
}
