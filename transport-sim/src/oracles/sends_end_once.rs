//! Every held request's blocks come back exactly once, in bounded time.

use super::Oracle;
use super::due::{Clocks, Due, MS};
use super::lives::Lives;
use super::open::{Names, Open};
use super::ranges::shared;
use crate::history::{Event, What};
use crate::plan::Plan;
use kvbaton_core::region::MemoryRange;

const SLACK_MS: u64 = 2_000;

#[derive(Debug, Default)]
struct Node {
    next: u64,
    holds: Open<(u64, Vec<MemoryRange>)>,
}

/// Counts holds and their ends. A hold that a write reads does not expire; P looks again
/// after the longest time that a write takes.
#[derive(Debug)]
pub struct SendsEndOnce {
    clocks: Clocks,
    hold_ms: u64,
    write_ms: u64,
    nodes: Lives<Node>,
    due: Due<(Names, u64)>,
}

impl SendsEndOnce {
    /// For runs of `plan`.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self {
            clocks: Clocks::of(plan),
            hold_ms: plan.bounds.hold_ms,
            write_ms: plan.bounds.write_ms,
            nodes: Lives::default(),
            due: Due::default(),
        }
    }
}

impl Oracle for SendsEndOnce {
    fn name(&self) -> &'static str {
        "sends-end-once"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P01", "P06", "P12"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        if let Some((node, ((request, transfer), _))) = self.due.late(event) {
            return Err(format!(
                "{node}: {request}'s blocks ({transfer}) did not come back in time"
            ));
        }
        let Some((node, it)) = self.nodes.of(event) else { return Ok(()) };
        let within = |ms| self.clocks.longest(node, ms) + SLACK_MS * MS;
        match &event.what {
            What::Held { request, transfer, rows, .. } => {
                it.next += 1;
                it.holds.ask(request, transfer, (it.next, rows.clone()));
                let key = ((request.clone(), transfer.clone()), it.next);
                self.due.set(node, key, event.at, within(self.hold_ms));
            }
            What::WriteStarted { reads, .. } => {
                for (names, (number, rows)) in it.holds.iter() {
                    if shared(rows, reads).is_some() {
                        let key = (names.clone(), *number);
                        self.due.extend(node, key, event.at, within(2 * self.write_ms));
                    }
                }
            }
            What::HoldRefused { request, transfer, .. } => {
                let Some((number, _)) = it.holds.refuse(request, transfer) else {
                    return Err(format!(
                        "{node}: a hold of {request} is refused that nobody asked"
                    ));
                };
                self.due.clear(node, &((request.clone(), transfer.clone()), number));
            }
            What::SendEnded { request, transfer, .. } => {
                let Some((number, _)) = it.holds.end(request, transfer) else {
                    return Err(format!(
                        "{node}: {request}'s blocks ({transfer}) come back, which are not held"
                    ));
                };
                self.due.clear(node, &((request.clone(), transfer.clone()), number));
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
        Story, caught, held, hold_refused, legal, plan, send_ended, write,
    };

    fn oracle() -> SendsEndOnce {
        SendsEndOnce::new(&plan())
    }

    fn hold() -> Story {
        Story::new().at(1_000).p(held("a", &[(0, 64)]))
    }

    fn later(story: Story) -> Story {
        story.at(90_000).world(What::Healed)
    }

    #[test]
    fn p01_blocks_come_back_once() {
        let story = hold().p(send_ended("a", Ok(())));
        legal(oracle(), later(story.clone()));
        legal(oracle(), later(story.clone().p(held("a", &[])).p(send_ended("a", Ok(())))));
        caught(oracle(), story.p(send_ended("a", Ok(()))), "which are not held");
        caught(oracle(), Story::new().p(send_ended("a", Err("Expired"))), "which are not held");
    }

    #[test]
    fn p06_blocks_come_back_in_time() {
        legal(oracle(), hold().at(23_000).p(send_ended("a", Err("Expired"))));
        caught(oracle(), hold().at(23_001).p(send_ended("a", Err("Expired"))), "in time");
        caught(oracle(), later(hold()), "a's blocks (a) did not come back");
    }

    #[test]
    fn p06_a_write_that_reads_them_gives_more_time() {
        let story = hold().at(20_900).p(write(1, 7, &[(0, 64)]));
        legal(oracle(), story.clone().at(28_900).p(send_ended("a", Ok(()))));
        caught(oracle(), later(story), "in time");
        let story = hold().at(20_900).p(held("b", &[(64, 64)])).p(write(1, 7, &[(64, 64)]));
        caught(oracle(), story.at(28_900).p(send_ended("a", Ok(()))), "in time");
    }

    #[test]
    fn p12_the_dead_owe_nothing_and_stopped_time_does_not_count() {
        legal(oracle(), later(hold().p(What::Killed)));
        let story = hold().p(What::Stopped).at(60_000).p(What::Continued);
        legal(oracle(), story.at(80_000).p(send_ended("a", Err("Expired"))));
    }

    #[test]
    fn p11_a_refused_hold_does_not_end() {
        let refused = hold_refused("a");
        let story = hold().p(held("a", &[])).p(refused.clone()).p(send_ended("a", Ok(())));
        legal(oracle(), later(story.clone()));
        caught(oracle(), story.p(refused), "that nobody asked");
    }
}
