//! Every operation of an engine's lifecycle is answered once, within the sum of its bounds.

use super::Oracle;
use super::due::{Clocks, Due};
use crate::history::{Event, Lane, NodeId, What};
use crate::plan::Plan;
use kvbaton_core::lifecycle::engine::{Bounds, Operation, PauseMode, SleepLevel};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What messages between actors and the ways of tasks may add, in milliseconds.
const SLACK: u64 = 1_000;

/// Counts operations and their answers.
#[derive(Debug)]
pub struct OperationsEnd {
    bounds: Bounds,
    clocks: Clocks,
    due: Due<u64>,
    /// First rank of each engine's current life.
    lives: BTreeMap<u16, NodeId>,
    open: BTreeMap<u64, (u16, &'static str)>,
    ended: BTreeSet<u64>,
}

impl OperationsEnd {
    /// For runs of `plan`.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self {
            bounds: plan.bounds.lifecycle(),
            clocks: Clocks::of(plan),
            due: Due::default(),
            lives: BTreeMap::new(),
            open: BTreeMap::new(),
            ended: BTreeSet::new(),
        }
    }

    fn quiet(&self, mode: PauseMode, clear: bool) -> Duration {
        let Bounds { finish, drain, blocks, order, .. } = self.bounds;
        let waits = mode == PauseMode::Wait;
        let stop = order * 2 + if waits { finish } else { Duration::ZERO };
        let drain = if waits { drain } else { Duration::ZERO };
        stop + if clear { drain + order * 3 + blocks } else { Duration::ZERO }
    }

    /// The sum of an operation's bounds, there and back.
    fn bound(&self, what: &Operation) -> u64 {
        let Bounds { order, memory, release, .. } = self.bounds;
        let down = release + order * 2 + memory;
        // Explaining, cancelling, both kinds of memory back, registering, running.
        let back = memory * 2 + order * 5;
        let there = match *what {
            Operation::AbortTransfers | Operation::AbortRequests(_) => return millis(order),
            Operation::Pause { mode, clear } => self.quiet(mode, clear),
            // What runs may have to end first: the rest of it, or its way back.
            Operation::Resume => memory * 3 + order * 5,
            Operation::Sleep { level: SleepLevel::Compute, mode } => self.quiet(mode, false),
            Operation::Sleep { mode, .. } => self.quiet(mode, true) + down + memory,
            Operation::ReleaseKv(mode) => self.quiet(mode, true) + down,
            Operation::Wake(_) => memory * 2 + order * 2,
            Operation::UpdateWeights { mode, .. } => self.quiet(mode, true) + memory + order * 2,
            Operation::ResetPrefixCache { .. } => self.quiet(PauseMode::Keep, true) + order,
        };
        millis(there + back)
    }
}

fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}

impl Oracle for OperationsEnd {
    fn name(&self) -> &'static str {
        "operations-end"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["R02", "S01"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        if let Some((node, id)) = self.due.late(event) {
            let name = self.open.get(&id).map_or("?", |it| it.1);
            return Err(format!("e{}: {name} (operation {id}) has no answer in time", node.engine));
        }
        match (&event.what, event.lane) {
            (What::Started { .. }, Lane::Node(node)) if node.rank == 0 => {
                self.lives.insert(node.engine, node);
            }
            (What::Killed, Lane::Node(node)) => self.open.retain(|_, it| it.0 != node.engine),
            (What::OperationAsked { id, what }, Lane::Engine(engine)) => {
                self.open.insert(*id, (engine, what.name()));
                if let Some(&node) = self.lives.get(&engine) {
                    let within = self.clocks.longest(node, self.bound(what) + SLACK);
                    self.due.set(node, *id, event.at, within);
                }
            }
            (What::OperationEnded { id, .. }, Lane::Engine(engine)) => {
                if !self.ended.insert(*id) {
                    return Err(format!("e{engine}: operation {id} was answered twice"));
                }
                self.open.remove(id);
                if let Some(&node) = self.lives.get(&engine) {
                    self.due.clear(node, id);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        match self.open.first_key_value() {
            None => Ok(()),
            Some((id, (engine, name))) => {
                Err(format!("e{engine}: {name} (operation {id}) was never answered"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{Story, asked, caught, ended, legal, plan};

    fn oracle() -> OperationsEnd {
        OperationsEnd::new(&plan())
    }

    #[test]
    fn every_operation_is_answered_once() {
        let story = Story::new().engine(0, asked(1, Operation::Resume));
        legal(oracle(), story.clone().engine(0, ended(1)));
        caught(oracle(), story.clone(), "resume (operation 1) was never answered");
        caught(oracle(), story.clone().engine(0, ended(1)).engine(0, ended(1)), "answered twice");
        legal(oracle(), story.p(What::Killed));
    }

    #[test]
    fn r02_within_the_sum_of_its_bounds() {
        let pause = Operation::Pause { mode: PauseMode::Wait, clear: true };
        let bound = oracle().bound(&pause) + SLACK;
        let story = Story::new().at(10).engine(0, asked(1, pause));
        legal(oracle(), story.clone().at(10 + bound).engine(0, ended(1)));
        let late = story.clone().at(11 + bound).engine(0, ended(1));
        caught(oracle(), late, "pause (operation 1) has no answer in time");
        // Stopped meanwhile.
        let stopped = story.p(What::Stopped).at(510).p(What::Continued);
        legal(oracle(), stopped.at(10 + 500 + bound).engine(0, ended(1)));
        assert!(bound < 60_000, "{bound}");
    }
}
