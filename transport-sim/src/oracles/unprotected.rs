//! Stock D engines protect no block: they give it back when a load fails, whatever still
//! writes, and nothing tells them that a write is not settled. What they answer afterwards
//! proves nothing about us.

use crate::history::{Event, Lane, LoadFact, What, WriteEnd, WriteName};
use kvbaton_core::ids::SessionAddress;
use std::collections::{BTreeMap, BTreeSet};

/// Which engines may have been written to late.
#[derive(Debug, Default)]
pub(super) struct Unprotected {
    /// Stock engines by session.
    stock: BTreeMap<SessionAddress, u16>,
    writes: BTreeMap<WriteName, u16>,
    suspect: BTreeSet<u16>,
}

impl Unprotected {
    /// Takes each event before the oracle itself does.
    pub fn observe(&mut self, event: &Event) {
        match &event.what {
            What::Started { stock: true, session, .. } => {
                if let Lane::Node(node) = event.lane {
                    self.stock.insert(session.clone(), node.engine);
                }
            }
            What::WriteStarted { write, to, .. } => {
                if let Some(engine) = self.stock.get(to) {
                    self.writes.insert(*write, *engine);
                }
            }
            What::WriteEnded { write, how } => {
                let engine = self.writes.remove(write);
                if let WriteEnd::Failed { settled: false, .. } = how {
                    self.suspect.extend(engine);
                }
            }
            What::LoadEnded { end, .. } if *end != LoadFact::Loaded => self.gave_back(event),
            What::LoadDropped { .. } => self.gave_back(event),
            _ => {}
        }
    }

    fn gave_back(&mut self, event: &Event) {
        let Lane::Node(node) = event.lane else { return };
        if self.stock.values().any(|engine| *engine == node.engine) {
            self.suspect.insert(node.engine);
        }
    }

    /// Whether what this engine's memory holds proves nothing.
    pub fn is_suspect(&self, engine: u16) -> bool {
        self.suspect.contains(&engine)
    }
}
