//! Prompts: those of one family begin alike.

use crate::plan::{Quirk, RequestPlan};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The plan of the request whose prompt and engines `request` has: its own, but for those
/// that share another's ids, as samples of one prompt do.
#[must_use]
pub fn original<'a>(all: &'a [RequestPlan], request: &'a RequestPlan) -> &'a RequestPlan {
    match request.quirk {
        Quirk::SameTransferAs(other) | Quirk::SameIdsAs(other) if other != request.id => {
            let found = all.iter().find(|it| it.id == other);
            // It may itself share another's; ids go down, so this ends.
            found.filter(|it| it.id < request.id).map_or(request, |it| original(all, it))
        }
        _ => request,
    }
}

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
