//! Two sides whose tensors mostly fit each other.

use crate::choices::Choices;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{Address, Bytes};
use kvbaton_core::layout::{Layout, LayoutError, Tensor, TensorKind, TensorSpec};
use kvbaton_core::plan::{GroupSpec, Heads, LocalLayout};
use kvbaton_core::region::{GroupKind, MemoryRange};
use kvbaton_core::topology::Topology;

/// Blocks of either side's pool.
const BLOCKS: u64 = 12;
/// KV heads of the whole model.
const HEADS: u64 = 2;

/// What both sides share, and how each is laid out.
#[derive(Debug, Clone)]
pub(super) struct Model {
    /// Per layer its group.
    layers: Vec<u32>,
    groups: Vec<GroupSpec>,
    ratio: u32,
    /// Elements of one head in one kernel row.
    head: u64,
    element: u64,
    /// Tensor-parallel sizes of P and D.
    pub sizes: (u32, u32),
    families: (Family, Family),
}

/// How a side places its layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    /// Each in a storage of its own, rows this many elements apart beyond their payload.
    Own { pad: u64 },
    /// Side by side in the rows of one storage.
    Packed { pad: u64 },
    /// As packed, but each group from the row's start: their block ids are exclusive.
    Overlay,
}

impl Model {
    pub fn new(choices: &mut Choices<'_>) -> Self {
        let group_count = 1 + choices.below(2) as u32;
        let layers = (0..1 + choices.below(4)).map(|_| choices.below(2) as u32 % group_count);
        let layers: Vec<u32> = layers.collect();
        let sizes = choices.one_of(&[(1, 1), (1, 1), (1, 2), (2, 1), (2, 2)]);
        let latent = choices.below(4) == 0;
        let group = |choices: &mut Choices<'_>| GroupSpec {
            kind: if choices.below(4) == 0 { GroupKind::State } else { GroupKind::Attention },
            heads: if latent { Heads::Replicated } else { Heads::Split(HEADS as u32) },
            block_tokens: choices.one_of(&[0, 16]),
        };
        let mut groups: Vec<GroupSpec> = (0..group_count).map(|_| group(choices)).collect();
        let family = |choices: &mut Choices<'_>| match choices.below(5) {
            0 | 1 => Family::Own { pad: choices.below(3) as u64 },
            2 | 3 => Family::Packed { pad: choices.below(3) as u64 },
            _ => Family::Overlay,
        };
        let p = family(choices);
        let d = if choices.flip() { p } else { family(choices) };
        if [p, d].contains(&Family::Overlay) {
            // Blocks that differ lie in rows that differ only if all have as many rows.
            groups.iter_mut().for_each(|group| group.kind = GroupKind::Attention);
        }
        Self {
            layers,
            groups,
            ratio: choices.one_of(&[1, 1, 2, 3]),
            head: 1 + choices.below(4) as u64,
            element: choices.one_of(&[1, 2]),
            sizes,
            families: (p, d),
        }
    }

    pub fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// Whether groups of D lie on top of each other, so that their blocks must differ.
    pub fn overlays(&self) -> bool {
        [self.families.0, self.families.1].contains(&Family::Overlay)
    }

    /// Kernel rows of a block of a group.
    pub fn rows(&self, group: usize, block: u32) -> std::ops::Range<u64> {
        let ratio = match self.groups[group].kind {
            GroupKind::Attention => u64::from(self.ratio),
            GroupKind::State => 1,
        };
        u64::from(block) * ratio..(u64::from(block) + 1) * ratio
    }

    /// Whether a block is no block in this group.
    pub fn is_null(&self, group: usize, block: u32) -> bool {
        block == 0 && self.groups[group].kind == GroupKind::State
    }

    /// P's rank, or D's.
    pub fn side(&self, of_p: bool, rank: u32) -> Result<LocalLayout, LayoutError> {
        let (size, family) = match of_p {
            true => (self.sizes.0, self.families.0),
            false => (self.sizes.1, self.families.1),
        };
        let tensors = self.tensors(family, if of_p { 0x1_0000 } else { 0x90_0000 }, size);
        let layout = Layout::build(&tensors, BLOCKS, self.ratio)?;
        let topology = Topology { tp_rank: rank, tp_size: size, pp_rank: 0, pp_size: 1 };
        let local = LocalLayout::new(topology, layout, self.groups.clone(), self.ratio);
        local.check()?;
        Ok(local)
    }

    fn tensors(&self, family: Family, base: u64, size: u32) -> Vec<Tensor> {
        let heads = match self.groups[0].heads {
            Heads::Replicated => 1,
            Heads::Split(_) => HEADS / u64::from(size),
        };
        let payload = heads * self.head;
        let rows = BLOCKS * u64::from(self.ratio);
        let mut used = vec![0; self.groups.len()];
        let most = (0..self.groups.len() as u32)
            .map(|group| self.layers.iter().filter(|it| **it == group).count() as u64)
            .max()
            .unwrap_or(1);
        let mut tensors = Vec::new();
        for (at, &group) in self.layers.iter().enumerate() {
            let number = at as u64;
            let (offset, stride, own) = match family {
                Family::Own { pad } => (0, payload + pad, true),
                Family::Packed { pad } => {
                    (number * payload, self.layers.len() as u64 * payload + pad, false)
                }
                Family::Overlay => (used[group as usize] * payload, most * payload, false),
            };
            used[group as usize] += 1;
            let start = if own { base + number * 0x1_0000 } else { base };
            let state = self.groups[group as usize].kind == GroupKind::State;
            let page = payload * self.element;
            tensors.push(Tensor {
                layer_name: format!("model.layers.{at}.attn"),
                group,
                storage: MemoryRange {
                    start: Address(start),
                    len: Bytes(rows * stride * self.element),
                },
                offset: Bytes(offset * self.element),
                shape: vec![rows, payload],
                strides: vec![stride, 1],
                element_size: Bytes(self.element),
                spec: TensorSpec {
                    kind: match (state, self.groups[0].heads) {
                        (true, _) => TensorKind::State,
                        (false, Heads::Replicated) => TensorKind::Latent,
                        (false, Heads::Split(_)) => TensorKind::Attention,
                    },
                    page_size: Bytes(if state { page } else { page * u64::from(self.ratio) }),
                },
            });
        }
        tensors
    }

    /// Blocks of each group: P's, and D's, which are a tail of as many.
    pub fn blocks(&self, choices: &mut Choices<'_>) -> (Vec<Vec<u32>>, Vec<Vec<u32>>) {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let apart = self.overlays();
        for group in 0..self.groups.len() as u32 {
            // Where groups overlay each other, each has a half of the pool.
            let (from, room) = if apart { (1 + group * 5, 5) } else { (0, BLOCKS as u32) };
            let some = |choices: &mut Choices<'_>, most: usize| {
                let (start, step) = (choices.byte(), [1u32, 1, 5, 7][choices.below(4)]);
                let count = choices.below(most.min(room as usize) + 1) as u32;
                let step = if room == 5 { step % 4 + 1 } else { step };
                let number = |at| from + (u32::from(start) + at * step) % room;
                (0..count).map(number).collect::<Vec<u32>>()
            };
            let p = some(choices, 8);
            let d = some(choices, p.len());
            ours.push(p);
            theirs.push(d);
        }
        (ours, theirs)
    }
}

