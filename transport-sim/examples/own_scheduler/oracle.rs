//! An oracle of one's own: a block is never in two requests at once. It sees the history
//! only, so it judges any engine that does not share blocks.

use kvbaton_core::ids::RequestId;
use kvbaton_core::region::MemoryRange;
use kvbaton_transport_sim::history::{Event, Lane, NodeId, What};
use kvbaton_transport_sim::oracles::Oracle;
use std::collections::BTreeMap;

/// Remembers whose rows are held or being loaded.
#[derive(Default)]
pub struct BlocksOnce {
    rows: BTreeMap<(NodeId, RequestId), Vec<MemoryRange>>,
}

fn touch(a: &MemoryRange, b: &MemoryRange) -> bool {
    a.start.0 < b.start.0 + b.len.0 && b.start.0 < a.start.0 + a.len.0
}

impl Oracle for BlocksOnce {
    fn name(&self) -> &'static str {
        "blocks-once"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P01", "P08"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Lane::Node(node) = event.lane else { return Ok(()) };
        match &event.what {
            What::Held { request, rows, .. } | What::LoadAsked { request, rows, .. } => {
                for ((other, owner), taken) in &self.rows {
                    let shared = taken.iter().any(|a| rows.iter().any(|b| touch(a, b)));
                    if *other == node && shared {
                        return Err(format!("{node}: {request} has blocks that are {owner}'s"));
                    }
                }
                self.rows.insert((node, request.clone()), rows.clone());
            }
            What::HoldRefused { request, .. }
            | What::SendEnded { request, .. }
            | What::LoadRefused { request, .. }
            | What::LoadEnded { request, .. } => {
                self.rows.remove(&(node, request.clone()));
            }
            _ => {}
        }
        Ok(())
    }
}
