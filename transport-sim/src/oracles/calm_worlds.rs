//! Where nothing can go wrong, nothing is lost.

use super::Oracle;
use super::lives::Lives;
use crate::history::{Answer, Event, LoadFact, SendFact, What, WriteEnd};
use crate::plan::Plan;

/// Judges calm plans only.
#[derive(Debug)]
pub struct CalmWorlds {
    calm: bool,
    ours: Lives<()>,
}

impl CalmWorlds {
    /// For runs of `plan`.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self { calm: plan.is_calm(), ours: Lives::default() }
    }
}

impl Oracle for CalmWorlds {
    fn name(&self) -> &'static str {
        "calm-worlds"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P02", "P06", "P08", "X01"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        if !self.calm {
            return Ok(());
        }
        let ours = self.ours.of(event).is_some();
        let lost = match &event.what {
            What::Answered { answer, .. } => !matches!(answer, Answer::Tokens { .. }),
            What::LoadEnded { end, .. } => ours && *end != LoadFact::Loaded,
            // Nobody wanted the blocks: D had them all [P10].
            What::SendEnded { ended: SendFact::Failed(why), .. } => {
                ours && !why.eq_ignore_ascii_case("released")
            }
            What::WriteEnded { how, .. } => ours && *how != WriteEnd::Written,
            What::HoldRefused { .. } | What::LoadRefused { .. } | What::Refused { .. } => ours,
            What::ConnectionBroken { .. } => ours,
            _ => false,
        };
        if lost { Err(format!("in a calm world: {}: {}", event.lane, event.what)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::ConnectionId;
    use crate::oracles::made_up::{
        Story, caught, held, hold_refused, legal, load, load_failed, load_refused, loaded, plan,
        send_ended, write_ended, write_failed, write_name,
    };

    #[test]
    fn what_is_lost_in_a_calm_world() {
        let answered = |answer| What::Answered { request: 1, attempt: 0, answer };
        let connection = ConnectionId(1);
        let lost = [
            answered(Answer::LoadFailed),
            answered(Answer::Aborted),
            load_failed("a", "TimedOut", "request a: no answer"),
            load_refused("a"),
            send_ended("a", Err("Expired")),
            write_ended(1, write_failed(true)),
            What::Refused { write: write_name(1), why: "outside".into() },
            hold_refused("a"),
            What::ConnectionBroken { connection },
        ];
        let mut stormy = plan();
        stormy.odds.loss = 1;
        for what in lost {
            let story = Story::new().d(what);
            caught(CalmWorlds::new(&plan()), story.clone(), "in a calm world: e1.r0:");
            legal(CalmWorlds::new(&stormy), story);
        }
    }

    #[test]
    fn p10_a_full_hit_releases() {
        let story = Story::new().p(held("a", &[])).d(load("a", &[])).d(loaded("a"));
        let tokens = Answer::Tokens { tokens: vec![1], expected: vec![vec![1]] };
        let story = story.p(send_ended("a", Err("Released")));
        let what = What::Answered { request: 1, attempt: 0, answer: tokens };
        legal(CalmWorlds::new(&plan()), story.clients(what));
    }
}
