//! P says that a request was sent only after its write has ended well.

use super::Oracle;
use super::lives::Lives;
use crate::history::{ConnectionId, Event, What, WriteEnd, WriteName};
use kvbaton_core::ids::{Grant, RequestId};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Written,
    Failed,
}

#[derive(Debug, Default)]
struct Node {
    grants: BTreeMap<ConnectionId, BTreeMap<RequestId, Grant>>,
    writes: BTreeMap<WriteName, Grant>,
    last: BTreeMap<Grant, State>,
}

/// Remembers the last write under each grant. Ranks with nothing to copy write nothing.
#[derive(Debug, Default)]
pub struct OkMeansWritten {
    nodes: Lives<Node>,
}

impl Oracle for OkMeansWritten {
    fn name(&self) -> &'static str {
        "ok-means-written"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P02", "P07", "P08"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, it)) = self.nodes.of(event) else { return Ok(()) };
        match &event.what {
            What::PullReceived { connection, pull } => {
                let grants = it.grants.entry(*connection).or_default();
                for (request, _, _, grant) in &pull.requests {
                    if let Some(grant) = grant {
                        grants.insert(request.clone(), *grant);
                    }
                }
            }
            What::WriteStarted { write, grant: Some(grant), .. } => {
                it.writes.insert(*write, *grant);
                it.last.insert(*grant, State::Running);
            }
            What::WriteEnded { write, how } => {
                let Some(grant) = it.writes.remove(write) else { return Ok(()) };
                let written = *how == WriteEnd::Written;
                it.last.insert(grant, if written { State::Written } else { State::Failed });
            }
            What::ReplySent { connection, reply } => {
                let Some(grants) = it.grants.get(connection) else { return Ok(()) };
                for request in &reply.ok {
                    let state = grants.get(request).and_then(|grant| it.last.get(grant));
                    let text = match state {
                        Some(State::Running) => "is still being written",
                        Some(State::Failed) => "could not be written",
                        Some(State::Written) | None => continue,
                    };
                    return Err(format!("{node}: answers that {request} was sent, but it {text}"));
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
        write_failed,
    };
    use kvbaton_core::wire::Status;

    fn pulled() -> Story {
        Story::new().p(pull_received(1, pull(3, true, &[("a", 7), ("b", 8)])))
    }

    fn ok(story: Story, request: &str) -> Story {
        story.p(reply_sent(1, reply(Status::Continue, &[request], &[], 0)))
    }

    #[test]
    fn p08_an_answer_follows_the_write() {
        let story = pulled().p(write(1, 7, &[])).p(write_ended(1, WriteEnd::Written));
        legal(OkMeansWritten::default(), ok(ok(story, "a"), "b"));
    }

    #[test]
    fn p08_what_was_not_written_is_not_sent() {
        let running = pulled().p(write(1, 7, &[]));
        caught(OkMeansWritten::default(), ok(running.clone(), "a"), "is still being written");
        let failed = running.p(write_ended(1, write_failed(true)));
        caught(OkMeansWritten::default(), ok(failed.clone(), "a"), "could not be written");
        let told = reply_sent(1, reply(Status::Continue, &[], &["a"], 0));
        legal(OkMeansWritten::default(), ok(failed.p(told), "b"));
    }
}
