//! The history as it grows, and the oracles that watch it.

use crate::history::{Event, History, Lane, What};
use crate::oracles::{Oracle, Violation, all};
use crate::plan::Plan;
use std::sync::Arc;
use tokio::sync::Notify;

/// History and judgement of one run.
pub struct Record {
    history: History,
    oracles: Vec<Box<dyn Oracle + Send>>,
    violation: Option<Violation>,
    healed: bool,
    over: Arc<Notify>,
}

impl Record {
    /// A record judged by all oracles for `plan`.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self {
            history: History::default(),
            oracles: all(plan),
            violation: None,
            healed: false,
            over: Arc::default(),
        }
    }

    /// Appends an event and shows it to the oracles; after a violation nothing is added.
    pub fn push(&mut self, at: u64, lane: Lane, what: What) {
        if self.violation.is_some() {
            return;
        }
        self.healed |= what == What::Healed;
        self.history.push(Event { at, lane, what });
        let event = self.history.events().last().expect("just added");
        let index = self.history.events().len() - 1;
        for oracle in &mut self.oracles {
            if let Err(text) = oracle.observe(event) {
                let (oracle, rules) = (oracle.name(), oracle.rules());
                self.violation = Some(Violation { oracle, rules, text, event: index });
                self.over.notify_one();
                return;
            }
        }
    }

    /// The run is over: the oracles say what is missing.
    pub fn end(&mut self) {
        if self.violation.is_some() {
            return;
        }
        for oracle in &mut self.oracles {
            if let Err(text) = oracle.end() {
                let (oracle, rules, event) =
                    (oracle.name(), oracle.rules(), self.history.events().len());
                self.violation = Some(Violation { oracle, rules, text, event });
                return;
            }
        }
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
    pub const fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// The history so far.
    #[must_use]
    pub const fn history(&self) -> &History {
        &self.history
    }
}