/// Block lists as the planner takes them.
pub(super) fn lists(blocks: &[Vec<u32>]) -> Vec<BlockList> {
    blocks.iter().map(|blocks| blocks.iter().copied().collect()).collect()
}

/// A tensor of any shape at all.
pub(super) fn any_tensor(choices: &mut Choices<'_>) -> Tensor {
    let dims = choices.below(5);
    let edge = |choices: &mut Choices<'_>| match choices.below(4) {
        0 => choices.number(),
        _ => choices.below(9) as u64,
    };
    let kinds =
        [TensorKind::Attention, TensorKind::Latent, TensorKind::State, TensorKind::CircularBuffer];
    let dims_of = |choices: &mut Choices<'_>| (0..dims).map(|_| edge(choices)).collect();
    let (shape, strides) = (dims_of(choices), dims_of(choices));
    Tensor {
        layer_name: ["layers.3", "a.1.b.2", "x", "model.layers.0.attn"][choices.below(4)].into(),
        group: choices.number() as u32,
        storage: MemoryRange { start: Address(choices.number()), len: Bytes(choices.number()) },
        offset: Bytes(choices.number()),
        shape,
        strides,
        element_size: Bytes(choices.below(5) as u64),
        spec: TensorSpec { kind: choices.one_of(&kinds), page_size: Bytes(choices.number()) },
    }
}
