//! An operation that takes every block back is done once no transfer has one.

use super::Oracle;
use super::lives::Lives;
use super::open::Open;
use crate::history::{Event, Lane, What};
use kvbaton_core::lifecycle::engine::{EngineOrder, Operation, SleepLevel};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
struct Node {
    holds: Open<()>,
    loads: Open<()>,
}

/// Looks for holds and loads when such an operation is done.
#[derive(Debug, Default)]
pub struct Cleared {
    nodes: Lives<Node>,
    /// Operations that clear, and their engines, unless requests run again.
    clearing: BTreeMap<u16, BTreeSet<u64>>,
}

/// Whether it is over with every block back and nothing running.
fn clears(what: &Operation) -> bool {
    match what {
        Operation::Pause { clear, .. } => *clear,
        Operation::Sleep { level, .. } => *level != SleepLevel::Compute,
        Operation::ReleaseKv(_) => true,
        _ => false,
    }
}

impl Oracle for Cleared {
    fn name(&self) -> &'static str {
        "cleared"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["R02"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        if let Some((_, node)) = self.nodes.of(event) {
            match &event.what {
                What::Held { request, transfer, .. } => node.holds.ask(request, transfer, ()),
                What::HoldRefused { request, transfer, .. } => {
                    node.holds.refuse(request, transfer);
                }
                What::SendEnded { request, transfer, .. } => {
                    node.holds.end(request, transfer);
                }
                What::LoadAsked { request, transfer, .. } => node.loads.ask(request, transfer, ()),
                What::LoadRefused { request, transfer, .. } => {
                    node.loads.refuse(request, transfer);
                }
                What::LoadEnded { request, transfer, .. } => {
                    node.loads.end(request, transfer);
                }
                _ => {}
            }
        }
        let Lane::Engine(engine) = event.lane else { return Ok(()) };
        let clearing = self.clearing.entry(engine).or_default();
        match &event.what {
            What::OperationAsked { id, what } if clears(what) => drop(clearing.insert(*id)),
            What::EngineTold { order: EngineOrder::Run, .. } => clearing.clear(),
            What::OperationEnded { id, end } if clearing.remove(id) && end.is_ok() => {
                for (node, it) in self.nodes.of_engine(engine) {
                    if let Some(((request, _), ())) = it.holds.iter().chain(it.loads.iter()).next()
                    {
                        return Err(format!(
                            "{node}: operation {id} is done, {request} has blocks"
                        ));
                    }
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
    use crate::oracles::made_up::{Story, asked, caught, ended, failed, held, legal, send_ended};
    use kvbaton_core::lifecycle::engine::PauseMode;

    fn pausing(clear: bool) -> Story {
        let pause = Operation::Pause { mode: PauseMode::Keep, clear };
        Story::new().p(held("a", &[])).engine(0, asked(1, pause))
    }

    #[test]
    fn r02_every_block_is_back() {
        caught(Cleared::default(), pausing(true).engine(0, ended(1)), "a has blocks");
        let back = pausing(true).p(send_ended("a", Err("Reset")));
        legal(Cleared::default(), back.engine(0, ended(1)));
        legal(Cleared::default(), pausing(true).engine(0, failed(1)));
        legal(Cleared::default(), pausing(false).engine(0, ended(1)));
        let run = What::EngineTold { number: 1, order: EngineOrder::Run };
        legal(Cleared::default(), pausing(true).engine(0, run).engine(0, ended(1)));
    }
}
