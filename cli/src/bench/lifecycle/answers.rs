//! What is asked, and what an answer may be under the weights that its request lived under.

use super::setup::FIRST_VERSION;
use crate::engine::{Model, WEIGHTS};
use kvbaton_model_engine::{Shape, SingleEngine, Weights};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Tokens are below this.
const VOCABULARY: u32 = 100_000;

/// Prompts, and their answers by weight version.
pub struct Answers {
    shape: Arc<Shape>,
    max_tokens: usize,
    prompts: Vec<Vec<u32>>,
    known: BTreeMap<(usize, u64), Vec<u32>>,
}

impl Answers {
    /// `count` prompts of these lengths. The answers under the first weights are computed now.
    pub fn new(
        model: Model,
        count: usize,
        lengths: RangeInclusive<usize>,
        max_tokens: usize,
        seed: u64,
    ) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut prompt = || {
            let len = rng.random_range(lengths.clone());
            (0..len).map(|_| rng.random_range(0..VOCABULARY)).collect()
        };
        let prompts: Vec<Vec<u32>> = (0..count).map(|_| prompt()).collect();
        let mut answers =
            Self { shape: model.shape(), max_tokens, prompts, known: BTreeMap::new() };
        (0..count).for_each(|job| drop(answers.whole(job, FIRST_VERSION)));
        answers
    }

    pub const fn count(&self) -> usize {
        self.prompts.len()
    }

    pub fn prompt(&self, job: usize) -> &[u32] {
        &self.prompts[job]
    }

    pub const fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    fn single(&self, version: u64) -> SingleEngine {
        SingleEngine::new(self.shape.clone(), Weights { version, ..WEIGHTS })
    }

    fn whole(&mut self, job: usize, version: u64) -> Vec<u32> {
        if let Some(known) = self.known.get(&(job, version)) {
            return known.clone();
        }
        let answer = self.single(version).answer(&self.prompts[job], self.max_tokens);
        self.known.insert((job, version), answer.clone());
        answer
    }

    /// Whether `tokens` may be the answer, or its beginning, of a request that lived under the
    /// versions `first..=last`. An engine that changes weights keeps the tokens that it has,
    /// so an answer may begin under one version and go on under a later one, never back.
    pub fn is_right(&mut self, job: usize, tokens: &[u32], (first, last): (u64, u64)) -> bool {
        if tokens.is_empty() || tokens.len() > self.max_tokens {
            return false;
        }
        if (first..=last).any(|version| self.whole(job, version).starts_with(tokens)) {
            return true;
        }
        let (mut text, mut version) = (self.prompts[job].clone(), first);
        for &token in tokens {
            while self.single(version).answer(&text, 1) != [token] {
                version += 1;
                if version > last {
                    return false;
                }
            }
            text.push(token);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ModelKind;

    #[test]
    fn r07_an_answer_goes_on_under_later_weights_and_never_under_earlier_ones() {
        let model = Model::new(ModelKind::Dense, None).unwrap();
        let mut answers = Answers::new(model, 1, 3..=3, 4, 1);
        let mut mixed = answers.whole(0, 0)[..2].to_vec();
        let text: Vec<u32> = answers.prompt(0).iter().chain(&mixed).copied().collect();
        mixed.extend(answers.single(1).answer(&text, 2));
        assert!(answers.is_right(0, &mixed, (0, 1)));
        assert!(answers.is_right(0, &mixed[..2], (0, 0)), "its beginning");
        for versions in [(0, 0), (1, 1)] {
            assert!(!answers.is_right(0, &mixed, versions), "{versions:?}");
        }
        let mut wrong = mixed.clone();
        wrong[3] ^= 1;
        assert!(!answers.is_right(0, &wrong, (0, 1)));
        assert!(!answers.is_right(0, &[], (0, 1)));
    }
}
