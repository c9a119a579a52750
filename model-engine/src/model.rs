//! The "model": KV bytes from tokens, a digest from KV bytes, the next token from a digest.
//!
//! A *unit* is what one head of one layer keeps for one position (or, in a state group,
//! for the prefix up to a block boundary). Its bytes follow from the prefix, the layer and
//! the global head, so they do not depend on how ranks split the model. A digest is the
//! sum of all units' hashes: any grouping of ranks adds up to the same.

use std::collections::BTreeMap;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
const ODD_A: u64 = 0xd6e8_feb8_6659_fd93;
const ODD_B: u64 = 0xa076_1d64_78bd_642f;
const ODD_C: u64 = 0xe703_7ed1_a0b4_28db;

/// A bijection on 64 bits in which every input bit reaches every output bit.
pub(crate) const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Which model, and which version of its weights: both shape every KV byte `[R07]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Weights {
    /// Names the model; P and D must agree.
    pub model: u64,
    /// Version of the weights, new after every update.
    pub version: u64,
}

/// Rolling hash of a token prefix: entry `i` names the first `i + 1` tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixChain {
    seed: u64,
    hashes: Vec<u64>,
}

impl PrefixChain {
    /// The chain of `tokens` under `weights`.
    #[must_use]
    pub fn new(weights: Weights, tokens: &[u32]) -> Self {
        let seed =
            mix(mix(weights.model ^ ODD_A).wrapping_add(weights.version).wrapping_add(GOLDEN));
        let mut chain = Self { seed, hashes: Vec::with_capacity(tokens.len()) };
        tokens.iter().for_each(|&token| chain.push(token));
        chain
    }

    /// Appends one token.
    pub fn push(&mut self, token: u32) {
        let last = self.hashes.last().copied().unwrap_or(self.seed);
        self.hashes.push(mix(last.wrapping_mul(ODD_B) ^ u64::from(token).wrapping_add(GOLDEN)));
    }

    /// Number of tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether there is no token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Hash of each prefix, shortest first.
    #[must_use]
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }
}

/// One unit's identity: which layer (by its place in the shape), which global head, and
/// the position whose prefix it holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit {
    pub layer: u32,
    pub head: u32,
    pub position: usize,
}

impl Unit {
    /// Writes the unit's bytes; `prefix` is the hash of the tokens up to its position.
    #[inline]
    pub fn fill(self, prefix: u64, out: &mut [u8]) {
        let place = (u64::from(self.layer) << 32) | u64::from(self.head);
        let mut state = mix(prefix ^ place.wrapping_add(1).wrapping_mul(ODD_C));
        let mut next = || {
            state = state.wrapping_add(GOLDEN);
            let word = (state ^ (state >> 32)).wrapping_mul(ODD_A);
            (word ^ (word >> 29)).to_le_bytes()
        };
        let (words, tail) = out.as_chunks_mut::<8>();
        for word in words {
            *word = next();
        }
        if !tail.is_empty() {
            tail.copy_from_slice(&next()[..tail.len()]);
        }
    }

    /// Hash of the unit's bytes as read back. Every step is a bijection of the word it
    /// takes in, so no change within one word can go unseen.
    #[inline]
    pub fn hash(self, bytes: &[u8]) -> u64 {
        let place = (u64::from(self.layer) << 32) | u64::from(self.head);
        let position = (self.position as u64 + 1).wrapping_mul(GOLDEN);
        let seed = mix(mix(place ^ ODD_B).wrapping_add(position));
        let mut lanes = [seed, seed ^ ODD_A, seed ^ ODD_B, seed ^ ODD_C];
        let (quads, rest) = bytes.as_chunks::<32>();
        for quad in quads {
            let (words, _) = quad.as_chunks::<8>();
            for (lane, word) in lanes.iter_mut().zip(words) {
                absorb(lane, u64::from_le_bytes(*word));
            }
        }
        let (words, tail) = rest.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            absorb(lane, u64::from_le_bytes(*word));
        }
        if !tail.is_empty() {
            let mut word = [0; 8];
            word[..tail.len()].copy_from_slice(tail);
            absorb(&mut lanes[3], u64::from_le_bytes(word));
        }
        let [a, b, c, d] = lanes;
        // A sum of bijections: one changed lane always changes it.
        let sum = a.wrapping_add(b.rotate_left(16)).wrapping_add(c.rotate_left(32));
        mix(sum.wrapping_add(d.rotate_left(48)))
    }
}

#[inline(always)]
fn absorb(lane: &mut u64, word: u64) {
    let mixed = (*lane ^ word).wrapping_mul(ODD_A);
    *lane = mixed ^ (mixed >> 32);
}

/// What one rank read back: for each of its layers, the first global head it holds (0
/// where all ranks hold the same) and the sum of its units' hashes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct RankDigest {
    /// (layer by its place in the shape, first global head, sum of hashes).
    pub parts: Vec<(u32, u32, u64)>,
}

/// What a whole engine read back: equal for every split into ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub u64);

impl Digest {
    /// Adds up all ranks of one engine, in any order. Ranks that hold copies of the same
    /// heads count once; a copy that differs changes the result.
    #[must_use]
    pub fn combine<'a>(ranks: impl IntoIterator<Item = &'a RankDigest>) -> Self {
        let mut shards: BTreeMap<(u32, u32), Vec<u64>> = BTreeMap::new();
        for &(layer, head, sum) in ranks.into_iter().flat_map(|rank| &rank.parts) {
            shards.entry((layer, head)).or_default().push(sum);
        }
        let mut total = 0u64;
        for copies in shards.values_mut() {
            copies.sort_unstable();
            total = total.wrapping_add(copies[0]);
            for copy in &copies[1..] {
                total = total.wrapping_add((copy ^ copies[0]).wrapping_mul(ODD_A));
            }
        }
        Self(total)
    }
}

/// The token that follows `tokens` tokens whose KV has this digest.
#[must_use]
pub const fn next_token(digest: Digest, tokens: usize) -> u32 {
    (mix(digest.0.wrapping_add((tokens as u64).wrapping_mul(GOLDEN))) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_changed_byte_changes_the_hash(len in 1usize..200, at in any::<prop::sample::Index>(), flip in 1u8.., prefix: u64) {
            let unit = Unit { layer: 3, head: 1, position: 17 };
            let mut bytes = vec![0; len];
            unit.fill(prefix, &mut bytes);
            let right = unit.hash(&bytes);
            bytes[at.index(len)] ^= flip;
            prop_assert_ne!(unit.hash(&bytes), right);
        }

        #[test]
        fn r07_bytes_depend_on_weights_prefix_layer_and_head(tokens in prop::collection::vec(any::<u32>(), 1..20)) {
            let bytes = |version, tokens: &[u32], layer, head| {
                let chain = PrefixChain::new(Weights { model: 1, version }, tokens);
                let mut out = [0; 16];
                Unit { layer, head, position: 0 }.fill(*chain.hashes().last().unwrap(), &mut out);
                out
            };
            let right = bytes(1, &tokens, 0, 0);
            prop_assert_ne!(right, bytes(2, &tokens, 0, 0));
            prop_assert_ne!(right, bytes(1, &tokens, 1, 0));
            prop_assert_ne!(right, bytes(1, &tokens, 0, 1));
            let mut other = tokens.clone();
            other[0] ^= 1;
            prop_assert_ne!(right, bytes(1, &other, 0, 0));
        }
    }

    #[test]
    fn a04_a_copy_that_differs_changes_the_digest() {
        let rank = |sum| RankDigest { parts: vec![(0, 0, sum)] };
        let right = Digest::combine(&[rank(9), rank(9)]);
        assert_eq!(right, Digest::combine(&[rank(9)]));
        assert_ne!(right, Digest::combine(&[rank(9), rank(8)]));
        assert_ne!(right, Digest::combine(&[rank(10), rank(9)]));
    }
}
