//! A load that a reset cuts short does not fail its request.

use super::Oracle;
use super::lives::Lives;
use crate::history::{Answer, Event, LoadFact, What};
use kvbaton_core::ids::RequestId;
use std::collections::BTreeMap;

/// Core's names of reasons that are resets.
const RESETS: [&str; 4] = ["Reset", "WeightsUpdated", "Prefill(Reset)", "Prefill(OtherWeights)"];

/// Remembers how each request's last load ended.
#[derive(Debug, Default)]
pub struct CutShort {
    ours: Lives<()>,
    cut: BTreeMap<RequestId, bool>,
}

impl Oracle for CutShort {
    fn name(&self) -> &'static str {
        "cut-short"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["R04"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        if let Some((_, ())) = self.ours.of(event) {
            match &event.what {
                What::LoadAsked { request, .. } => drop(self.cut.insert(request.clone(), false)),
                What::LoadEnded { request, end: LoadFact::Failed(why), .. }
                    if RESETS.contains(&&*why.reason) =>
                {
                    self.cut.insert(request.clone(), true);
                }
                _ => {}
            }
        }
        // Requests of D are named after their client's, and its try.
        if let What::Answered { request, attempt, answer: Answer::LoadFailed } = &event.what {
            let name = RequestId::from(format!("d{request}.{attempt}"));
            if self.cut.get(&name) == Some(&true) {
                return Err(format!("{name} failed because a reset cut its load short"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{Story, caught, legal, load, load_failed};

    fn answered(end: &str) -> Story {
        let story = Story::new().d(load("d4.0", &[(0, 8)]));
        let story = story.d(load_failed("d4.0", end, "request d4.0: it ended"));
        let answer = Answer::LoadFailed;
        story.clients(What::Answered { request: 4, attempt: 0, answer })
    }

    #[test]
    fn r04_a_reset_fails_nobody() {
        for reset in RESETS {
            caught(CutShort::default(), answered(reset), "d4.0 failed because a reset");
        }
        legal(CutShort::default(), answered("TimedOut"));
        legal(CutShort::default(), answered("Prefill(Expired)"));
    }
}
