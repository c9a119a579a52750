//! Steps that are out: carried out rank by rank, so that events are not kept waiting.

use super::memory::RankNode;
use kvbaton_core::ids::RequestId;
use kvbaton_model_engine::{Comparison, Digest, Rank, RankDigest, Step};
use std::collections::VecDeque;

/// A step, and the comparison that precedes it.
#[derive(Debug)]
struct Work {
    step: Step,
    /// The whole prompt as one step, when loaded KV is to be compared first.
    loaded: Option<Step>,
    found: Comparison,
    digests: Vec<RankDigest>,
}

/// A step that every rank has carried out.
#[derive(Debug)]
pub struct Computed {
    /// The request.
    pub request: RequestId,
    /// What the ranks read back.
    pub digest: Digest,
    /// What the comparison found, if there was one.
    pub compared: Option<Comparison>,
}

/// The steps that are out, oldest first.
#[derive(Debug, Default)]
pub struct Computing {
    queue: VecDeque<Work>,
}

impl Computing {
    /// Adds a step; `loaded` is compared before it.
    pub fn push(&mut self, step: Step, loaded: Option<Step>) {
        let (found, digests) = (Comparison::default(), Vec::new());
        self.queue.push_back(Work { step, loaded, found, digests });
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Carries the oldest step out on one more rank; says when that was the last.
    pub fn advance(&mut self, ranks: &mut [(Rank, RankNode)]) -> Option<Computed> {
        let work = self.queue.front_mut()?;
        let (rank, node) = &mut ranks[work.digests.len()];
        if let Some(loaded) = &work.loaded {
            work.found.add(rank.compare(node.memory(), loaded));
        }
        work.digests.push(rank.run(node.memory_mut(), &work.step));
        if work.digests.len() < ranks.len() {
            return None;
        }
        let work = self.queue.pop_front()?;
        Some(Computed {
            request: work.step.request,
            digest: Digest::combine(&work.digests),
            compared: work.loaded.map(|_| work.found),
        })
    }
}
