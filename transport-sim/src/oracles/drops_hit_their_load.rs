//! A drop ends the load whose grant it names, and no other that waits for the transfer.

use super::Oracle;
use super::lives::Lives;
use crate::history::{ConnectionId, Event, What};
use kvbaton_core::ids::{Grant, RequestId, TransferId};
use kvbaton_core::wire::Status;
use std::collections::{BTreeMap, BTreeSet};

/// Core's words for a load that was dropped.
const DROPPED: &str = "was dropped by the decode engine";

type Asked = (ConnectionId, RequestId);

#[derive(Debug, Default)]
struct Node {
    /// Requests that wait for their answer, by transfer.
    open: BTreeMap<TransferId, BTreeMap<Asked, Grant>>,
    /// Of these, who saw a drop of another grant, and none of its own.
    spared: BTreeSet<Asked>,
    /// Grants that were dropped; a pull may come after its drop.
    dropped: BTreeSet<Grant>,
}

/// Remembers who waits when a drop comes in.
#[derive(Debug, Default)]
pub struct DropsHitTheirLoad {
    nodes: Lives<Node>,
}

impl Oracle for DropsHitTheirLoad {
    fn name(&self) -> &'static str {
        "drops-hit-their-load"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P09"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, it)) = self.nodes.of(event) else { return Ok(()) };
        match &event.what {
            What::PullReceived { connection, pull } => {
                for (request, transfer, _, grant) in &pull.requests {
                    let Some(grant) = grant.filter(|grant| !it.dropped.contains(grant)) else {
                        continue;
                    };
                    let asked = (*connection, request.clone());
                    it.open.entry(transfer.clone()).or_default().insert(asked, grant);
                }
            }
            What::DropReceived { transfers, .. } => {
                for (transfer, dropped) in transfers {
                    it.dropped.insert(*dropped);
                    let Some(open) = it.open.get_mut(transfer) else { continue };
                    // Whose own grant was dropped may fail as dropped from now on.
                    let spared = &mut it.spared;
                    open.retain(|asked, grant| {
                        let own = grant == dropped;
                        if own {
                            spared.remove(asked)
                        } else {
                            spared.insert(asked.clone())
                        };
                        !own
                    });
                }
            }
            What::ReplySent { connection, reply } => {
                let dropped = reply.message.as_ref().is_some_and(|it| it.contains(DROPPED));
                let mut failed = reply.failed.iter().map(|request| (*connection, request.clone()));
                let hit = failed.find(|asked| it.spared.contains(asked));
                if let (true, Some((_, request))) = (dropped, hit) {
                    return Err(format!("{node}: {request} fails as dropped; another load was"));
                }
                let over = |asked: &Asked| {
                    asked.0 == *connection
                        && (reply.status != Status::Continue
                            || reply.ok.contains(&asked.1)
                            || reply.failed.contains(&asked.1))
                };
                it.spared.retain(|asked| !over(asked));
                it.open.values_mut().for_each(|open| open.retain(|asked, _| !over(asked)));
                it.open.retain(|_, open| !open.is_empty());
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{Story, caught, legal, pull, pull_received, reply, reply_sent};

    fn story(dropped: u64, pulled_before: bool) -> Story {
        let drop = What::DropReceived {
            connection: ConnectionId(9),
            transfers: vec![("a".into(), Grant(dropped))],
        };
        let pulled = pull_received(1, pull(3, true, &[("a", 7)]));
        let story = match pulled_before {
            true => Story::new().p(pulled).p(drop),
            false => Story::new().p(drop).p(pulled),
        };
        let mut failed = reply(Status::Finish, &[], &["a"], 3);
        failed.message = Some(format!("transfer a {DROPPED}").into());
        story.p(reply_sent(1, failed))
    }

    #[test]
    fn p09_a_drop_of_an_earlier_load_ends_no_later_one() {
        caught(DropsHitTheirLoad::default(), story(6, true), "a fails as dropped");
        legal(DropsHitTheirLoad::default(), story(7, true));
        // Two readers, both dropped: the second drop says nothing new of the first.
        let both = |grants: [u64; 2]| {
            let drop = |connection, grant| What::DropReceived {
                connection: ConnectionId(connection),
                transfers: vec![("a".into(), Grant(grant))],
            };
            let pulled = |id, grant| pull_received(id, pull(3, true, &[("a", grant)]));
            let story = Story::new().p(pulled(1, 7)).p(pulled(2, 8));
            let mut failed = reply(Status::Finish, &[], &["a"], 3);
            failed.message = Some(format!("transfer a {DROPPED}").into());
            story.p(drop(8, grants[0])).p(drop(9, grants[1])).p(reply_sent(1, failed))
        };
        legal(DropsHitTheirLoad::default(), both([7, 8]));
        legal(DropsHitTheirLoad::default(), both([8, 7]));
        // The transfer was over when the pull came.
        legal(DropsHitTheirLoad::default(), story(6, false));
    }
}
