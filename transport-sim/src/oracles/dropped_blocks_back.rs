//! What D's engine drops comes back at once, without P's help.

use super::Oracle;
use super::due::{Due, MS};
use super::lives::Lives;
use super::open::Open;
use crate::history::{Event, What};
use crate::plan::{DataKind, Plan};
use kvbaton_core::ids::RequestId;

const BOUND_MS: u64 = 1_000;

/// Times drops, where data planes check grants: elsewhere P must answer first `[G03]`.
#[derive(Debug)]
pub struct DroppedBlocksBack {
    applies: bool,
    loads: Lives<Open<()>>,
    due: Due<RequestId>,
}

impl DroppedBlocksBack {
    /// For runs of `plan`.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let applies = plan.data == DataKind::Grants;
        Self { applies, loads: Lives::default(), due: Due::default() }
    }
}

impl Oracle for DroppedBlocksBack {
    fn name(&self) -> &'static str {
        "dropped-blocks-back"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["G02", "P09", "P13"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        if !self.applies {
            return Ok(());
        }
        if let Some((node, request)) = self.due.late(event) {
            return Err(format!("{node}: {request} was dropped, its blocks have not come back"));
        }
        let Some((node, loads)) = self.loads.of(event) else { return Ok(()) };
        match &event.what {
            What::LoadAsked { request, transfer, .. } => loads.ask(request, transfer, ()),
            What::LoadDropped { request } if loads.iter().any(|((of, _), ())| of == request) => {
                self.due.set(node, request.clone(), event.at, BOUND_MS * MS);
            }
            What::LoadRefused { request, transfer, .. } => {
                loads.refuse(request, transfer);
                if loads.iter().all(|((of, _), ())| of != request) {
                    self.due.clear(node, request);
                }
            }
            What::LoadEnded { request, transfer, .. } => {
                loads.end(request, transfer);
                self.due.clear(node, request);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::LoadFact;
    use crate::oracles::made_up::{
        Story, caught, legal, load, load_ended, load_refused, loaded, plan,
    };

    fn dropped() -> Story {
        let story = Story::new().at(100).d(load("a", &[(0, 8)]));
        story.d(What::LoadDropped { request: "a".into() })
    }

    fn later(story: Story) -> Story {
        story.at(9_000).world(What::Healed)
    }

    #[test]
    fn g02_a_dropped_load_ends_at_once() {
        let ended = load_ended("a", LoadFact::Dropped);
        legal(DroppedBlocksBack::new(&plan()), later(dropped().at(1_100).d(ended.clone())));
        caught(DroppedBlocksBack::new(&plan()), dropped().at(1_101).d(ended), "a was dropped");
        caught(DroppedBlocksBack::new(&plan()), later(dropped()), "a was dropped");
    }

    #[test]
    fn p13_dropping_what_does_not_load_is_fine() {
        let story = Story::new().d(What::LoadDropped { request: "a".into() });
        legal(DroppedBlocksBack::new(&plan()), later(story));
        let story = Story::new().d(load("a", &[])).d(loaded("a"));
        let story = story.d(What::LoadDropped { request: "a".into() });
        legal(DroppedBlocksBack::new(&plan()), later(story));
        legal(DroppedBlocksBack::new(&plan()), later(dropped().d(load_refused("a"))));
    }

    #[test]
    fn the_dead_and_the_stopped_have_time() {
        legal(DroppedBlocksBack::new(&plan()), later(dropped().d(What::Killed)));
        legal(DroppedBlocksBack::new(&plan()), later(dropped().d(What::Stopped)));
    }
}
