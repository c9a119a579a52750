//! What is asked: prompts, and what their answers must be.

use super::args::{DemoArgs, Lengths};
use crate::engine::{Model, WEIGHTS};
use kvbaton_model_engine::SingleEngine;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Prompts that begin alike share one of so many beginnings.
const BEGINNINGS: usize = 4;
/// Tokens are below this.
const VOCABULARY: u32 = 100_000;

/// One request, and its right answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The prompt.
    pub prompt: Vec<u32>,
    /// The tokens that follow it.
    pub expected: Vec<u32>,
}

/// The requests that `args` ask for. The oracle computes their answers from the tokens
/// alone, without blocks, ranks or memory.
#[must_use]
pub fn make(args: &DemoArgs, model: Model) -> Vec<Job> {
    let mut rng = StdRng::seed_from_u64(args.seed);
    let shape = model.shape();
    let step = shape.hit_step();
    // Half of the longest prompt, in whole steps: what a prefix cache can find again.
    let shared = (args.prompt_tokens.longest() / 2 / step).max(1) * step;
    let beginnings: Vec<Vec<u32>> = (0..BEGINNINGS).map(|_| tokens(&mut rng, shared)).collect();
    let prompts = (0..args.requests as usize).map(|index| {
        let len = match &args.prompt_tokens {
            Lengths::Range(least, most) => rng.random_range(*least..=*most),
            Lengths::List(list) => list[index % list.len()],
        };
        if rng.random_range(0..100) >= args.prefix_hits {
            return tokens(&mut rng, len);
        }
        let mut prompt = beginnings[rng.random_range(0..BEGINNINGS)].clone();
        // At least one token of its own; never longer than asked for.
        prompt.truncate(len.saturating_sub(1));
        let rest = len - prompt.len();
        prompt.extend(tokens(&mut rng, rest));
        prompt
    });
    let prompts: Vec<Vec<u32>> = prompts.collect();
    answered(&prompts, model, args.max_tokens as usize)
}

/// Prompts of one token: what a load costs beside its bytes.
#[must_use]
pub fn probes(count: usize, seed: u64, model: Model) -> Vec<Job> {
    let mut rng = StdRng::seed_from_u64(!seed);
    let prompts: Vec<_> = (0..count).map(|_| tokens(&mut rng, 1)).collect();
    answered(&prompts, model, 1)
}

fn tokens(rng: &mut StdRng, len: usize) -> Vec<u32> {
    (0..len).map(|_| rng.random_range(0..VOCABULARY)).collect()
}

fn answered(prompts: &[Vec<u32>], model: Model, max_tokens: usize) -> Vec<Job> {
    let oracle = SingleEngine::new(model.shape(), WEIGHTS);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let share = prompts.len().div_ceil(workers).max(1);
    std::thread::scope(|scope| {
        let parts: Vec<_> = prompts
            .chunks(share)
            .map(|part| {
                let oracle = &oracle;
                scope.spawn(move || {
                    let job = |prompt: &Vec<u32>| Job {
                        expected: oracle.answer(prompt, max_tokens),
                        prompt: prompt.clone(),
                    };
                    part.iter().map(job).collect::<Vec<_>>()
                })
            })
            .collect();
        parts.into_iter().flat_map(|part| part.join().expect("the oracle does not panic")).collect()
    })
}
