//! At rest the ranks of an engine are all registered, or none is.

use super::Oracle;
use super::lives::Lives;
use crate::history::{Event, Lane, What};
use kvbaton_core::lifecycle::engine::{Operation, OperationError};
use std::collections::{BTreeMap, BTreeSet};

/// Compares ranks when no operation runs.
#[derive(Debug, Default)]
pub struct RanksAlike {
    /// `None` until it has registered once.
    registered: Lives<Option<bool>>,
    open: BTreeMap<u16, BTreeSet<u64>>,
    /// Engines that release memory without an operation.
    by_hand: BTreeSet<u16>,
    /// Engines that said that not all of it was undone, until their ranks are alike again.
    stuck: BTreeSet<u16>,
}

impl Oracle for RanksAlike {
    fn name(&self) -> &'static str {
        "ranks-alike"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["S06"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        if let Some((_, registered)) = self.registered.of(event) {
            match &event.what {
                What::Registered { .. } => *registered = Some(true),
                What::Unregistered { .. } => *registered = Some(false),
                _ => {}
            }
        }
        match (&event.what, event.lane) {
            // Where its lifecycle does it, the operation follows at once.
            (What::SleepAsked, Lane::Engine(engine)) => drop(self.by_hand.insert(engine)),
            (What::SleepFailed { .. } | What::Woke, Lane::Engine(engine)) => {
                self.by_hand.remove(&engine);
            }
            (What::OperationAsked { id, what }, Lane::Engine(engine)) => {
                if matches!(what, Operation::Sleep { .. } | Operation::ReleaseKv(_)) {
                    self.by_hand.remove(&engine);
                }
                self.open.entry(engine).or_default().insert(*id);
            }
            (What::OperationEnded { id, end }, Lane::Engine(engine)) => {
                let open = self.open.entry(engine).or_default();
                open.remove(id);
                if matches!(end, Err(OperationError::NotUndone { .. })) {
                    self.stuck.insert(engine);
                }
                let stopped = matches!(end, Err(OperationError::Stopped));
                if open.is_empty() && !stopped && !self.by_hand.contains(&engine) {
                    return self.compare(engine);
                }
            }
            (What::Killed, Lane::Node(node)) => drop(self.stuck.remove(&node.engine)),
            _ => {}
        }
        Ok(())
    }
}

impl RanksAlike {
    fn compare(&mut self, engine: u16) -> Result<(), String> {
        let is = |it: bool| {
            let mut ranks = self.registered.of_engine(engine);
            ranks.find(|(_, registered)| **registered == Some(it)).map(|(node, _)| node)
        };
        match (is(true), is(false)) {
            (Some(_), Some(_)) if self.stuck.contains(&engine) => Ok(()),
            (Some(one), Some(other)) => {
                Err(format!("e{engine} is at rest: {one} is registered and {other} is not"))
            }
            _ => {
                self.stuck.remove(&engine);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::NodeId;
    use crate::oracles::made_up::{P, Story, asked, caught, ended, failed, legal, started};
    use kvbaton_core::ids::Generation;
    use kvbaton_core::lifecycle::engine::{PauseMode, SleepLevel};

    const SECOND: NodeId = NodeId { rank: 1, ..P };

    fn one_gone() -> Story {
        let sleep = Operation::Sleep { level: SleepLevel::Offload, mode: PauseMode::Keep };
        let story = Story::new().node(SECOND, started(false, "q"));
        let story = story.node(SECOND, What::Registered { generation: Generation(3) });
        let story = story.engine(0, asked(1, sleep));
        story.p(What::Unregistered { generation: Generation(1) })
    }

    #[test]
    fn s06_all_ranks_or_none() {
        let words = "e0.r1 is registered and e0.r0 is not";
        caught(RanksAlike::default(), one_gone().engine(0, ended(1)), words);
        caught(RanksAlike::default(), one_gone().engine(0, failed(1)), words);
        let all = one_gone().node(SECOND, What::Unregistered { generation: Generation(3) });
        legal(RanksAlike::default(), all.engine(0, ended(1)));
        let back = one_gone().p(What::Registered { generation: Generation(5) });
        legal(RanksAlike::default(), back.engine(0, failed(1)));
    }

    #[test]
    fn s06_while_something_runs_and_what_says_so_is_not_judged() {
        let busy = one_gone().engine(0, asked(2, Operation::Resume)).engine(0, failed(2));
        legal(RanksAlike::default(), busy);
        let why = OperationError::NotUndone { cause: "a".into(), why: "b".into() };
        let stuck = What::OperationEnded { id: 1, end: Err(why) };
        let stuck = one_gone().engine(0, stuck);
        legal(RanksAlike::default(), stuck.clone().engine(0, ended(2)));
        let back = stuck.p(What::Registered { generation: Generation(5) }).engine(0, ended(3));
        let gone = back.p(What::Unregistered { generation: Generation(5) }).engine(0, ended(4));
        caught(RanksAlike::default(), gone, "e0.r0 is not");
    }
}
