//! P says that a transfer was used already only to somebody who pulls it again, or where
//! another request pulls it too. Judged until a process dies: the next may pull under the
//! same names from elsewhere.

use super::Oracle;
use super::lives::Lives;
use crate::history::{ConnectionId, Event, What};
use kvbaton_core::ids::{RequestId, SessionAddress, TransferId};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
struct Node {
    /// How often each transfer was pulled, by session and request.
    pulls: BTreeMap<TransferId, BTreeMap<(SessionAddress, RequestId), u32>>,
    asked: BTreeMap<ConnectionId, (SessionAddress, Vec<(RequestId, TransferId)>)>,
}

/// Counts pulls of each transfer.
#[derive(Debug, Default)]
pub struct UsedOnce {
    nodes: Lives<Node>,
    killed: bool,
}

impl Oracle for UsedOnce {
    fn name(&self) -> &'static str {
        "used-once"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["A02", "P07", "P11"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        self.killed |= event.what == What::Killed;
        if self.killed {
            return Ok(());
        }
        let Some((node, it)) = self.nodes.of(event) else { return Ok(()) };
        match &event.what {
            What::PullReceived { connection, pull } => {
                let mut asked = Vec::with_capacity(pull.requests.len());
                for (request, transfer, ..) in &pull.requests {
                    let by = (pull.session.clone(), request.clone());
                    *it.pulls.entry(transfer.clone()).or_default().entry(by).or_default() += 1;
                    asked.push((request.clone(), transfer.clone()));
                }
                it.asked.insert(*connection, (pull.session.clone(), asked));
            }
            What::ReplySent { connection, reply } => {
                let (Some(message), Some((session, asked))) =
                    (&reply.message, it.asked.get(connection))
                else {
                    return Ok(());
                };
                for (request, transfer) in asked {
                    let said = format!("transfer {transfer} was sent already");
                    if !reply.failed.contains(request) || !message.contains(&said) {
                        continue;
                    }
                    let pulls = &it.pulls[transfer];
                    let names: BTreeSet<&RequestId> = pulls.keys().map(|(_, name)| name).collect();
                    let times = pulls.get(&(session.clone(), request.clone()));
                    if names.len() == 1 && times == Some(&1) {
                        return Err(format!(
                            "{node}: says that {transfer} was used already to {request} of \
                             {session}, which pulled it once"
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
    use crate::oracles::made_up::{
        Story, caught, legal, pull, pull_received, reply, reply_sent, session,
    };
    use kvbaton_core::wire::Status;

    fn used() -> What {
        let mut reply = reply(Status::Finish, &[], &["a"], 3);
        reply.message = Some("transfer a was sent already, or another request pulls it".into());
        reply_sent(1, reply)
    }

    #[test]
    fn a02_a_second_stage_is_not_told_that_the_first_has_used_it_up() {
        let mut of_the_first = pull(3, true, &[("a", 7)]);
        of_the_first.session = session("d1");
        let story = Story::new().p(pull_received(2, of_the_first));
        let story = story.p(pull_received(1, pull(3, true, &[("a", 8)])));
        caught(UsedOnce::default(), story.p(used()), "which pulled it once");
    }

    #[test]
    fn p11_the_next_process_is_told() {
        let mut of_the_next = pull(3, true, &[("a", 8)]);
        of_the_next.session = session("d1");
        let story = Story::new().p(pull_received(2, pull(3, true, &[("a", 7)])));
        let story = story.d(What::Killed).p(pull_received(1, of_the_next));
        legal(UsedOnce::default(), story.p(used()));
    }

    #[test]
    fn p11_who_pulls_again_is_told() {
        let again = |id| pull_received(id, pull(3, true, &[("a", 7)]));
        legal(UsedOnce::default(), Story::new().p(again(2)).p(again(1)).p(used()));
        let mut other = pull(3, true, &[("b", 9)]);
        other.requests[0].1 = "a".into();
        let story = Story::new().p(pull_received(2, other)).p(again(1));
        legal(UsedOnce::default(), story.p(used()));
    }
}
