//! A load fails as dropped only when its own node has dropped it.

use super::Oracle;
use super::lives::Lives;
use crate::history::{Event, LoadFact, What};
use kvbaton_core::ids::{Grant, RequestId};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
struct Node {
    /// Grants of each request's pulls.
    grants: BTreeMap<RequestId, BTreeSet<Grant>>,
    dropped: BTreeSet<Grant>,
}

/// Remembers grants that were dropped.
#[derive(Debug, Default)]
pub struct DropsHitTheirLoad {
    nodes: Lives<Node>,
}

impl Oracle for DropsHitTheirLoad {
    fn name(&self) -> &'static str {
        "drops-hit-their-load"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P09"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, it)) = self.nodes.of(event) else { return Ok(()) };
        match &event.what {
            What::LoadAsked { request, .. } => drop(it.grants.remove(request)),
            What::PullSent { pull, .. } => {
                for (request, _, _, grant) in &pull.requests {
                    it.grants.entry(request.clone()).or_default().extend(grant);
                }
            }
            What::DropSent { transfers, .. } => {
                it.dropped.extend(transfers.iter().map(|(_, grant)| *grant));
            }
            What::LoadEnded { request, end: LoadFact::Failed(why), .. }
                if &*why.reason == "Prefill(Dropped)" =>
            {
                let own = it.grants.get(request);
                if !own.into_iter().flatten().any(|grant| it.dropped.contains(grant)) {
                    return Err(format!("{node}: {request} failed as dropped, but was not"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::ConnectionId;
    use crate::oracles::made_up::{
        ADDRESS, Story, caught, legal, load, load_failed, pull, pull_sent,
    };

    fn story(dropped: u64) -> Story {
        let pulled = |grant| pull_sent(grant, pull(3, true, &[("a", grant)]));
        let story = Story::new().d(load("a", &[(0, 8)])).d(pulled(6));
        let story = story.d(load("a", &[(0, 8)])).d(pulled(7));
        let transfers = vec![("a".into(), Grant(dropped))];
        let (connection, to) = (ConnectionId(9), ADDRESS.into());
        let story = story.d(What::DropSent { connection, to, transfers });
        story.d(load_failed("a", "Prefill(Dropped)", "transfer a was dropped"))
    }

    #[test]
    fn p09_a_drop_of_an_earlier_load_ends_no_later_one() {
        legal(DropsHitTheirLoad::default(), story(7));
        caught(DropsHitTheirLoad::default(), story(6), "failed as dropped, but was not");
    }
}
