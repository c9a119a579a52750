//! No write starts after its pull's deadline.

use super::Oracle;
use super::due::{Clocks, MS};
use super::lives::Lives;
use crate::history::{Event, What};
use crate::plan::Plan;
use kvbaton_core::ids::Grant;
use std::collections::BTreeMap;

/// A pull that came this shortly before the process was stopped may have been read after.
const UNREAD_MS: u64 = 10;
/// From the decision to the event.
const SLACK_MS: u64 = 10;

#[derive(Debug)]
struct Pulled {
    at: u64,
    timeout_ms: u64,
}

#[derive(Debug, Default)]
struct Node {
    pulls: BTreeMap<Grant, Pulled>,
    stopped: Option<u64>,
}

/// Remembers when each grant's pull came, and how long D waits.
#[derive(Debug)]
pub struct NoLateStart {
    clocks: Clocks,
    nodes: Lives<Node>,
}

impl NoLateStart {
    /// For runs of `plan`.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self { clocks: Clocks::of(plan), nodes: Lives::default() }
    }
}

impl Oracle for NoLateStart {
    fn name(&self) -> &'static str {
        "no-late-start"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P04"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, it)) = self.nodes.of(event) else { return Ok(()) };
        match &event.what {
            What::Stopped => {
                it.stopped.get_or_insert(event.at);
            }
            What::Continued => {
                let stopped = it.stopped.take().unwrap_or(event.at);
                for pull in it.pulls.values_mut() {
                    if pull.at + UNREAD_MS * MS >= stopped {
                        pull.at = event.at;
                    }
                }
            }
            What::PullReceived { pull, .. } if pull.timeout_ms > 0 => {
                for grant in pull.requests.iter().filter_map(|it| it.3) {
                    let pulled = Pulled { at: event.at, timeout_ms: pull.timeout_ms };
                    it.pulls.insert(grant, pulled);
                }
            }
            What::WriteStarted { write, grant: Some(grant), .. } => {
                let Some(pull) = it.pulls.get(grant) else { return Ok(()) };
                let within = self.clocks.longest(node, pull.timeout_ms + SLACK_MS);
                if event.at > pull.at.saturating_add(within) {
                    return Err(format!(
                        "{node}: {write} starts {} ms after its pull, D waits for {} ms",
                        (event.at - pull.at) / MS,
                        pull.timeout_ms
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
    use crate::oracles::made_up::{Story, caught, legal, plan, pull, pull_received, write};

    fn oracle() -> NoLateStart {
        NoLateStart::new(&plan())
    }

    fn pulled() -> Story {
        Story::new().at(100).p(pull_received(1, pull(3, true, &[("a", 7)])))
    }

    #[test]
    fn p04_a_write_starts_while_d_waits() {
        legal(oracle(), pulled().at(8_000).p(write(1, 7, &[])));
        caught(oracle(), pulled().at(8_111).p(write(1, 7, &[])), "8011 ms after its pull");
    }

    #[test]
    fn p04_the_latest_pull_counts() {
        let story = pulled().at(5_000).p(pull_received(1, pull(3, true, &[("a", 7)])));
        legal(oracle(), story.at(12_000).p(write(1, 7, &[])));
    }

    #[test]
    fn p04_a_process_that_was_stopped_looks_at_the_time_first() {
        let stop = |at| pulled().at(at).p(What::Stopped).at(20_000).p(What::Continued);
        caught(oracle(), stop(1_000).p(write(1, 7, &[])), "ms after its pull");
        legal(oracle(), stop(105).at(27_000).p(write(1, 7, &[])));
        caught(oracle(), stop(105).at(28_111).p(write(1, 7, &[])), "ms after its pull");
    }
}
