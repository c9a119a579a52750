//! Every load ends exactly once, in its bound.

use super::Oracle;
use super::due::{Clocks, Due, MS};
use super::lives::Lives;
use super::open::{Names, Open};
use crate::history::{Event, What};
use crate::plan::Plan;

const SLACK_MS: u64 = 2_000;

/// Counts loads and their ends.
#[derive(Debug)]
pub struct LoadsEndOnce {
    clocks: Clocks,
    load_ms: u64,
    loads: Lives<(u64, Open<u64>)>,
    due: Due<(Names, u64)>,
}

impl LoadsEndOnce {
    /// For runs of `plan`.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self {
            clocks: Clocks::of(plan),
            load_ms: plan.bounds.load_ms,
            loads: Lives::default(),
            due: Due::default(),
        }
    }
}

impl Oracle for LoadsEndOnce {
    fn name(&self) -> &'static str {
        "loads-end-once"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P08", "P04", "P12"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        if let Some((node, ((request, transfer), _))) = self.due.late(event) {
            return Err(format!(
                "{node}: the load of {request} ({transfer}) has not ended in time"
            ));
        }
        let Some((node, (next, loads))) = self.loads.of(event) else { return Ok(()) };
        match &event.what {
            What::LoadAsked { request, transfer, .. } => {
                *next += 1;
                loads.ask(request, transfer, *next);
                let within = self.clocks.longest(node, self.load_ms) + SLACK_MS * MS;
                let key = ((request.clone(), transfer.clone()), *next);
                self.due.set(node, key, event.at, within);
            }
            What::LoadRefused { request, transfer, .. } => {
                let Some(load) = loads.refuse(request, transfer) else {
                    return Err(format!(
                        "{node}: a load of {request} is refused that nobody asked"
                    ));
                };
                self.due.clear(node, &((request.clone(), transfer.clone()), load));
            }
            What::LoadEnded { request, transfer, .. } => {
                let Some(load) = loads.end(request, transfer) else {
                    return Err(format!(
                        "{node}: a load of {request} ({transfer}) ends that does not run"
                    ));
                };
                self.due.clear(node, &((request.clone(), transfer.clone()), load));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{Story, caught, legal, load, load_refused, loaded, plan};

    fn oracle() -> LoadsEndOnce {
        LoadsEndOnce::new(&plan())
    }

    fn asked() -> Story {
        Story::new().at(1_000).d(load("a", &[(0, 64)]))
    }

    fn later(story: Story) -> Story {
        story.at(60_000).world(What::Healed)
    }

    #[test]
    fn p08_a_load_ends_once() {
        let story = asked().at(11_000).d(loaded("a"));
        legal(oracle(), later(story.clone()));
        legal(oracle(), later(story.clone().d(load("a", &[])).d(loaded("a"))));
        caught(oracle(), story.d(loaded("a")), "that does not run");
        caught(oracle(), Story::new().d(loaded("a")), "that does not run");
    }

    #[test]
    fn p04_a_load_ends_in_time() {
        caught(oracle(), later(asked()), "the load of a (a) has not ended in time");
        caught(oracle(), asked().at(11_001).d(loaded("a")), "in time");
    }

    #[test]
    fn p04_stopped_time_does_not_count_and_the_dead_owe_nothing() {
        let story = asked().d(What::Stopped).at(30_000).d(What::Continued);
        legal(oracle(), story.at(40_000).d(loaded("a")));
        legal(oracle(), later(asked().d(What::Killed)));
    }

    #[test]
    fn p11_a_refused_load_does_not_end() {
        legal(oracle(), later(asked().d(load("a", &[])).d(load_refused("a")).d(loaded("a"))));
        let story = asked().d(load_refused("a"));
        legal(oracle(), later(story.clone()));
        caught(oracle(), story.clone().d(loaded("a")), "that does not run");
        caught(oracle(), story.d(load_refused("a")), "that nobody asked");
    }

    #[test]
    fn a_slow_clock_may_take_longer() {
        let mut plan = plan();
        plan.fleet.engines[1].drift_ppm = -200_000;
        let story = asked().at(13_000).d(loaded("a"));
        legal(LoadsEndOnce::new(&plan), story.clone());
        caught(oracle(), story, "in time");
    }
}
