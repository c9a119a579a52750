//! Drain, then unregister, then unmap; map, then register. Nothing uses memory meanwhile.

use super::Oracle;
use super::lives::Lives;
use super::open::Open;
use crate::history::{Event, NodeId, What, WriteName};
use kvbaton_core::ids::Generation;
use std::collections::BTreeSet;

#[derive(Debug, Default)]
struct Node {
    registered: Option<Generation>,
    unmapped: bool,
    holds: Open<()>,
    loads: Open<()>,
    writes: BTreeSet<WriteName>,
}

impl Node {
    fn idle(&self, node: NodeId, doing: &str) -> Result<(), String> {
        if let Some(write) = self.writes.first() {
            return Err(format!("{node}: {doing} while {write} reads its memory"));
        }
        Ok(())
    }
}

/// Compares registrations with what uses them.
#[derive(Debug, Default)]
pub struct DrainedBeforeUnmap {
    nodes: Lives<Node>,
}

impl Oracle for DrainedBeforeUnmap {
    fn name(&self) -> &'static str {
        "drained-before-unmap"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["S01", "S05", "P01"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, it)) = self.nodes.of(event) else { return Ok(()) };
        match &event.what {
            What::Registered { generation } => {
                if it.unmapped {
                    return Err(format!("{node}: registers memory that is not mapped"));
                }
                it.registered = Some(*generation);
            }
            What::Unregistering { .. } => it.idle(node, "unregisters")?,
            What::Unregistered { generation } if it.registered == Some(*generation) => {
                it.registered = None;
            }
            What::Unmapped => {
                it.idle(node, "unmaps")?;
                if let Some(generation) = it.registered {
                    return Err(format!("{node}: unmaps memory that {generation} registers"));
                }
                if let Some(((request, _), ())) = it.holds.iter().chain(it.loads.iter()).next() {
                    return Err(format!("{node}: unmaps memory while {request} uses it"));
                }
                it.unmapped = true;
            }
            What::Mapped => it.unmapped = false,
            What::Held { request, transfer, .. } => it.holds.ask(request, transfer, ()),
            What::HoldRefused { request, transfer, .. } => {
                it.holds.refuse(request, transfer);
            }
            What::SendEnded { request, transfer, .. } => {
                it.holds.end(request, transfer);
            }
            What::LoadAsked { request, transfer, .. } => it.loads.ask(request, transfer, ()),
            What::LoadRefused { request, transfer, .. } => {
                it.loads.refuse(request, transfer);
            }
            What::LoadEnded { request, transfer, .. } => {
                it.loads.end(request, transfer);
            }
            What::WriteStarted { write, .. } => {
                if it.registered.is_none() {
                    return Err(format!("{node}: {write} reads memory that is not registered"));
                }
                it.writes.insert(*write);
            }
            What::WriteEnded { write, .. } => {
                it.writes.remove(write);
            }
            What::Landed { write, seen: true, .. } if it.unmapped => {
                return Err(format!("{node}: {write} lands in memory that is not mapped"));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::WriteEnd;
    use crate::oracles::made_up::{
        OF_D, OF_P, Story, caught, held, hold_refused, landed, legal, load, load_refused, loaded,
        send_ended, write, write_ended,
    };

    fn unregister(story: Story) -> Story {
        let story = story.p(What::Unregistering { generation: OF_P });
        story.p(What::Unregistered { generation: OF_P })
    }

    fn unregister_d(story: Story) -> Story {
        let story = story.d(What::Unregistering { generation: OF_D });
        story.d(What::Unregistered { generation: OF_D })
    }

    fn oracle() -> DrainedBeforeUnmap {
        DrainedBeforeUnmap::default()
    }

    #[test]
    fn s05_sleep_and_wake_in_order() {
        let story = Story::new().p(held("a", &[])).p(write(1, 7, &[]));
        let story = story.p(write_ended(1, WriteEnd::Written)).p(send_ended("a", Ok(())));
        let story = unregister(story).p(What::Unmapped).p(What::Mapped);
        let story = story.p(What::Registered { generation: Generation(9) }).p(write(2, 7, &[]));
        legal(oracle(), story);
    }

    #[test]
    fn s01_nothing_is_unregistered_under_a_write() {
        let story = Story::new().p(write(1, 7, &[]));
        caught(oracle(), unregister(story), "unregisters while w1@e0.r0 reads");
    }

    #[test]
    fn s01_nothing_is_unmapped_under_a_hold_or_load() {
        let story = unregister(Story::new().p(held("a", &[])));
        caught(oracle(), story.clone().p(What::Unmapped), "while a uses it");
        legal(oracle(), story.p(send_ended("a", Ok(()))).p(What::Unmapped));
        let story = unregister_d(Story::new().d(load("a", &[])));
        caught(oracle(), story.clone().d(What::Unmapped), "while a uses it");
        legal(oracle(), story.d(loaded("a")).d(What::Unmapped));
    }

    #[test]
    fn s05_registered_memory_stays_mapped() {
        caught(oracle(), Story::new().p(What::Unmapped), "unmaps memory that");
        let story = unregister(Story::new()).p(What::Unmapped);
        caught(oracle(), story.p(What::Registered { generation: OF_P }), "not mapped");
    }

    #[test]
    fn s04_nothing_reads_or_lands_meanwhile() {
        caught(oracle(), unregister(Story::new()).p(write(1, 7, &[])), "not registered");
        let story = unregister_d(Story::new()).d(What::Unmapped);
        caught(oracle(), story.clone().d(landed(1, None, &[(0, 8)])), "not mapped");
        legal(oracle(), story.d(What::Mapped).d(landed(1, None, &[(0, 8)])));
    }

    #[test]
    fn what_was_refused_uses_nothing() {
        let story = unregister(Story::new()).p(held("a", &[])).p(hold_refused("a"));
        legal(oracle(), story.p(What::Unmapped));
        let story = unregister_d(Story::new()).d(load("a", &[])).d(load_refused("a"));
        legal(oracle(), story.d(What::Unmapped));
    }
}
