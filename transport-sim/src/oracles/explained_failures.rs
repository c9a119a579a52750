//! A load that fails says what happened to whom, and something did happen.

use super::Oracle;
use super::lives::Lives;
use crate::history::{Event, LoadFact, What};
use crate::plan::{Plan, Quirk};

/// Remembers whether anything went wrong so far.
#[derive(Debug)]
pub struct ExplainedFailures {
    disturbed: bool,
    ours: Lives<()>,
}

impl ExplainedFailures {
    /// For runs of `plan`. Odds, quirks and clients that leave are causes at any time.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let odd =
            |it: &crate::plan::RequestPlan| it.quirk != Quirk::None || it.leaves_at_ms.is_some();
        let disturbed = !plan.odds.is_calm() || plan.requests.iter().any(odd);
        Self { disturbed, ours: Lives::default() }
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
            What::Happens { .. }
            | What::SiteFired(_)
            | What::MessageLost { .. }
            | What::Disconnected { .. } => self.disturbed = true,
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
        if !self.disturbed && !overload {
            return Err(format!(
                "{node}: {request} failed although nothing went wrong before: {}",
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
        caught(oracle(), Story::new().d(failed()), "nothing went wrong before");
        caught(oracle(), Story::new().d(failed()).world(What::SiteFired("x")), "nothing went");
        legal(oracle(), happened().d(failed()));
        legal(oracle(), Story::new().world(What::SiteFired("x")).d(failed()));
        let late = load_failed("r1", "Prefill(TimedOut)", "request r1: not ready in time");
        legal(oracle(), Story::new().d(late));
        let mut odd = plan();
        odd.odds.loss = 1;
        legal(ExplainedFailures::new(&odd), Story::new().d(failed()));
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
