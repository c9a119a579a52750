//! Prompts: those of one family begin alike.

use crate::plan::RequestPlan;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The prompt of a request: the same in every run of every plan that names it so.
#[must_use]
pub fn tokens(request: &RequestPlan) -> Vec<u32> {
    let token = |owner: (bool, u32), position: u32| {
        let mut hasher = DefaultHasher::new();
        (owner, position).hash(&mut hasher);
        hasher.finish() as u32 % 50_000
    };
    let shared = request.shared_len.min(request.prompt_len);
    let own = |position| token((true, request.id), position);
    let family = |position| token((false, request.family), position);
    (0..request.prompt_len.max(1))
        .map(|at| if at < shared { family(at) } else { own(at) })
        .collect()
}
