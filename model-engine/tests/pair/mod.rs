//! A P and a D engine joined by a perfect transfer, written as naively as can be.

use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{Address, RequestId, TransferId};
use kvbaton_model_engine::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

pub const WEIGHTS: Weights = Weights { model: 7, version: 1 };

/// A unit's bytes, by what they mean: (tensor name, global head, position).
pub type Meaning = (String, u32, usize);

pub type Engine = ModelEngine<VecMemory>;

/// TP size and PP size.
pub type Split = (u32, u32);

pub fn engine(
    shape: &Arc<Shape>,
    (tp_size, pp_size): Split,
    blocks: u32,
    role: Role,
    on_load_failure: OnLoadFailure,
) -> Engine {
    let config = EngineConfig {
        shape: shape.clone(),
        tp_size,
        pp_size,
        blocks,
        weights: WEIGHTS,
        role,
        on_load_failure,
        poison: true,
    };
    let bases: Vec<_> = (1..=u64::from(tp_size * pp_size)).map(|i| Address(i << 32)).collect();
    ModelEngine::new(config, &bases, |layout| {
        let range = layout.range();
        VecMemory::new(range.start, range.len.0 as usize)
    })
    .expect("the split divides")
}

pub fn id(name: &str) -> RequestId {
    RequestId::from(name)
}

pub fn request(name: &str, prompt: &[u32], max_tokens: usize, transfer: Transfer) -> Request {
    Request { id: id(name), prompt: prompt.to_vec(), max_tokens, transfer }
}

pub fn transfer(name: &str) -> TransferId {
    TransferId::from(name)
}

/// Address and length of every unit that `blocks` name on one rank for the tokens
/// `first..end`, found through the tensors' shapes and strides alone. The lists end with
/// the block of token `end - 1`.
#[allow(dead_code, reason = "see `Pair::serve`")]
pub fn units(
    shape: &Shape,
    rank: &Rank,
    place: RankPlace,
    blocks: &[BlockList],
    first: usize,
    end: usize,
) -> Vec<(Meaning, Address, usize)> {
    let mut found = Vec::new();
    for tensor in &rank.layout().tensors {
        let layer = shape.layers.iter().find(|layer| layer.name == tensor.layer_name).unwrap();
        let block_size = shape.groups[tensor.group].block_size as usize;
        let list: Vec<_> = blocks[tensor.group].iter().collect();
        let skipped = end.div_ceil(block_size) - list.len();
        let at = |indices: &[u64]| {
            let elements: u64 = indices.iter().zip(&tensor.strides).map(|(i, s)| i * s).sum();
            Address(
                rank.layout().storages[tensor.storage].address.0
                    + tensor.offset
                    + elements * u64::from(tensor.element_size),
            )
        };
        let mut put = |head, position, indices: &[u64]| {
            found.push((
                (tensor.layer_name.to_string(), head, position),
                at(indices),
                layer.unit as usize,
            ));
        };
        for (entry, block) in list.iter().enumerate().filter(|(_, block)| block.0 != 0) {
            let start = (skipped + entry) * block_size;
            let (block, stop) = (u64::from(block.0), end.min(start + block_size));
            for (local, head) in (0u64..).zip(place.heads(layer.sharding)) {
                if tensor.kind == TensorKind::State {
                    put(
                        head,
                        stop - 1,
                        &[block, local * u64::from(layer.unit / tensor.element_size)],
                    );
                    continue;
                }
                let per_row = block_size / shape.kernel_blocks_per_block as usize;
                for position in start.max(first)..stop {
                    let row = block * u64::from(shape.kernel_blocks_per_block)
                        + ((position - start) / per_row) as u64;
                    let token = ((position - start) % per_row) as u64;
                    match tensor.kind {
                        TensorKind::Attention => put(head, position, &[row, local, token]),
                        _ => put(head, position, &[row, token]),
                    }
                }
            }
        }
    }
    found
}

/// One engine and how it is split.
pub struct Side {
    pub engine: Engine,
    pub split: Split,
}

/// What one side's lists name: blocks per group, for tokens `first..end`.
pub struct Lists {
    pub blocks: Vec<BlockList>,
    pub first: usize,
    pub end: usize,
}

impl Side {
    /// Every unit that the lists name, on every rank: (rank, meaning, address, length).
    #[allow(dead_code, reason = "see `Pair::serve`")]
    fn units(&self, shape: &Shape, lists: &Lists) -> Vec<(usize, Meaning, Address, usize)> {
        let places = RankPlace::all(self.split.0, self.split.1).enumerate();
        let of_rank = |(i, place): (usize, RankPlace)| {
            let found =
                units(shape, &self.engine.ranks()[i], place, &lists.blocks, lists.first, lists.end);
            found.into_iter().map(move |(meaning, address, len)| (i, meaning, address, len))
        };
        places.flat_map(of_rank).collect()
    }
}

/// P and D.
pub struct Pair {
    pub p: Side,
    pub d: Side,
}

