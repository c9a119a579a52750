//! What happened in a run, in order: the one thing that oracles, pages and hashes see.

mod event;
mod facts;
mod text;

pub use event::{Event, Lane, NodeId, What};
pub use facts::{
    Answer, ConnectionId, Failure, LoadFact, PullFacts, ReplyFacts, SendFact, Tables, WriteEnd,
    WriteName,
};

use std::hash::{DefaultHasher, Hash, Hasher};

/// The events of one run. Their hash is equal for equal runs, in every process.
#[derive(Debug, Default)]
pub struct History {
    events: Vec<Event>,
    hasher: DefaultHasher,
}

impl History {
    /// Appends an event.
    pub fn push(&mut self, event: Event) {
        event.hash(&mut self.hasher);
        self.events.push(event);
    }

    /// All events so far, oldest first.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Takes the events out.
    #[must_use]
    pub fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Hash of all events so far. The standard hasher's keys are fixed.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hasher.finish()
    }
}
