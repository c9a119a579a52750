//! What an answer may be.

use crate::world::model;
use kvbaton_model_engine::{Shape, SingleEngine};
use std::sync::Arc;

/// The answers that `tokens` may be, of a request that lived under the weight versions
/// `first..=last`. An engine that changes weights keeps the tokens it has, so an answer may
/// begin under one version and go on under a later one.
#[must_use]
pub fn answers(
    shape: &Arc<Shape>,
    prompt: &[u32],
    tokens: &[u32],
    (first, last): (u64, u64),
) -> Vec<Vec<u32>> {
    let single = |version| SingleEngine::new(shape.clone(), model::weights(version));
    let whole = single(last).answer(prompt, tokens.len());
    if first == last || whole == tokens {
        return vec![whole];
    }
    let (mut text, mut version) = (prompt.to_vec(), first);
    for &token in tokens {
        while single(version).answer(&text, 1) != [token] {
            version += 1;
            if version > last {
                return vec![whole];
            }
        }
        text.push(token);
    }
    vec![tokens.to_vec()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ModelPlan;

    #[test]
    fn an_answer_may_go_on_under_later_weights_but_not_under_earlier_ones() {
        let shape = model::shape(ModelPlan::Dense);
        let single = |version| SingleEngine::new(shape.clone(), model::weights(version));
        let prompt = [5, 6, 7];
        let mut mixed = single(0).answer(&prompt, 2);
        let text: Vec<u32> = prompt.iter().chain(&mixed).copied().collect();
        mixed.extend(single(1).answer(&text, 2));
        assert!(answers(&shape, &prompt, &mixed, (0, 1)).contains(&mixed));
        assert!(!answers(&shape, &prompt, &mixed, (1, 1)).contains(&mixed));
        let mut wrong = mixed.clone();
        wrong[3] ^= 1;
        assert!(!answers(&shape, &prompt, &wrong, (0, 1)).contains(&wrong));
    }
}
