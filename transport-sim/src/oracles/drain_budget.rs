//! In mode `wait` D pulls what P holds, as long as the drain budget lasts.

use super::Oracle;
use super::due::{Clocks, MS};
use super::lives::Lives;
use super::open::Open;
use crate::history::{Event, Lane, SendFact, What};
use crate::plan::Plan;
use kvbaton_core::ids::TransferId;
use kvbaton_core::lifecycle::engine::{Operation, PauseMode, RankOrder, SleepLevel};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
struct Node {
    holds: Open<()>,
    /// Transfers that D has pulled or that P's engine has begun, and that are not held yet.
    coming: BTreeSet<TransferId>,
    /// Those of them that were given up: held, they end at once.
    given_up: BTreeSet<TransferId>,
    /// Held when transfers were given up too early, after so many nanoseconds.
    suspects: BTreeMap<TransferId, u64>,
    /// Since when it waits for D.
    waits: Option<u64>,
}

/// Looks for holds when P gives its transfers up.
#[derive(Debug)]
pub struct DrainBudget {
    budget_ms: u64,
    clocks: Clocks,
    nodes: Lives<Node>,
    /// Operations that run: whether they give D time.
    open: BTreeMap<u64, (u16, Gives)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gives {
    Time,
    /// It gives transfers up, and none.
    None,
    /// It gives none up.
    Nothing,
}

impl DrainBudget {
    /// For runs of `plan`.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self {
            budget_ms: plan.bounds.pulls_ms,
            clocks: Clocks::of(plan),
            nodes: Lives::default(),
            open: BTreeMap::new(),
        }
    }

    fn gives(what: &Operation) -> Gives {
        let of = |mode| if mode == PauseMode::Wait { Gives::Time } else { Gives::None };
        match *what {
            Operation::Pause { mode, clear: true }
            | Operation::ReleaseKv(mode)
            | Operation::UpdateWeights { mode, .. } => of(mode),
            Operation::Sleep { level, mode } if level != SleepLevel::Compute => of(mode),
            Operation::AbortTransfers | Operation::ResetPrefixCache { running: true } => {
                Gives::None
            }
            _ => Gives::Nothing,
        }
    }

    /// Whether the only operations that can give transfers up are in mode `wait`.
    fn must_wait(&self, engine: u16) -> bool {
        let of: Vec<Gives> =
            self.open.values().filter(|it| it.0 == engine).map(|it| it.1).collect();
        of.contains(&Gives::Time) && !of.contains(&Gives::None)
    }
}

impl Oracle for DrainBudget {
    fn name(&self) -> &'static str {
        "drain-budget"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["R03"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        match (&event.what, event.lane) {
            (What::OperationAsked { id, what }, Lane::Engine(engine)) => {
                self.open.insert(*id, (engine, Self::gives(what)));
            }
            (What::OperationEnded { id, .. }, _) => drop(self.open.remove(id)),
            _ => {}
        }
        let must_wait = match (&event.what, event.lane) {
            (What::RankTold { order: RankOrder::AbortTransfers, .. }, Lane::Node(node)) => {
                self.must_wait(node.engine)
            }
            _ => false,
        };
        let Some((node, it)) = self.nodes.of(event) else { return Ok(()) };
        match &event.what {
            What::PrefillStarted { transfer, .. } => drop(it.coming.insert(transfer.clone())),
            What::PullReceived { pull, .. } => {
                it.coming.extend(pull.requests.iter().map(|it| it.1.clone()));
            }
            What::Held { request, transfer, .. } => {
                it.coming.remove(transfer);
                it.holds.ask(request, transfer, ());
            }
            What::HoldRefused { request, transfer, .. } => drop(it.holds.refuse(request, transfer)),
            What::SendEnded { request, transfer, ended } => {
                it.holds.end(request, transfer);
                let Some(waited) = it.suspects.remove(transfer) else { return Ok(()) };
                // It may have ended before, and its engine hears of it late.
                if *ended == SendFact::Failed("Reset".into()) {
                    return Err(format!(
                        "{node}: gives {request} up after {} ms; D has {} ms to pull it",
                        waited / MS,
                        self.budget_ms
                    ));
                }
            }
            What::RankTold { order: RankOrder::AwaitHolds, .. } => it.waits = Some(event.at),
            What::RankTold { order: RankOrder::AbortTransfers, .. } => {
                let since = it.waits.take();
                it.suspects.clear();
                let waited = since.map_or(0, |since| event.at - since);
                // A millisecond is how exact timers are.
                if must_wait && waited + MS < self.clocks.shortest(node, self.budget_ms) {
                    let held = it.holds.iter().map(|(names, ())| &names.1);
                    let waits = held.filter(|transfer| !it.given_up.contains(*transfer));
                    it.suspects = waits.map(|transfer| (transfer.clone(), waited)).collect();
                }
                it.given_up.append(&mut it.coming);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{Story, asked, caught, held, legal, plan, send_ended};

    fn oracle() -> DrainBudget {
        DrainBudget::new(&plan())
    }

    fn told(order: RankOrder) -> What {
        What::RankTold { number: 1, order }
    }

    fn pausing(mode: PauseMode) -> Story {
        let story = Story::new().p(held("a", &[])).at(10);
        let story = story.engine(0, asked(1, Operation::Pause { mode, clear: true }));
        story.p(told(RankOrder::AwaitHolds))
    }

    #[test]
    fn r03_d_has_its_time_in_mode_wait() {
        let abort = |story: Story| {
            let story = story.p(told(RankOrder::AbortTransfers));
            story.p(send_ended("a", Err("Reset")))
        };
        legal(oracle(), abort(pausing(PauseMode::Wait).at(2_010)));
        let early = pausing(PauseMode::Wait).at(1_900);
        caught(oracle(), abort(early.clone()), "gives a up after 1890 ms");
        let late = early.clone().p(told(RankOrder::AbortTransfers)).p(send_ended("a", Ok(())));
        legal(oracle(), late);
        legal(oracle(), early.p(send_ended("a", Ok(()))).p(told(RankOrder::AbortTransfers)));
        legal(oracle(), abort(pausing(PauseMode::Keep).at(11)));
        let pause = Operation::Pause { mode: PauseMode::Wait, clear: true };
        let never = Story::new().p(held("a", &[])).engine(0, asked(1, pause));
        caught(oracle(), abort(never), "after 0 ms");
    }

    #[test]
    fn r03_whoever_gives_everything_up_meanwhile_waits_for_nobody() {
        let both = pausing(PauseMode::Wait).engine(0, asked(2, Operation::AbortTransfers));
        let both = both.p(told(RankOrder::AbortTransfers)).p(send_ended("a", Err("Reset")));
        legal(oracle(), both);
    }
}
