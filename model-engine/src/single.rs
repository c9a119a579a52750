//! The reference: what an engine must answer, straight from the tokens.

use crate::model::{Digest, PrefixChain, Unit, Weights, next_token};
use crate::rank_layout::RankPlace;
use crate::shape::{Layer, Shape};
use kvbaton_core::region::GroupKind;
use std::sync::Arc;

/// A model without memory, blocks or ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SingleEngine {
    shape: Arc<Shape>,
    weights: Weights,
}

impl SingleEngine {
    /// The model under these weights.
    #[must_use]
    pub const fn new(shape: Arc<Shape>, weights: Weights) -> Self {
        Self { shape, weights }
    }

    /// The `max_tokens` tokens that follow `prompt`.
    #[must_use]
    pub fn answer(&self, prompt: &[u32], max_tokens: usize) -> Vec<u32> {
        let mut chain = PrefixChain::new(self.weights, prompt);
        let mut sums: Vec<Vec<u64>> = vec![Vec::new(); self.shape.groups.len()];
        let mut answer = Vec::with_capacity(max_tokens);
        while answer.len() < max_tokens {
            let token = next_token(self.digest(&chain, &mut sums), chain.len());
            chain.push(token);
            answer.push(token);
        }
        answer
    }

    /// Digest of all KV that the groups keep at the chain's end. `sums` remembers, per
    /// group, the sum over its layers and heads for each position.
    fn digest(&self, chain: &PrefixChain, sums: &mut [Vec<u64>]) -> Digest {
        let tokens = chain.len();
        let mut total = 0u64;
        for (index, (group, sums)) in self.shape.groups.iter().zip(sums).enumerate() {
            let first = group.first_position(tokens);
            if group.kind() == GroupKind::State {
                for entry in group.kept(tokens) {
                    let position = group.covered(entry, tokens) - 1;
                    total = total.wrapping_add(self.at(index, position, chain));
                }
                continue;
            }
            for position in sums.len()..tokens {
                // What a window has left behind before the first answer is never read.
                let sum = if position < first { 0 } else { self.at(index, position, chain) };
                sums.push(sum);
            }
            total = sums[first..].iter().fold(total, |total, sum| total.wrapping_add(*sum));
        }
        Digest(total)
    }

    fn at(&self, group: usize, position: usize, chain: &PrefixChain) -> u64 {
        let layers = (0..).zip(&self.shape.layers).filter(|(_, layer)| layer.group == group);
        layers.fold(0, |sum, (index, layer)| {
            sum.wrapping_add(unit_sum(index, layer, position, chain.hashes()[position]))
        })
    }
}

fn unit_sum(index: u32, layer: &Layer, position: usize, prefix: u64) -> u64 {
    let mut bytes = vec![0; layer.unit as usize];
    RankPlace::SINGLE.heads(layer.sharding).fold(0, |sum: u64, head| {
        let unit = Unit { layer: index, head, position };
        unit.fill(prefix, &mut bytes);
        sum.wrapping_add(unit.hash(&bytes))
    })
}
