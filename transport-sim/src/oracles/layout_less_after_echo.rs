//! D leaves the layout out only for an address that has echoed its current layout id.

use super::Oracle;
use super::lives::Lives;
use crate::history::{ConnectionId, Event, What};
use kvbaton_core::ids::{LayoutId, RequestId};
use kvbaton_core::wire::Status;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Remembers what each address has echoed, to each D: a late echo of an older id takes
/// nothing back.
#[derive(Debug, Default)]
pub struct LayoutLessAfterEcho {
    known: Lives<Known>,
}

/// What one D knows.
#[derive(Debug, Default)]
struct Known {
    echoes: BTreeMap<Arc<str>, BTreeSet<LayoutId>>,
    /// Loads that go on, and requests of each connection: a miss of a pull that nobody waits
    /// for need not be heeded.
    loading: BTreeSet<RequestId>,
    pulls: BTreeMap<ConnectionId, Vec<RequestId>>,
}

impl Known {
    fn is_waited_for(&self, connection: ConnectionId) -> bool {
        let requests = self.pulls.get(&connection);
        requests.into_iter().flatten().any(|request| self.loading.contains(request))
    }
}

impl Oracle for LayoutLessAfterEcho {
    fn name(&self) -> &'static str {
        "layout-less-after-echo"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["L04", "L05", "L07", "L09", "L10"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, known)) = self.known.of(event) else { return Ok(()) };
        match &event.what {
            What::Registered { .. } => known.echoes.clear(),
            What::LoadAsked { request, .. } => drop(known.loading.insert(request.clone())),
            What::LoadDropped { request } | What::LoadEnded { request, .. } => {
                known.loading.remove(request);
            }
            What::ConnectionClosed { connection } | What::ConnectionBroken { connection } => {
                known.pulls.remove(connection);
            }
            What::ReplyReceived { connection, from, reply } => {
                if reply.status != Status::LayoutMiss {
                    if !reply.layout_id.is_none() {
                        known.echoes.entry(from.clone()).or_default().insert(reply.layout_id);
                    }
                } else if known.is_waited_for(*connection) {
                    known.echoes.remove(from);
                }
                if reply.status != Status::Continue {
                    known.pulls.remove(connection);
                }
            }
            What::PullSent { to, pull, connection } => {
                let echoed = known.echoes.get(to).is_some_and(|it| it.contains(&pull.layout_id));
                if !pull.with_layout && !echoed {
                    return Err(format!(
                        "{node}: a pull to {to} goes without layout {}, which {to} has not \
                         echoed since the last miss or registration",
                        pull.layout_id
                    ));
                }
                let requests = pull.requests.iter().map(|(request, ..)| request.clone());
                known.pulls.insert(*connection, requests.collect());
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
        OF_D, Story, caught, legal, load, pull, pull_sent, reply, reply_received,
    };

    fn echoed(layout: u64) -> Story {
        let story = Story::new().d(pull_sent(1, pull(3, true, &[("a", 7)])));
        story.d(reply_received(1, reply(Status::Finish, &["a"], &[], layout)))
    }

    fn without(story: Story) -> Story {
        story.d(pull_sent(2, pull(3, false, &[("b", 8)])))
    }

    const WORDS: &str = "goes without layout";

    #[test]
    fn l04_the_layout_is_left_out_after_its_echo() {
        legal(LayoutLessAfterEcho::default(), without(echoed(3)));
        let old = echoed(3).d(reply_received(3, reply(Status::Continue, &[], &[], 0)));
        legal(LayoutLessAfterEcho::default(), without(old));
    }

    #[test]
    fn l04_a_finish_alone_proves_nothing() {
        caught(LayoutLessAfterEcho::default(), without(echoed(0)), WORDS);
        caught(LayoutLessAfterEcho::default(), without(Story::new()), WORDS);
    }

    #[test]
    fn l10_an_older_ids_echo_does_not_count() {
        caught(LayoutLessAfterEcho::default(), without(echoed(5)), WORDS);
        let late = echoed(3).d(reply_received(3, reply(Status::Finish, &[], &[], 5)));
        legal(LayoutLessAfterEcho::default(), without(late));
    }

    #[test]
    fn l05_l09_a_miss_or_a_registration_undoes_it() {
        let asked = echoed(3).d(load("b", &[])).d(pull_sent(3, pull(3, false, &[("b", 8)])));
        let missed = asked.d(reply_received(3, reply(Status::LayoutMiss, &[], &[], 0)));
        caught(LayoutLessAfterEcho::default(), without(missed), WORDS);
        let miss = || reply_received(1, reply(Status::LayoutMiss, &[], &[], 0));
        let asked = Story::new().d(load("a", &[])).d(pull_sent(1, pull(3, true, &[("a", 7)])));
        let answered = asked.d(reply_received(1, reply(Status::Finish, &["a"], &[], 3)));
        legal(LayoutLessAfterEcho::default(), without(answered.d(miss())));
        let again = echoed(3).d(What::Registered { generation: OF_D });
        caught(LayoutLessAfterEcho::default(), without(again), WORDS);
    }

    #[test]
    fn l11_an_echo_to_an_earlier_life_does_not_count() {
        use crate::oracles::made_up::{D, started};
        let next = crate::history::NodeId { life: 1, ..D };
        let story = echoed(3).d(What::Killed).node(next, started(false, "d"));
        let story = story.node(next, pull_sent(2, pull(3, false, &[("b", 8)])));
        caught(LayoutLessAfterEcho::default(), story, WORDS);
    }
}
