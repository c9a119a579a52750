//! The history as it grows, and the oracles that watch it.

use crate::history::{Event, History, Lane, What};
use crate::oracles::{Judge, Oracle, Violation, all};
use crate::plan::Plan;
use std::sync::Arc;
use tokio::sync::Notify;

/// No run has more events: one that does runs away, and would take all memory.
const MOST_EVENTS: usize = 4_000_000;

/// History and judgement of one run.
pub struct Record {
    history: History,
    judge: Judge,
    healed: bool,
    over: Arc<Notify>,
}

impl Record {
    /// A record judged by all oracles for `plan`, and by others.
    #[must_use]
    pub fn new(plan: &Plan, others: Vec<Box<dyn Oracle + Send>>) -> Self {
        let mut oracles = all(plan);
        oracles.extend(others);
        Self {
            history: History::default(),
            judge: Judge::new(oracles),
            healed: false,
            over: Arc::default(),
        }
    }

    /// Appends an event and shows it to the oracles; after a violation nothing is added.
    pub fn push(&mut self, at: u64, lane: Lane, what: What) {
        if self.violation().is_some() {
            return;
        }
        self.healed |= what == What::Healed;
        self.history.push(Event { at, lane, what });
        assert!(self.history.events().len() < MOST_EVENTS, "the run has too many events");
        let event = self.history.events().last().expect("just added");
        if self.judge.observe(event).is_some() {
            self.over.notify_one();
        }
    }

    /// The run is over: the oracles say what is missing.
    pub fn end(&mut self) {
        self.judge.end();
    }

    /// Takes the events out and lets the oracles go: the simulator's runtime keeps the nodes'
    /// programs for ever, and with them this record.
    #[must_use]
    pub fn close(&mut self) -> Vec<Event> {
        self.judge = Judge::new(Vec::new());
        self.history.take()
    }

    /// Told once an oracle objects.
    #[must_use]
    pub fn over(&self) -> Arc<Notify> {
        self.over.clone()
    }

    /// Whether all faults are over.
    #[must_use]
    pub const fn healed(&self) -> bool {
        self.healed
    }

    /// What an oracle found.
    #[must_use]
    pub fn violation(&self) -> Option<&Violation> {
        self.judge.found().first()
    }

    /// The history so far.
    #[must_use]
    pub const fn history(&self) -> &History {
        &self.history
    }
}
