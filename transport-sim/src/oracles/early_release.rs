//! A release by D that comes before P's engine has finished the request ends the hold at
//! once. Judged where one rank of P has one reader.

use super::Oracle;
use super::due::{Due, MS};
use super::lives::Lives;
use crate::history::{ConnectionId, Event, What};
use crate::plan::{Plan, Quirk};
use kvbaton_core::ids::{RequestId, TransferId};
use std::collections::{BTreeMap, BTreeSet};

const BOUND_MS: u64 = 1_000;
/// Fewer than these may rightly be forgotten in a run.
const ENOUGH: usize = 64;

#[derive(Debug, Default)]
struct Node {
    /// Releases that came in and have no answer yet.
    asked: BTreeMap<(ConnectionId, RequestId), TransferId>,
    released: BTreeSet<TransferId>,
    held: BTreeSet<TransferId>,
}

/// Times holds that were released before.
#[derive(Debug)]
pub struct EarlyRelease {
    applies: bool,
    nodes: Lives<Node>,
    due: Due<TransferId>,
}

impl EarlyRelease {
    /// For runs of `plan`.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let one_reader = plan.fleet.engines.iter().all(|engine| engine.ranks() == 1);
        let own_ids = plan.requests.iter().all(|request| {
            !matches!(request.quirk, Quirk::SameIdsAs(_) | Quirk::SameTransferAs(_))
        });
        let applies = one_reader && own_ids && plan.bounds.max_remembered >= ENOUGH;
        Self { applies, nodes: Lives::default(), due: Due::default() }
    }
}

impl Oracle for EarlyRelease {
    fn name(&self) -> &'static str {
        "early-release"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P05", "P10"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        if !self.applies {
            return Ok(());
        }
        if let Some((node, transfer)) = self.due.late(event) {
            return Err(format!("{node}: {transfer} was released before, and is still held"));
        }
        let Some((node, it)) = self.nodes.of(event) else { return Ok(()) };
        match &event.what {
            What::PullReceived { connection, pull } => {
                for (request, transfer, blocks, _) in &pull.requests {
                    if *blocks == 0 && !it.held.contains(transfer) {
                        it.asked.insert((*connection, request.clone()), transfer.clone());
                    }
                }
            }
            What::ReplySent { connection, reply } => {
                for request in &reply.ok {
                    let asked = it.asked.remove(&(*connection, request.clone()));
                    it.released.extend(asked.filter(|transfer| !it.held.contains(transfer)));
                }
            }
            What::Held { transfer, .. } => {
                it.held.insert(transfer.clone());
                if it.released.contains(transfer) {
                    self.due.set(node, transfer.clone(), event.at, BOUND_MS * MS);
                }
            }
            What::SendEnded { transfer, .. } | What::HoldRefused { transfer, .. } => {
                self.due.clear(node, transfer);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{
        Story, caught, held, hold_refused, legal, plan, pull, pull_received, reply, reply_sent,
        send_ended,
    };
    use kvbaton_core::wire::Status;

    fn oracle() -> EarlyRelease {
        EarlyRelease::new(&plan())
    }

    fn empty() -> What {
        let mut empty = pull(3, true, &[("a", 7)]);
        empty.requests[0].2 = 0;
        pull_received(1, empty)
    }

    fn answered() -> What {
        reply_sent(1, reply(Status::Finish, &["a"], &[], 0))
    }

    fn later(story: Story) -> Story {
        story.at(9_000).world(What::Healed)
    }

    #[test]
    fn p05_what_was_released_before_is_not_held() {
        let story = || Story::new().p(empty()).p(answered()).p(held("a", &[(0, 8)]));
        caught(oracle(), later(story()), "a was released before");
        legal(oracle(), later(story().p(send_ended("a", Err("Released")))));
        legal(oracle(), later(story().p(hold_refused("a"))));
    }

    #[test]
    fn p05_what_was_not_released_may_be_held() {
        let hold = || held("a", &[(0, 8)]);
        legal(oracle(), later(Story::new().p(empty()).p(hold())));
        legal(oracle(), later(Story::new().p(hold()).p(empty()).p(answered())));
        let other = reply_sent(1, reply(Status::Finish, &[], &["a"], 0));
        legal(oracle(), later(Story::new().p(empty()).p(other).p(hold())));
        let mut shared = plan();
        shared.fleet.engines[1].tp = 2;
        let story = Story::new().p(empty()).p(answered()).p(hold());
        legal(EarlyRelease::new(&shared), later(story));
    }
}
