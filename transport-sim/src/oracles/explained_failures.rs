//! A load that fails says what happened to whom, and something did happen, not long ago.

use super::Oracle;
use super::due::MS;
use super::lives::Lives;
use crate::history::{Event, LoadFact, What};
use crate::plan::{Plan, Quirk};

/// How long what goes wrong explains failures, in nanoseconds: longer than any bound of a
/// simulated world, and than the time between two announcements of a P.
const AFTERMATH: u64 = 60 * 1_000 * MS;

/// Remembers when anything went wrong last.
#[derive(Debug)]
pub struct ExplainedFailures {
    /// Always, for odd requests and peers that are dead for good.
    always: bool,
    /// Until the world heals, for odds.
    by_chance: bool,
    /// Faults and operations that go on.
    going_on: u32,
    last: Option<u64>,
    /// Engines may run different weights since one was updated, for as long as they like.
    updated: bool,
    ours: Lives<()>,
}

impl ExplainedFailures {
    /// For runs of `plan`. Quirks and clients that leave are causes at any time.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let odd =
            |it: &crate::plan::RequestPlan| it.quirk != Quirk::None || it.leaves_at_ms.is_some();
        Self {
            always: plan.requests.iter().any(odd) || !plan.dead_for_good().is_empty(),
            by_chance: !plan.odds.is_calm(),
            going_on: 0,
            last: None,
            updated: false,
            ours: Lives::default(),
        }
    }

    fn is_disturbed(&self, now: u64) -> bool {
        let lately = self.last.is_some_and(|last| now <= last + AFTERMATH);
        self.always || self.by_chance || self.going_on > 0 || lately
    }
}

impl Oracle for ExplainedFailures {
    fn name(&self) -> &'static str {
        "explained-failures"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P02", "P08"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        match &event.what {
            What::Happens { begins: true, .. } => self.going_on += 1,
            What::Happens { begins: false, .. } => {
                self.going_on = self.going_on.saturating_sub(1);
                self.last = Some(event.at);
            }
            What::Healed => {
                self.last = self.by_chance.then_some(event.at).or(self.last);
                self.by_chance = false;
            }
            What::WeightsUpdated { .. } => self.updated = true,
            What::SiteFired(_)
            | What::MessageLost { .. }
            | What::Disconnected { .. }
            | What::Started { .. } => self.last = Some(event.at),
            _ => {}
        }
        let Some((node, ())) = self.ours.of(event) else { return Ok(()) };
        let What::LoadEnded { request, transfer, end: LoadFact::Failed(why) } = &event.what else {
            return Ok(());
        };
        let named = [request.as_str(), transfer.as_str()].iter().any(|it| why.message.contains(it));
        if why.reason.is_empty() || !named {
            return Err(format!(
                "{node}: the failure of {request} ({}) names neither it nor its transfer: {}",
                why.reason, why.message
            ));
        }
        // Too much work for the bounds is a cause that needs no fault.
        let overload =
            ["TimedOut", "Overloaded", "Expired"].iter().any(|it| why.reason.contains(it));
        let differ = self.updated && why.reason.contains("OtherWeights");
        if !self.is_disturbed(event.at) && !overload && !differ {
            return Err(format!(
                "{node}: {request} failed although nothing went wrong of late: {}",
                why.message
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{Story, caught, legal, load_failed, plan};

    fn failed() -> What {
        load_failed("r1", "Unreachable", "request r1: cannot reach tcp://p:1")
    }

    fn happened() -> Story {
        Story::new().world(What::Happens { index: 0, begins: true, text: "a cut".into() })
    }

    #[test]
    fn a_failure_has_a_cause() {
        let oracle = || ExplainedFailures::new(&plan());
        let quiet = || Story::new().at(60_001);
        caught(oracle(), quiet().d(failed()), "nothing went wrong of late");
        caught(oracle(), quiet().d(failed()).world(What::SiteFired("x")), "nothing went");
        legal(oracle(), happened().at(90_000).d(failed()));
        legal(oracle(), quiet().world(What::SiteFired("x")).d(failed()));
        let late = load_failed("r1", "Prefill(TimedOut)", "request r1: not ready in time");
        legal(oracle(), Story::new().d(late));
        let mut odd = plan();
        odd.odds.loss = 1;
        legal(ExplainedFailures::new(&odd), quiet().d(failed()));
        let healed = quiet().world(What::Healed);
        legal(ExplainedFailures::new(&odd), healed.clone().at(120_000).d(failed()));
        caught(ExplainedFailures::new(&odd), healed.at(120_002).d(failed()), "nothing went");
    }

    #[test]
    fn r07_engines_whose_weights_differ_explain_a_refusal_for_other_weights_alone() {
        let oracle = || ExplainedFailures::new(&plan());
        let refused = || load_failed("r1", "Prefill(OtherWeights)", "request r1: other weights");
        let updated = || Story::new().engine(1, What::WeightsUpdated { version: 2 }).at(90_000);
        legal(oracle(), updated().d(refused()));
        caught(oracle(), updated().d(failed()), "nothing went");
        caught(oracle(), Story::new().at(90_000).d(refused()), "nothing went");
    }

    #[test]
    fn what_is_long_over_explains_nothing() {
        let ended = |at| {
            let end = What::Happens { index: 0, begins: false, text: "a cut".into() };
            happened().at(at).world(end)
        };
        let oracle = || ExplainedFailures::new(&plan());
        legal(oracle(), ended(80_000).at(140_000).d(failed()));
        caught(oracle(), ended(80_000).at(140_001).d(failed()), "nothing went");
    }

    #[test]
    fn a_failure_says_whose_it_is() {
        let oracle = || ExplainedFailures::new(&plan());
        let words = "names neither";
        caught(oracle(), happened().d(load_failed("r1", "TimedOut", "")), words);
        caught(oracle(), happened().d(load_failed("r1", "TimedOut", "request r2: gone")), words);
        caught(oracle(), happened().d(load_failed("r1", "", "request r1: gone")), words);
    }
}
