//! Nothing expires or times out before its time.

use super::Oracle;
use super::due::{Clocks, MS};
use super::lives::Lives;
use super::open::Open;
use crate::history::{Event, LoadFact, SendFact, What};
use crate::plan::Plan;
use kvbaton_core::ids::TransferId;
use std::collections::BTreeMap;

const SLACK_MS: u64 = 20;

#[derive(Debug, Default)]
struct Node {
    holds: Open<u64>,
    loads: Open<u64>,
    /// When D first named a transfer: it may expire before P's engine names it.
    pulled: BTreeMap<TransferId, u64>,
}

/// Remembers when holds and loads began.
#[derive(Debug)]
pub struct NoEarlyTimeouts {
    clocks: Clocks,
    hold_ms: u64,
    load_ms: u64,
    nodes: Lives<Node>,
}

impl NoEarlyTimeouts {
    /// For runs of `plan`.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self {
            clocks: Clocks::of(plan),
            hold_ms: plan.bounds.hold_ms,
            load_ms: plan.bounds.load_ms,
            nodes: Lives::default(),
        }
    }
}

impl Oracle for NoEarlyTimeouts {
    fn name(&self) -> &'static str {
        "no-early-timeouts"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P04", "P06"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, it)) = self.nodes.of(event) else { return Ok(()) };
        let (request, since, ms) = match &event.what {
            What::Held { request, transfer, .. } => {
                it.holds.ask(request, transfer, event.at);
                return Ok(());
            }
            What::HoldRefused { request, transfer, .. } => {
                it.holds.refuse(request, transfer);
                return Ok(());
            }
            What::PullReceived { pull, .. } => {
                for (_, transfer, ..) in &pull.requests {
                    it.pulled.entry(transfer.clone()).or_insert(event.at);
                }
                return Ok(());
            }
            What::LoadAsked { request, transfer, .. } => {
                it.loads.ask(request, transfer, event.at);
                return Ok(());
            }
            What::LoadRefused { request, transfer, .. } => {
                it.loads.refuse(request, transfer);
                return Ok(());
            }
            What::SendEnded { request, transfer, ended } => {
                let Some(held) = it.holds.end(request, transfer) else { return Ok(()) };
                match ended {
                    SendFact::Failed(why) if why.eq_ignore_ascii_case("expired") => {
                        let pulled = it.pulled.get(transfer).copied().unwrap_or(held);
                        (request, held.min(pulled), self.hold_ms)
                    }
                    _ => return Ok(()),
                }
            }
            What::LoadEnded { request, transfer, end } => {
                let Some(asked) = it.loads.end(request, transfer) else { return Ok(()) };
                match end {
                    LoadFact::Failed(why) if &*why.reason == "TimedOut" => {
                        (request, asked, self.load_ms)
                    }
                    _ => return Ok(()),
                }
            }
            _ => return Ok(()),
        };
        let least = self.clocks.shortest(node, ms).saturating_sub(SLACK_MS * MS);
        if event.at - since < least {
            let after = (event.at - since) / MS;
            return Err(format!("{node}: {request} times out after {after} ms; it had {ms} ms"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{
        Story, caught, held, hold_refused, legal, load, load_failed, load_refused, plan, pull,
        pull_received, send_ended,
    };

    fn oracle() -> NoEarlyTimeouts {
        NoEarlyTimeouts::new(&plan())
    }

    #[test]
    fn p06_a_hold_lasts_its_time() {
        let story =
            |ms| Story::new().at(100).p(held("a", &[])).at(ms).p(send_ended("a", Err("Expired")));
        legal(oracle(), story(20_100));
        caught(oracle(), story(20_000), "a times out after 19900 ms; it had 20000 ms");
        let released = Story::new().p(held("a", &[])).p(send_ended("a", Err("Released")));
        legal(oracle(), released);
    }

    #[test]
    fn p06_what_only_d_had_named_may_have_expired_before_the_hold() {
        let story = |ms| {
            let story = Story::new().p(pull_received(1, pull(3, true, &[("a", 7)])));
            story.at(ms).p(held("a", &[])).p(send_ended("a", Err("Expired")))
        };
        legal(oracle(), story(20_000));
        caught(oracle(), story(19_900), "times out after 19900 ms");
    }

    #[test]
    fn p04_a_load_lasts_its_time() {
        let story = |ms, reason| {
            let story = Story::new().at(100).d(load("a", &[])).at(ms);
            story.d(load_failed("a", reason, "request a: late"))
        };
        legal(oracle(), story(8_100, "TimedOut"));
        caught(oracle(), story(8_000, "TimedOut"), "a times out after 7900 ms");
        legal(oracle(), story(8_000, "Prefill(TimedOut)"));
    }

    #[test]
    fn a_fast_clock_is_early() {
        let mut plan = plan();
        plan.fleet.engines[1].drift_ppm = 50_000;
        let story = Story::new().d(load("a", &[])).at(7_620);
        legal(
            NoEarlyTimeouts::new(&plan),
            story.d(load_failed("a", "TimedOut", "request a: late")),
        );
    }

    #[test]
    fn what_was_refused_began_nothing() {
        let story = Story::new().p(held("a", &[])).p(hold_refused("a")).at(15_000);
        let story = story.p(held("a", &[])).at(20_000).p(send_ended("a", Err("Expired")));
        caught(oracle(), story, "after 5000 ms");
        let story = Story::new().d(load("a", &[])).d(load_refused("a")).at(5_000);
        let story = story.d(load("a", &[])).at(8_000);
        let story = story.d(load_failed("a", "TimedOut", "request a: late"));
        caught(oracle(), story, "after 3000 ms");
    }
}
