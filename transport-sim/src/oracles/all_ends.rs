//! Once the world has healed, every request ends and every block comes back.

use super::Oracle;
use super::lives::Lives;
use crate::history::{Event, Lane, What};
use std::collections::{BTreeMap, BTreeSet};

/// Counts tries and answers.
#[derive(Debug, Default)]
pub struct AllEnds {
    /// Tries without an answer: by request and try.
    open: BTreeSet<(u32, u32)>,
    answered: BTreeSet<(u32, u32)>,
    lives: Lives<()>,
    healed: bool,
    reported: BTreeMap<u16, Option<String>>,
}

impl Oracle for AllEnds {
    fn name(&self) -> &'static str {
        "all-ends"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P01", "P08", "P12", "X01"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        self.lives.of(event);
        match &event.what {
            What::Submitted { request, attempt, .. } => {
                let first = self.open.insert((*request, *attempt));
                if !first {
                    return Err(format!("request {request} (try {attempt}) was submitted twice"));
                }
            }
            What::Answered { request, attempt, .. } => {
                let this = (*request, *attempt);
                if !self.open.remove(&this) {
                    let what = if self.answered.contains(&this) { "twice" } else { "unasked" };
                    return Err(format!("request {request} (try {attempt}) was answered {what}"));
                }
                self.answered.insert(this);
            }
            What::Healed => self.healed = true,
            What::Leftovers(left) => {
                if let Lane::Engine(engine) = event.lane {
                    let left = (!left.is_empty()).then(|| left.join("; "));
                    self.reported.insert(engine, left);
                }
            }
            What::Ended if self.healed => {
                if let Some((request, attempt)) = self.open.first() {
                    return Err(format!("request {request} (try {attempt}) was never answered"));
                }
                for (node, ()) in self.lives.iter() {
                    match self.reported.get(&node.engine) {
                        Some(None) => {}
                        Some(Some(left)) => {
                            return Err(format!("e{}: did not come back: {left}", node.engine));
                        }
                        None => {
                            return Err(format!("e{}: does not say what is left", node.engine));
                        }
                    }
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
    use crate::history::Answer;
    use crate::oracles::made_up::{Story, caught, legal};

    fn submitted(attempt: u32) -> What {
        What::Submitted { request: 4, attempt, prefill: 0, decode: 1 }
    }

    fn answered(attempt: u32) -> What {
        What::Answered { request: 4, attempt, answer: Answer::Aborted }
    }

    fn left(of: &[&str]) -> What {
        What::Leftovers(of.iter().map(|it| (*it).into()).collect())
    }

    fn end(story: Story) -> Story {
        story.engine(0, left(&[])).engine(1, left(&[])).world(What::Ended)
    }

    fn asked() -> Story {
        Story::new().clients(submitted(0))
    }

    #[test]
    fn x01_every_try_is_answered_once() {
        let story = asked().clients(answered(0)).world(What::Healed).clients(submitted(1));
        legal(AllEnds::default(), end(story.clone().clients(answered(1))));
        caught(AllEnds::default(), end(story.clone()), "request 4 (try 1) was never answered");
        caught(AllEnds::default(), story.clients(answered(0)), "answered twice");
        caught(AllEnds::default(), Story::new().clients(answered(0)), "answered unasked");
        caught(AllEnds::default(), asked().clients(submitted(0)), "submitted twice");
    }

    #[test]
    fn p01_every_block_comes_back() {
        let story = Story::new().world(What::Healed).engine(0, left(&["block 3"]));
        let story = story.engine(1, left(&[])).world(What::Ended);
        caught(AllEnds::default(), story, "e0: did not come back: block 3");
        let story = Story::new().world(What::Healed).engine(0, left(&[])).world(What::Ended);
        caught(AllEnds::default(), story, "e1: does not say");
    }

    #[test]
    fn p12_what_the_dead_hold_is_void() {
        let story = Story::new().d(What::Killed).world(What::Healed).engine(0, left(&[]));
        legal(AllEnds::default(), story.world(What::Ended));
    }

    #[test]
    fn a_run_that_was_cut_short_is_not_judged() {
        legal(AllEnds::default(), asked().world(What::Healed));
        legal(AllEnds::default(), asked().world(What::Ended));
    }
}