impl Pair {
    pub fn new(shape: &Arc<Shape>, p_split: Split, d_split: Split, blocks: u32) -> Self {
        let side = |split, role| Side {
            engine: engine(shape, split, blocks, role, OnLoadFailure::Fail),
            split,
        };
        Self { p: side(p_split, Role::Prefill), d: side(d_split, Role::Decode) }
    }

    /// Copies what D's lists ask for out of what P's hold, but for what `omit` says.
    #[allow(dead_code, reason = "see `serve`")]
    fn copy(&mut self, held: &Lists, load: &Lists, omit: impl Fn(&Meaning) -> bool) {
        let shape = self.p.engine.scheduler().shape().clone();
        let mut values = BTreeMap::new();
        for (rank, meaning, address, len) in self.p.units(&shape, held) {
            let mut bytes = vec![0; len];
            self.p.engine.memories()[rank].read(address, &mut bytes);
            values.insert(meaning, bytes);
        }
        for (rank, meaning, address, len) in self.d.units(&shape, load) {
            if !omit(&meaning) {
                let bytes =
                    values.get(&meaning).unwrap_or_else(|| panic!("P does not hold {meaning:?}"));
                assert_eq!(bytes.len(), len);
                self.d.engine.memories()[rank].write(address, bytes);
            }
        }
    }

    /// Runs one request through both engines; what `omit` names is not transferred. Gives
    /// D's answer and the first token that D loaded (the prompt's end for a full hit).
    #[allow(dead_code, reason = "not every suite that shares this module transfers this way")]
    pub fn serve(
        &mut self,
        name: &str,
        prompt: &[u32],
        max_tokens: usize,
        omit: impl Fn(&Meaning) -> bool,
    ) -> (Outcome, usize) {
        self.serve_by(name, prompt, max_tokens, |pair, held, load| pair.copy(held, load, &omit))
    }

    /// The same, with `carry` to carry a load out.
    pub fn serve_by(
        &mut self,
        name: &str,
        prompt: &[u32],
        max_tokens: usize,
        mut carry: impl FnMut(&mut Self, &Lists, &Lists),
    ) -> (Outcome, usize) {
        self.p
            .engine
            .add_request(request(name, prompt, 1, Transfer::Send(transfer(name))))
            .unwrap();
        let mut held = None;
        while let Some(action) = self.p.engine.run_to_next_action() {
            if let Action::Hold { blocks, end_token, .. } = action {
                held = Some(Lists { blocks, first: 0, end: end_token });
            }
        }
        let held = held.expect("P holds the request");
        self.d
            .engine
            .add_request(request(name, prompt, max_tokens, Transfer::Load(transfer(name))))
            .unwrap();
        let (mut answer, mut first) = (None, prompt.len());
        while let Some(action) = self.d.engine.run_to_next_action() {
            match action {
                Action::Load { blocks, first_token, end_token, .. } => {
                    first = first_token;
                    carry(self, &held, &Lists { blocks, first, end: end_token });
                    assert!(self.d.engine.scheduler().load_finished(&id(name)));
                }
                Action::Answer { outcome, .. } => answer = Some(outcome),
                _ => {}
            }
        }
        assert!(self.p.engine.scheduler().send_finished(&id(name)));
        while self.p.engine.run_to_next_action().is_some() {}
        (answer.expect("D answers"), first)
    }
}

pub fn shapes() -> impl Strategy<Value = Arc<Shape>> {
    let heads = prop::sample::select(vec![1u32, 2, 4, 8]);
    let kernel = prop::sample::select(vec![1u32, 2, 4]);
    prop_oneof![
        (2u32..4, heads.clone(), 1u32..20, 1u32..3, kernel.clone()).prop_map(
            |(layers, kv_heads, half, size, kernel)| {
                Dense {
                    layers,
                    kv_heads,
                    head_bytes: half * 2,
                    block_size: size * 4,
                    kernel_blocks_per_block: kernel,
                }
                .shape()
            }
        ),
        // Four layers at least: a packed row of one layer cannot be told from an opaque one.
        (4u32..6, 1u32..20, 2u32..9).prop_map(|(layers, half, block_size)| Mla {
            layers,
            latent_bytes: half * 2,
            block_size
        }
        .shape()),
        (
            3u32..6,
            heads,
            1u32..9,
            kernel,
            1u32..14,
            1u32..20,
            prop::sample::select(vec![4u32, 8, 12])
        )
            .prop_map(
                |(layers, kv_heads, half, kernel, window, state, state_block_size)| {
                    Hybrid {
                        layers,
                        kv_heads,
                        head_bytes: half * 2,
                        block_size: 4,
                        kernel_blocks_per_block: kernel,
                        window,
                        state_bytes: state * 2,
                        state_block_size,
                    }
                    .shape()
                }
            ),
    ]
    .prop_map(Arc::new)
}

pub fn splits() -> impl Strategy<Value = Split> {
    (prop::sample::select(vec![1u32, 2, 4, 8]), 1u32..3)
}
