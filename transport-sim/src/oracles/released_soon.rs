//! Blocks that P's engine wants back come as soon as no write reads them.

use super::Oracle;
use super::due::{Clocks, Due, MS};
use super::lives::Lives;
use super::open::{Names, Open};
use crate::history::{Event, What};
use crate::plan::Plan;

const SLACK_MS: u64 = 1_000;

/// Times releases of held requests.
#[derive(Debug)]
pub struct ReleasedSoon {
    clocks: Clocks,
    write_ms: u64,
    holds: Lives<Open<()>>,
    due: Due<Names>,
}

impl ReleasedSoon {
    /// For runs of `plan`.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self {
            clocks: Clocks::of(plan),
            write_ms: plan.bounds.write_ms,
            holds: Lives::default(),
            due: Due::default(),
        }
    }
}

impl Oracle for ReleasedSoon {
    fn name(&self) -> &'static str {
        "released-soon"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P01", "P05", "R03"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        if let Some((node, (request, _))) = self.due.late(event) {
            return Err(format!("{node}: {request} was released, its blocks have not come back"));
        }
        let Some((node, holds)) = self.holds.of(event) else { return Ok(()) };
        match &event.what {
            What::Held { request, transfer, .. } => holds.ask(request, transfer, ()),
            What::ReleaseAsked { transfer } => {
                let within = self.clocks.longest(node, self.write_ms) + SLACK_MS * MS;
                for (names, ()) in holds.iter().filter(|((_, of), ())| of == transfer) {
                    self.due.set(node, names.clone(), event.at, within);
                }
            }
            What::HoldRefused { request, transfer, .. } => {
                holds.refuse(request, transfer);
                let names = (request.clone(), transfer.clone());
                if holds.get_mut(request, transfer).is_none() {
                    self.due.clear(node, &names);
                }
            }
            What::SendEnded { request, transfer, .. } => {
                holds.end(request, transfer);
                self.due.clear(node, &(request.clone(), transfer.clone()));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{Story, caught, held, hold_refused, legal, plan, send_ended};

    fn oracle() -> ReleasedSoon {
        ReleasedSoon::new(&plan())
    }

    fn asked() -> What {
        What::ReleaseAsked { transfer: "a".into() }
    }

    fn released() -> Story {
        Story::new().at(100).p(held("a", &[])).p(asked())
    }

    fn later(story: Story) -> Story {
        story.at(90_000).world(What::Healed)
    }

    #[test]
    fn p01_released_blocks_come_back() {
        let ended = || send_ended("a", Err("Released"));
        legal(oracle(), later(released().at(4_100).p(ended())));
        caught(oracle(), released().at(4_101).p(ended()), "a was released");
        caught(oracle(), later(released()), "a was released");
        legal(oracle(), later(released().p(What::Killed)));
    }

    #[test]
    fn p13_releasing_what_is_not_held_is_fine() {
        legal(oracle(), later(Story::new().p(asked())));
        let story = Story::new().p(held("a", &[])).p(send_ended("a", Ok(()))).p(asked());
        legal(oracle(), later(story));
        let other = What::ReleaseAsked { transfer: "b".into() };
        legal(oracle(), later(Story::new().p(held("a", &[])).p(other)));
    }

    #[test]
    fn p11_a_refused_hold_owes_nothing() {
        let refused = hold_refused("a");
        legal(oracle(), later(released().p(refused)));
    }
}
