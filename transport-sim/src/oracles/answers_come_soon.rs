//! Once a request's write has ended well, P says so at once: no answer waits for another
//! request of its pull.

use super::Oracle;
use super::due::{Due, MS};
use super::lives::Lives;
use crate::history::{ConnectionId, Event, What, WriteEnd, WriteName};
use kvbaton_core::ids::{Grant, RequestId};
use std::collections::{BTreeMap, BTreeSet};

const BOUND_MS: u64 = 200;

type Asked = (ConnectionId, RequestId);

#[derive(Debug, Default)]
struct Node {
    by_grant: BTreeMap<Grant, Vec<Asked>>,
    writes: BTreeMap<WriteName, Grant>,
    answered: BTreeSet<Asked>,
}

/// Times P's answers after their writes.
#[derive(Debug, Default)]
pub struct AnswersComeSoon {
    nodes: Lives<Node>,
    due: Due<Asked>,
    closed: BTreeSet<ConnectionId>,
}

impl Oracle for AnswersComeSoon {
    fn name(&self) -> &'static str {
        "answers-come-soon"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P02"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        if let Some((node, (connection, request))) = self.due.late(event)
            && !self.closed.contains(&connection)
        {
            return Err(format!("{node}: {request} was written, and D has not been told"));
        }
        if let What::ConnectionClosed { connection } | What::ConnectionBroken { connection } =
            event.what
        {
            self.closed.insert(connection);
        }
        let Some((node, it)) = self.nodes.of(event) else { return Ok(()) };
        match &event.what {
            What::PullReceived { connection, pull } => {
                for (request, _, _, grant) in &pull.requests {
                    let asked = (*connection, request.clone());
                    it.by_grant.entry(grant.unwrap_or_default()).or_default().push(asked);
                }
            }
            What::WriteStarted { write, grant: Some(grant), .. } => {
                it.writes.insert(*write, *grant);
            }
            What::WriteEnded { write, how: WriteEnd::Written } => {
                let Some(grant) = it.writes.get(write) else { return Ok(()) };
                for asked in it.by_grant.get(grant).into_iter().flatten() {
                    if !it.answered.contains(asked) {
                        self.due.set(node, asked.clone(), event.at, BOUND_MS * MS);
                    }
                }
            }
            What::ReplySent { connection, reply } => {
                for request in reply.ok.iter().chain(&reply.failed) {
                    let asked = (*connection, request.clone());
                    self.due.clear(node, &asked);
                    it.answered.insert(asked);
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
        Story, caught, legal, pull, pull_received, reply, reply_sent, write, write_ended,
    };
    use kvbaton_core::wire::Status;

    fn written() -> Story {
        let story = Story::new().p(pull_received(1, pull(3, true, &[("a", 7), ("b", 8)])));
        story.p(write(1, 7, &[(0, 8)])).at(10).p(write_ended(1, WriteEnd::Written))
    }

    fn told() -> What {
        reply_sent(1, reply(Status::Continue, &["a"], &[], 0))
    }

    fn later(story: Story) -> Story {
        story.at(9_000).world(What::Healed)
    }

    #[test]
    fn p02_what_is_written_is_told_at_once() {
        legal(AnswersComeSoon::default(), later(written().at(210).p(told())));
        caught(AnswersComeSoon::default(), written().at(211).p(told()), "a was written");
        caught(AnswersComeSoon::default(), later(written()), "a was written");
    }

    #[test]
    fn p02_nobody_waits_on_a_closed_connection() {
        let closed = written().d(What::ConnectionClosed { connection: ConnectionId(1) });
        legal(AnswersComeSoon::default(), later(closed));
        legal(AnswersComeSoon::default(), later(written().p(What::Killed)));
        let before = Story::new().p(pull_received(1, pull(3, true, &[("a", 7)]))).p(told());
        let before = before.p(write(1, 7, &[])).p(write_ended(1, WriteEnd::Written));
        legal(AnswersComeSoon::default(), later(before));
    }
}
