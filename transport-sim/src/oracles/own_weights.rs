//! P serves no pull of other weights than its own, and nothing that it began under others; D
//! takes no load that it began under others.

use super::Oracle;
use super::lives::Lives;
use crate::history::{ConnectionId, Event, LoadFact, What};
use kvbaton_core::ids::{Grant, RequestId, TransferId};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
struct Node {
    /// 0 until it was told.
    weights: u64,
    /// P: weights when each transfer's request was taken.
    started: BTreeMap<TransferId, u64>,
    /// P: D's weights, and the requests that want blocks.
    pulls: BTreeMap<ConnectionId, (u64, BTreeMap<RequestId, TransferId>)>,
    /// D: loads, and whether they went on when weights changed.
    loads: BTreeMap<RequestId, bool>,
    /// D: grants that are live, and of which load.
    grants: BTreeMap<Grant, Option<RequestId>>,
}

/// Compares the weights of a node with those of the pulls that it serves.
#[derive(Debug, Default)]
pub struct OwnWeights {
    nodes: Lives<Node>,
}

impl Oracle for OwnWeights {
    fn name(&self) -> &'static str {
        "own-weights"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["R07"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((name, node)) = self.nodes.of(event) else { return Ok(()) };
        let own = node.weights;
        match &event.what {
            What::WeightsSet { version } => {
                if own != 0 && own != *version {
                    for request in node.grants.values().flatten() {
                        node.loads.entry(request.clone()).and_modify(|it| *it = true);
                    }
                }
                node.weights = *version;
            }
            What::GrantOpened { grant, .. } => drop(node.grants.entry(*grant).or_default()),
            What::RevokeAsked { grant } => drop(node.grants.remove(grant)),
            What::PullSent { pull, .. } => {
                for (request, _, _, grant) in &pull.requests {
                    if let Some(of) = grant.and_then(|grant| node.grants.get_mut(&grant)) {
                        *of = Some(request.clone());
                    }
                }
            }
            What::PrefillStarted { transfer, .. } => {
                node.started.insert(transfer.clone(), own);
            }
            // The next of that name begins anew.
            What::SendEnded { transfer, .. } => drop(node.started.remove(transfer)),
            What::PullReceived { connection, pull } => {
                // 0: it does not say.
                if let Some(weights) = pull.weights.filter(|it| *it != 0) {
                    let wants = pull.requests.iter().filter(|it| it.2 > 0);
                    let wants = wants.map(|it| (it.0.clone(), it.1.clone())).collect();
                    node.pulls.insert(*connection, (weights, wants));
                }
            }
            What::ReplySent { connection, reply } if own != 0 => {
                let Some((weights, wants)) = node.pulls.get(connection) else { return Ok(()) };
                let served = reply.ok.iter().filter_map(|it| Some((it, wants.get(it)?)));
                for (request, transfer) in served {
                    let began = node.started.get(transfer).copied().unwrap_or(own);
                    if *weights != own || began != own {
                        return Err(format!(
                            "{name} of weights {own} serves {request} of {weights}, begun \
                             under {began}"
                        ));
                    }
                }
            }
            What::LoadAsked { request, rows, .. } if !rows.is_empty() => {
                node.loads.insert(request.clone(), false);
            }
            What::LoadEnded { request, end, .. } => {
                let went_on = node.loads.remove(request) == Some(true);
                if went_on && *end == LoadFact::Loaded {
                    return Err(format!(
                        "{name} of weights {own}: {request} counts as loaded, begun under others"
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
        Story, caught, grant, legal, load, loaded, pull, pull_received, pull_sent, reply,
        reply_sent,
    };
    use kvbaton_core::wire::Status;

    #[test]
    fn r07_a_pull_of_other_weights_is_not_served() {
        let pulled = |own| {
            let story = Story::new().p(What::WeightsSet { version: own });
            story.p(pull_received(1, pull(5, true, &[("a", 7)])))
        };
        let ok = || reply_sent(1, reply(Status::Finish, &["a"], &[], 5));
        legal(OwnWeights::default(), pulled(1).p(ok()));
        caught(OwnWeights::default(), pulled(2).p(ok()), "of weights 2 serves a of 1");
        legal(
            OwnWeights::default(),
            pulled(2).p(reply_sent(1, reply(Status::Finish, &[], &["a"], 5))),
        );
        let updated = pulled(1).p(What::WeightsSet { version: 2 });
        caught(OwnWeights::default(), updated.p(ok()), "of weights 2 serves a of 1");
    }

    #[test]
    fn r07_what_began_under_old_weights_is_not_served() {
        let started = |first: u64, second: u64| {
            let story = Story::new().p(What::WeightsSet { version: first });
            let took = What::PrefillStarted { request: "pa".into(), transfer: "a".into() };
            let story = story.p(took).p(What::WeightsSet { version: second });
            story.p(pull_received(1, pull(5, true, &[("a", 7)])))
        };
        let ok = || reply_sent(1, reply(Status::Finish, &["a"], &[], 5));
        legal(OwnWeights::default(), started(1, 1).p(ok()));
        caught(OwnWeights::default(), started(2, 1).p(ok()), "begun under 2");
    }

    #[test]
    fn r07_a_load_does_not_outlive_an_update() {
        let loads = |version| {
            let story = Story::new().d(What::WeightsSet { version: 1 }).d(load("a", &[(0, 8)]));
            let story = story.d(grant(7, &[(0, 8)], false));
            let story = story.d(pull_sent(1, pull(5, true, &[("a", 7)])));
            story.d(What::WeightsSet { version }).d(loaded("a"))
        };
        legal(OwnWeights::default(), loads(1));
        caught(OwnWeights::default(), loads(2), "a counts as loaded, begun under others");
        let revoked = Story::new().d(What::WeightsSet { version: 1 }).d(load("a", &[(0, 8)]));
        legal(OwnWeights::default(), revoked.d(What::WeightsSet { version: 2 }).d(loaded("a")));
    }
}
