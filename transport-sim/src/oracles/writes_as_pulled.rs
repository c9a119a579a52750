//! P writes only what was pulled: to that session, under that grant and generation.

use super::Oracle;
use super::lives::Lives;
use crate::history::{Event, What};
use kvbaton_core::ids::{Generation, Grant, SessionAddress};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
struct Node {
    granted: BTreeMap<Grant, BTreeSet<(SessionAddress, Option<Generation>)>>,
    stock: BTreeSet<SessionAddress>,
}

/// Remembers who pulled what.
#[derive(Debug, Default)]
pub struct WritesAsPulled {
    nodes: Lives<Node>,
}

impl Oracle for WritesAsPulled {
    fn name(&self) -> &'static str {
        "writes-as-pulled"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["G01", "S04", "P02"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, it)) = self.nodes.of(event) else { return Ok(()) };
        match &event.what {
            What::PullReceived { pull, .. } => {
                for (.., grant) in &pull.requests {
                    let to = pull.session.clone();
                    match grant {
                        Some(grant) => {
                            let pulls = it.granted.entry(*grant).or_default();
                            pulls.insert((to, pull.generation));
                        }
                        None => drop(it.stock.insert(to)),
                    }
                }
            }
            What::WriteStarted { write, to, grant: Some(grant), generation, .. } => {
                let pulls = it.granted.get(grant);
                if !pulls.is_some_and(|them| them.contains(&(to.clone(), *generation))) {
                    return Err(format!(
                        "{node}: {write} to {to} under {grant} and {generation:?}, which no pull \
                         names together"
                    ));
                }
            }
            What::WriteStarted { write, to, grant: None, generation, .. }
                if generation.is_some() || !it.stock.contains(to) =>
            {
                return Err(format!("{node}: {write} without a grant to {to}, no stock peer"));
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
        Story, caught, legal, pull, pull_received, session, stock_pull, write, write_name,
    };

    fn pulled() -> Story {
        Story::new().p(pull_received(1, pull(3, true, &[("a", 7)])))
    }

    fn other(grant: Option<u64>, host: &str, generation: Option<u64>) -> What {
        What::WriteStarted {
            write: write_name(1),
            to: session(host),
            grant: grant.map(Grant),
            generation: generation.map(Generation),
            reads: Vec::new(),
            bytes: 0,
        }
    }

    #[test]
    fn g01_a_write_carries_what_its_pull_said() {
        legal(WritesAsPulled::default(), pulled().p(write(1, 7, &[])));
        for what in [other(Some(8), "d", Some(2)), other(Some(7), "e", Some(2))] {
            caught(WritesAsPulled::default(), pulled().p(what), "which no pull names");
        }
    }

    #[test]
    fn s04_a_write_carries_its_pulls_generation() {
        for generation in [Some(99), None] {
            let story = pulled().p(other(Some(7), "d", generation));
            caught(WritesAsPulled::default(), story, "which no pull names");
        }
    }

    #[test]
    fn g03_only_stock_peers_are_written_to_without_a_grant() {
        let story = Story::new().p(pull_received(1, stock_pull(true, &["a"])));
        legal(WritesAsPulled::default(), story.clone().p(other(None, "d", None)));
        caught(WritesAsPulled::default(), story.clone().p(other(None, "e", None)), "no stock peer");
        caught(WritesAsPulled::default(), story.p(other(None, "d", Some(2))), "no stock peer");
        caught(WritesAsPulled::default(), pulled().p(other(None, "d", None)), "no stock peer");
    }
}
