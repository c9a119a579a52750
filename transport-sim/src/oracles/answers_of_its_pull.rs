//! What P answered ends the load that was pulled, not a later one under the same name.

use super::Oracle;
use super::lives::Lives;
use crate::history::{ConnectionId, Event, LoadFact, What};
use kvbaton_core::ids::RequestId;
use std::collections::{BTreeMap, BTreeSet};

/// Connections of one load's pulls, and whether an answer on one of them named it.
#[derive(Debug, Default)]
struct Pulled {
    connections: BTreeSet<ConnectionId>,
    answered: bool,
}

/// Follows loads by name, oldest first.
#[derive(Debug, Default)]
pub struct AnswersOfItsPull {
    loads: Lives<BTreeMap<RequestId, Vec<Pulled>>>,
}

impl Oracle for AnswersOfItsPull {
    fn name(&self) -> &'static str {
        "answers-of-its-pull"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P08", "P11"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, loads)) = self.loads.of(event) else { return Ok(()) };
        match &event.what {
            What::LoadAsked { request, .. } => {
                loads.entry(request.clone()).or_default().push(Pulled::default());
            }
            What::LoadRefused { request, .. } => {
                loads.entry(request.clone()).or_default().pop();
            }
            What::PullSent { connection, pull, .. } => {
                // Of a load that is about to be refused nothing is pulled; it is forgotten then.
                for (request, ..) in pull.requests.iter().filter(|it| it.2 > 0) {
                    for load in loads.get_mut(request).into_iter().flatten() {
                        load.connections.insert(*connection);
                    }
                }
            }
            What::ReplyReceived { connection, reply, .. } => {
                for request in reply.ok.iter().chain(&reply.failed) {
                    for load in loads.get_mut(request).into_iter().flatten() {
                        load.answered |= load.connections.contains(connection);
                    }
                }
            }
            What::LoadEnded { request, end, .. } => {
                let Some(of_name) = loads.get_mut(request).filter(|it| !it.is_empty()) else {
                    return Ok(());
                };
                let load = of_name.remove(0);
                let by_answer = match end {
                    LoadFact::Loaded => true,
                    LoadFact::Failed(why) => why.reason.starts_with("Prefill("),
                    LoadFact::Dropped => false,
                };
                if by_answer && !load.connections.is_empty() && !load.answered {
                    return Err(format!(
                        "{node}: {request} ends by an answer, and none of its pulls had one"
                    ));
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
        Story, caught, legal, load, load_ended, load_refused, loaded, pull, pull_sent, reply,
        reply_received,
    };
    use kvbaton_core::wire::Status;

    fn pulled(connection: u64) -> What {
        pull_sent(connection, pull(3, true, &[("a", connection)]))
    }

    fn again() -> Story {
        let story = Story::new().d(load("a", &[(0, 8)])).d(pulled(1));
        let story = story.d(load_ended("a", LoadFact::Dropped));
        story.d(load("a", &[(0, 8)])).d(pulled(2))
    }

    fn answer(connection: u64) -> What {
        reply_received(connection, reply(Status::Continue, &["a"], &[], 3))
    }

    #[test]
    fn p11_an_answer_to_an_earlier_load_ends_no_later_one() {
        legal(AnswersOfItsPull::default(), again().d(answer(2)).d(loaded("a")));
        let words = "none of its pulls had one";
        caught(AnswersOfItsPull::default(), again().d(answer(1)).d(loaded("a")), words);
        let ended = load_ended("a", LoadFact::Dropped);
        legal(AnswersOfItsPull::default(), again().d(answer(1)).d(ended));
    }

    #[test]
    fn p11_what_was_refused_or_pulled_nothing_is_not_judged() {
        let story = Story::new().d(load("a", &[(0, 8)])).d(pulled(1)).d(load("a", &[]));
        let story = story.d(load_refused("a")).d(answer(1)).d(loaded("a"));
        legal(AnswersOfItsPull::default(), story);
        legal(AnswersOfItsPull::default(), Story::new().d(load("a", &[])).d(loaded("a")));
    }
}
