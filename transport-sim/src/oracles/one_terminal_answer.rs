//! Every pull gets one terminal answer in its bound, and every request that it names one
//! answer.

use super::Oracle;
use super::due::{Clocks, Due, MS};
use super::lives::Lives;
use crate::history::{ConnectionId, Event, NodeId, ReplyFacts, What};
use crate::plan::Plan;
use kvbaton_core::ids::RequestId;
use kvbaton_core::wire::Status;
use std::collections::{BTreeMap, BTreeSet};

const SLACK_MS: u64 = 1_500;

#[derive(Debug, Default)]
struct Exchange {
    /// Pulls that came in: more than one if the network duplicated it.
    pulls: u32,
    terminal: u32,
    finished: u32,
    answers: BTreeMap<RequestId, u32>,
}

#[derive(Debug, Default)]
struct Node {
    exchanges: BTreeMap<ConnectionId, Exchange>,
    /// Drops and unreadable messages: not judged.
    others: BTreeSet<ConnectionId>,
}

/// Counts answers.
#[derive(Debug)]
pub struct OneTerminalAnswer {
    clocks: Clocks,
    load_ms: u64,
    nodes: Lives<Node>,
    /// D waits for nothing more on these.
    closed: BTreeSet<ConnectionId>,
    due: Due<(ConnectionId, u32)>,
    pulled_by: BTreeMap<ConnectionId, NodeId>,
}

impl OneTerminalAnswer {
    /// For runs of `plan`.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self {
            clocks: Clocks::of(plan),
            load_ms: plan.bounds.load_ms,
            nodes: Lives::default(),
            closed: BTreeSet::new(),
            due: Due::default(),
            pulled_by: BTreeMap::new(),
        }
    }

    fn close(&mut self, connection: ConnectionId) {
        self.closed.insert(connection);
        let Some(node) = self.pulled_by.get(&connection).copied() else { return };
        let pulls = self.pulls(node, connection);
        (0..pulls).for_each(|copy| self.due.clear(node, &(connection, copy)));
    }

    fn pulls(&self, node: NodeId, connection: ConnectionId) -> u32 {
        let found = self.nodes.get(node).and_then(|it| it.exchanges.get(&connection));
        found.map_or(0, |it| it.pulls)
    }
}

impl Exchange {
    fn answer(&mut self, reply: &ReplyFacts, open: bool) -> Result<(), String> {
        for request in reply.ok.iter().chain(&reply.failed) {
            let Some(answers) = self.answers.get_mut(request) else {
                return Err(format!("answers {request}, which the pull does not name"));
            };
            *answers += 1;
            if *answers > self.pulls {
                return Err(format!("answers {request} {answers} times"));
            }
        }
        if reply.status == Status::Continue {
            return Ok(());
        }
        self.terminal += 1;
        if self.terminal > self.pulls {
            return Err(format!("is terminal number {} for {} pull(s)", self.terminal, self.pulls));
        }
        self.finished += u32::from(reply.status == Status::Finish);
        let missing = self.answers.iter().find(|(_, answers)| **answers != self.finished);
        match missing {
            Some((request, answers)) if open && self.terminal == self.pulls => Err(format!(
                "ends {} pull(s) by a finish, but {request} was answered {answers} times",
                self.finished
            )),
            _ => Ok(()),
        }
    }
}

