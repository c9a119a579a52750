//! An engine sleeps with all its ranks, or with none.

use super::Oracle;
use super::lives::Lives;
use crate::history::{Event, Lane, NodeId, What};
use kvbaton_core::ids::Generation;
use std::collections::{BTreeMap, BTreeSet};

/// Compares what an engine says with what its ranks have registered.
#[derive(Debug, Default)]
pub struct SleepAllOrNothing {
    registered: Lives<Option<Generation>>,
    /// Ranks that were registered when an engine was to sleep.
    asked: BTreeMap<u16, BTreeSet<NodeId>>,
}

impl SleepAllOrNothing {
    /// A rank of `engine` that was registered when it was to sleep, and is not as it should.
    fn astray(&self, engine: u16, should: bool) -> Option<NodeId> {
        let asked = self.asked.get(&engine)?;
        let mut ranks = self.registered.of_engine(engine).filter(|(it, _)| asked.contains(it));
        ranks.find(|(_, registered)| registered.is_some() != should).map(|(node, _)| node)
    }
}

impl Oracle for SleepAllOrNothing {
    fn name(&self) -> &'static str {
        "sleep-all-or-nothing"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["S06", "S05"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        if let Some((_, registered)) = self.registered.of(event) {
            match &event.what {
                What::Registered { generation } => *registered = Some(*generation),
                What::Unregistered { generation } if *registered == Some(*generation) => {
                    *registered = None;
                }
                _ => {}
            }
        }
        let Lane::Engine(engine) = event.lane else { return Ok(()) };
        match &event.what {
            What::SleepAsked => {
                let ranks = self.registered.of_engine(engine);
                let ranks = ranks.filter(|(_, it)| it.is_some()).map(|(node, _)| node);
                self.asked.insert(engine, ranks.collect());
            }
            What::Slept => {
                if let Some(node) = self.astray(engine, false) {
                    return Err(format!("e{engine} sleeps, but {node} is registered"));
                }
            }
            What::SleepFailed { .. } | What::Woke => {
                if let Some(node) = self.astray(engine, true) {
                    return Err(format!("e{engine} is awake, but {node} is not registered"));
                }
                self.asked.remove(&engine);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{P, Story, caught, legal, started};

    const SECOND: NodeId = NodeId { rank: 1, ..P };

    fn two() -> Story {
        let story = Story::new().node(SECOND, started(false, "q"));
        story.node(SECOND, What::Registered { generation: Generation(3) })
    }

    fn gone(story: Story, node: NodeId, generation: u64) -> Story {
        story.node(node, What::Unregistered { generation: Generation(generation) })
    }

    fn back(story: Story, node: NodeId, generation: u64) -> Story {
        story.node(node, What::Registered { generation: Generation(generation) })
    }

    fn failed() -> What {
        What::SleepFailed { why: "in use".into() }
    }

    #[test]
    fn s06_all_ranks_sleep_and_wake() {
        let story = gone(gone(two().engine(0, What::SleepAsked), P, 1), SECOND, 3);
        let story = story.engine(0, What::Slept);
        let story = back(back(story, P, 8), SECOND, 9);
        legal(SleepAllOrNothing::default(), story.engine(0, What::Woke));
    }

    #[test]
    fn s06_one_rank_that_refuses_keeps_all_awake() {
        let one = || gone(two().engine(0, What::SleepAsked), P, 1);
        legal(SleepAllOrNothing::default(), back(one(), P, 8).engine(0, failed()));
        caught(SleepAllOrNothing::default(), one().engine(0, failed()), "e0.r0 is not registered");
        caught(SleepAllOrNothing::default(), one().engine(0, What::Slept), "e0.r1 is registered");
        let slept = gone(one(), SECOND, 3).engine(0, What::Slept);
        let woke = back(slept, P, 8).engine(0, What::Woke);
        caught(SleepAllOrNothing::default(), woke, "e0.r1 is not registered");
    }

    #[test]
    fn ranks_that_died_or_were_never_registered_do_not_count() {
        let story = gone(two().engine(0, What::SleepAsked), P, 1).node(SECOND, What::Killed);
        legal(SleepAllOrNothing::default(), story.engine(0, What::Slept));
        let story = Story::new().node(SECOND, started(false, "q")).engine(0, What::SleepAsked);
        legal(SleepAllOrNothing::default(), story.engine(0, failed()));
    }
}
