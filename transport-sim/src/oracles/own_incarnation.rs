//! A run of P tells one incarnation of its own, and never writes for a pull meant for another.

use super::Oracle;
use super::due::MS;
use super::lives::Lives;
use crate::history::{ConnectionId, Event, NodeId, What, WriteName};
use kvbaton_core::ids::{Grant, Incarnation};
use std::collections::BTreeMap;

/// How long P may think before it tells D that it is another run, in nanoseconds.
const AT_ONCE: u64 = 200 * MS;

#[derive(Debug, Default)]
struct Node {
    own: Option<Incarnation>,
    /// Whom the pulls of a grant mean.
    meant: BTreeMap<Grant, Vec<Incarnation>>,
    /// Writes whose pulls mean one of these, from before the own was known.
    wrote: Vec<(WriteName, Vec<Incarnation>)>,
    /// Pulls by connection: whom they mean, and when they came.
    pulls: BTreeMap<ConnectionId, (Incarnation, u64)>,
    continued: u64,
}

/// Remembers whom pulls mean.
#[derive(Debug, Default)]
pub struct OwnIncarnation {
    nodes: Lives<Node>,
    owners: BTreeMap<Incarnation, NodeId>,
}

fn check(write: WriteName, own: Incarnation, meant: &[Incarnation]) -> Result<(), String> {
    if meant.iter().any(|it| own.is_meant(*it)) {
        return Ok(());
    }
    Err(format!("{write} serves a pull for runs {meant:?} of P; this is {own}"))
}

impl Oracle for OwnIncarnation {
    fn name(&self) -> &'static str {
        "own-incarnation"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P12"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, it)) = self.nodes.of(event) else { return Ok(()) };
        match &event.what {
            What::Continued => it.continued = event.at,
            What::PullReceived { connection, pull } => {
                let meant = pull.incarnation.unwrap_or_default();
                it.pulls.insert(*connection, (meant, event.at));
                for grant in pull.requests.iter().filter_map(|it| it.3) {
                    it.meant.entry(grant).or_default().push(meant);
                }
            }
            What::WriteStarted { write, grant: Some(grant), .. } => {
                let Some(meant) = it.meant.get(grant) else { return Ok(()) };
                match it.own {
                    Some(own) => check(*write, own, meant)?,
                    None => it.wrote.push((*write, meant.clone())),
                }
            }
            What::ReplySent { connection, reply } => {
                let Some(told) = reply.incarnation else { return Ok(()) };
                if it.own.is_some_and(|own| own != told) {
                    return Err(format!("{node}: says it is {told}, and {:?} before", it.own));
                }
                let owner = *self.owners.entry(told).or_insert(node);
                if owner != node {
                    return Err(format!("{node}: says it is {told}, which is {owner}"));
                }
                it.own = Some(told);
                if let Some((meant, came)) = it.pulls.remove(connection)
                    && !told.is_meant(meant)
                    && event.at > came.max(it.continued) + AT_ONCE
                {
                    return Err(format!("{node}: a pull for run {meant} waited; this is {told}"));
                }
                let wrote = std::mem::take(&mut it.wrote);
                wrote.iter().try_for_each(|(write, meant)| check(*write, told, meant))?;
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
        P, Story, caught, legal, pull, pull_received, reply, reply_sent, started, write,
    };
    use kvbaton_core::wire::Status;

    fn meant(incarnation: u64) -> What {
        let mut pull = pull(3, true, &[("a", 7)]);
        pull.incarnation = Some(Incarnation(incarnation));
        pull_received(1, pull)
    }

    fn told(incarnation: u64) -> What {
        let mut reply = reply(Status::Finish, &["a"], &[], 0);
        reply.incarnation = Some(Incarnation(incarnation));
        reply_sent(1, reply)
    }

    #[test]
    fn p12_a_run_serves_its_own_pulls() {
        for incarnation in [0, 5] {
            let story = Story::new().p(meant(incarnation)).p(write(1, 7, &[])).p(told(5));
            legal(OwnIncarnation::default(), story);
        }
        let story = Story::new().p(meant(4)).p(told(5)).p(meant(5)).p(write(1, 7, &[]));
        legal(OwnIncarnation::default(), story);
    }

    #[test]
    fn p12_a_run_serves_no_other_runs_pulls() {
        let story = Story::new().p(meant(4)).p(write(1, 7, &[])).p(told(5));
        caught(OwnIncarnation::default(), story, "w1@e0.r0 serves a pull for runs");
        let story = Story::new().p(told(5)).p(meant(4)).p(write(1, 7, &[]));
        caught(OwnIncarnation::default(), story, "w1@e0.r0 serves a pull for runs");
    }

    #[test]
    fn p12_an_old_runs_pull_is_answered_at_once() {
        legal(OwnIncarnation::default(), Story::new().p(meant(4)).at(200).p(told(5)));
        let late = Story::new().p(meant(4)).at(201).p(told(5));
        caught(OwnIncarnation::default(), late, "waited");
        legal(OwnIncarnation::default(), Story::new().p(meant(5)).at(900).p(told(5)));
        let stopped = Story::new().p(meant(4)).p(What::Stopped).at(900).p(What::Continued);
        legal(OwnIncarnation::default(), stopped.p(told(5)));
    }

    #[test]
    fn p12_each_run_has_one_name_of_its_own() {
        caught(OwnIncarnation::default(), Story::new().p(told(5)).p(told(6)), "before");
        let next = NodeId { life: 1, ..P };
        let story = Story::new().p(told(5)).p(What::Killed).node(next, started(false, "p"));
        caught(OwnIncarnation::default(), story.node(next, told(5)), "which is e0.r0");
    }
}