impl Oracle for OneTerminalAnswer {
    fn name(&self) -> &'static str {
        "one-terminal-answer"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P02", "P04"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        if let Some((node, (connection, _))) = self.due.late(event) {
            return Err(format!(
                "{node}: the pull on c{} has no terminal answer yet",
                connection.0
            ));
        }
        if let What::ConnectionClosed { connection } | What::ConnectionBroken { connection } =
            event.what
        {
            self.close(connection);
        }
        let Some((node, it)) = self.nodes.of(event) else { return Ok(()) };
        match &event.what {
            What::PullReceived { connection, pull } => {
                let exchange = it.exchanges.entry(*connection).or_default();
                let copy = exchange.pulls;
                exchange.pulls += 1;
                for (request, ..) in &pull.requests {
                    exchange.answers.entry(request.clone()).or_default();
                }
                self.pulled_by.insert(*connection, node);
                if !self.closed.contains(connection) {
                    let said = if pull.timeout_ms == 0 { self.load_ms } else { pull.timeout_ms };
                    let within = self.clocks.longest(node, said) + SLACK_MS * MS;
                    self.due.set(node, (*connection, copy), event.at, within);
                }
            }
            What::DropReceived { connection, .. } | What::Unreadable { connection } => {
                it.others.insert(*connection);
            }
            What::ReplySent { connection, .. } if it.others.contains(connection) => {}
            What::ReplySent { connection, reply } => {
                let Some(exchange) = it.exchanges.get_mut(connection) else {
                    return Err(format!(
                        "{node}: answers c{}, where nothing came in",
                        connection.0
                    ));
                };
                let answered = exchange.answer(reply, !self.closed.contains(connection));
                answered
                    .map_err(|text| format!("{node}: its answer on c{} {text}", connection.0))?;
                if reply.status != Status::Continue {
                    self.due.clear(node, &(*connection, exchange.terminal - 1));
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
    use crate::oracles::made_up::{
        Story, caught, legal, plan, pull, pull_received, reply, reply_sent, stock_pull,
    };
    use Status::{Continue, Error, Finish, LayoutMiss};

    fn oracle() -> OneTerminalAnswer {
        OneTerminalAnswer::new(&plan())
    }

    fn pulled() -> Story {
        Story::new().p(pull_received(1, pull(3, true, &[("a", 7), ("b", 8)])))
    }

    fn answered(story: Story, status: Status, ok: &[&str], failed: &[&str]) -> Story {
        story.p(reply_sent(1, reply(status, ok, failed, 3)))
    }

    fn closed() -> What {
        What::ConnectionClosed { connection: ConnectionId(1) }
    }

    fn later(story: Story) -> Story {
        story.at(60_000).world(What::Healed)
    }

    #[test]
    fn p02_any_number_of_continues_and_one_finish() {
        let story = answered(pulled(), Continue, &["a"], &[]);
        legal(oracle(), later(answered(story, Finish, &[], &["b"])));
        legal(oracle(), later(answered(pulled(), Error, &[], &[])));
        legal(oracle(), later(answered(pulled(), LayoutMiss, &[], &[])));
    }

    #[test]
    fn p04_an_answer_must_come_in_time() {
        legal(oracle(), pulled().at(9_500).world(What::Healed));
        caught(oracle(), pulled().at(9_501).world(What::Healed), "no terminal answer");
        let story = Story::new().p(pull_received(1, stock_pull(true, &["a"])));
        caught(oracle(), later(answered(story, Continue, &["a"], &[])), "no terminal answer");
    }

    #[test]
    fn p12_nobody_waits_for_the_dead_the_stopped_or_on_a_closed_connection() {
        legal(oracle(), later(pulled().p(What::Killed)));
        legal(oracle(), later(pulled().d(closed())));
        legal(oracle(), later(Story::new().d(closed()).p(pull_received(1, pull(3, true, &[])))));
        let broken = What::ConnectionBroken { connection: ConnectionId(1) };
        legal(oracle(), later(pulled().d(broken)));
        let story = pulled().at(10).p(What::Stopped).at(30_000).p(What::Continued).at(30_010);
        legal(oracle(), answered(story, Finish, &["a", "b"], &[]));
    }

    #[test]
    fn p02_no_second_terminal_answer() {
        let story = answered(pulled(), Finish, &["a", "b"], &[]);
        caught(oracle(), answered(story.clone(), Finish, &[], &[]), "terminal number 2");
        caught(oracle(), answered(story.clone().d(closed()), Finish, &[], &[]), "number 2");
        caught(oracle(), answered(story, Continue, &["a"], &[]), "answers a 2 times");
    }

    #[test]
    fn p02_each_request_is_answered_once_and_only_those_named() {
        caught(oracle(), answered(pulled(), Finish, &["a"], &[]), "b was answered 0 times");
        caught(oracle(), answered(pulled(), Continue, &["a"], &["a"]), "answers a 2 times");
        caught(oracle(), answered(pulled(), Continue, &["c"], &[]), "does not name");
        caught(oracle(), answered(Story::new(), Finish, &["a"], &[]), "nothing came in");
    }

    #[test]
    fn p02_a_duplicated_pull_gets_two() {
        let twice = || pulled().p(pull_received(1, pull(3, true, &[("a", 7), ("b", 8)])));
        let story = answered(twice(), Finish, &[], &["a", "b"]);
        caught(oracle(), later(story.clone()), "no terminal answer");
        let story = answered(answered(story, Continue, &["a"], &[]), Finish, &["b"], &[]);
        legal(oracle(), later(story.clone()));
        caught(oracle(), answered(story, Finish, &[], &[]), "terminal number 3 for 2");
    }

    #[test]
    fn drops_and_unreadable_messages_are_answered_too() {
        let drop = What::DropReceived { connection: ConnectionId(1), transfers: Vec::new() };
        legal(oracle(), later(answered(Story::new().p(drop), Finish, &[], &[])));
        let unreadable = What::Unreadable { connection: ConnectionId(1) };
        legal(oracle(), later(answered(Story::new().p(unreadable), Error, &[], &[])));
    }
}
