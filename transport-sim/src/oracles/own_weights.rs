//! P serves no pull of other weights than its own.

use super::Oracle;
use super::lives::Lives;
use crate::history::{ConnectionId, Event, What};
use kvbaton_core::ids::RequestId;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
struct Node {
    /// 0 until it was told.
    weights: u64,
    /// D's weights, and the requests that want blocks.
    pulls: BTreeMap<ConnectionId, (u64, BTreeSet<RequestId>)>,
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
        match &event.what {
            What::WeightsSet { version } => node.weights = *version,
            What::PullReceived { connection, pull } => {
                // 0: it does not say.
                if let Some(weights) = pull.weights.filter(|it| *it != 0) {
                    let wants = pull.requests.iter().filter(|it| it.2 > 0);
                    let wants = wants.map(|it| it.0.clone()).collect();
                    node.pulls.insert(*connection, (weights, wants));
                }
            }
            What::ReplySent { connection, reply } => {
                let Some((weights, wants)) = node.pulls.get(connection) else { return Ok(()) };
                let own = node.weights;
                if let Some(request) = reply.ok.iter().find(|it| wants.contains(*it))
                    && *weights != own
                    && own != 0
                {
                    return Err(format!("{name} of weights {own} serves {request} of {weights}"));
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
    use crate::oracles::made_up::{Story, caught, legal, pull, pull_received, reply, reply_sent};
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
        legal(OwnWeights::default(), pulled(2).p(reply_sent(1, reply(Status::Finish, &[], &["a"], 5))));
        let updated = pulled(1).p(What::WeightsSet { version: 2 });
        caught(OwnWeights::default(), updated.p(ok()), "of weights 2 serves a of 1");
    }
}
