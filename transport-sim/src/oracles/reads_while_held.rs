//! Blocks go back to P's engine only when no write reads them; writes read only what is held.

use super::Oracle;
use super::lives::Lives;
use super::open::Open;
use super::ranges::{outside, shared, words};
use crate::history::{Event, What, WriteName};
use kvbaton_core::region::MemoryRange;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
struct Node {
    holds: Open<Vec<MemoryRange>>,
    writes: BTreeMap<WriteName, Vec<MemoryRange>>,
}

impl Node {
    /// Whether one hold has all that a write reads: a write serves one transfer.
    fn holds_all(&self, reads: &[MemoryRange]) -> bool {
        self.holds.iter().any(|(_, rows)| outside(rows, reads).is_none())
    }
}

/// Compares what writes read with what is held.
#[derive(Debug, Default)]
pub struct ReadsWhileHeld {
    nodes: Lives<Node>,
}

impl Oracle for ReadsWhileHeld {
    fn name(&self) -> &'static str {
        "reads-while-held"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P01", "P06"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, it)) = self.nodes.of(event) else { return Ok(()) };
        match &event.what {
            What::Held { request, transfer, rows, .. } => {
                it.holds.ask(request, transfer, rows.clone());
            }
            What::HoldRefused { request, transfer, .. } => {
                it.holds.refuse(request, transfer);
            }
            What::WriteStarted { write, reads, .. } => {
                if !it.holds_all(reads) {
                    let at = reads.first().copied().map_or_else(String::new, words);
                    return Err(format!("{node}: {write} reads {at}…, which no request holds"));
                }
                it.writes.insert(*write, reads.clone());
            }
            What::WriteEnded { write, .. } => {
                it.writes.remove(write);
            }
            What::SendEnded { request, transfer, .. } => {
                let Some(rows) = it.holds.end(request, transfer) else { return Ok(()) };
                let mut reading = it.writes.iter();
                let hit = reading
                    .find(|(_, reads)| shared(&rows, reads).is_some() && !it.holds_all(reads));
                if let Some((write, _)) = hit {
                    return Err(format!(
                        "{node}: {request}'s blocks went back while {write} reads them"
                    ));
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
    use crate::history::WriteEnd;
    use crate::oracles::made_up::{
        Story, caught, held, hold_refused, legal, send_ended, write, write_ended, write_failed,
    };

    fn writing() -> Story {
        Story::new().p(held("a", &[(0, 64)])).p(write(1, 7, &[(0, 32)]))
    }

    #[test]
    fn p01_blocks_go_back_after_the_last_write() {
        let story = writing().p(write_ended(1, WriteEnd::Written)).p(send_ended("a", Ok(())));
        legal(ReadsWhileHeld::default(), story);
        let story = writing().p(write_ended(1, write_failed(false)));
        legal(ReadsWhileHeld::default(), story.p(send_ended("a", Err("WriteFailed"))));
    }

    #[test]
    fn p01_blocks_that_are_read_do_not_go_back() {
        let story = writing().p(send_ended("a", Err("Expired")));
        caught(ReadsWhileHeld::default(), story, "a's blocks went back while w1@e0.r0 reads them");
    }

    #[test]
    fn p01_a_write_reads_only_what_is_held() {
        caught(ReadsWhileHeld::default(), Story::new().p(write(1, 7, &[(0, 32)])), "no request");
        let story = Story::new().p(held("a", &[(0, 64)])).p(write(1, 7, &[(0, 65)]));
        caught(ReadsWhileHeld::default(), story, "no request holds");
        let story = Story::new().p(held("a", &[(0, 64)])).p(send_ended("a", Err("Expired")));
        caught(ReadsWhileHeld::default(), story.p(write(1, 7, &[(0, 64)])), "no request holds");
    }

    #[test]
    fn blocks_that_two_requests_share_are_held_by_the_other() {
        let story = Story::new().p(held("a", &[(0, 64)])).p(held("b", &[(0, 96)]));
        let story = story.p(write(1, 7, &[(0, 64)])).p(send_ended("a", Ok(())));
        legal(ReadsWhileHeld::default(), story.clone());
        caught(ReadsWhileHeld::default(), story.p(send_ended("b", Ok(()))), "b's blocks");
    }

    #[test]
    fn the_dead_read_nothing() {
        legal(ReadsWhileHeld::default(), writing().p(What::Killed).p(send_ended("a", Ok(()))));
    }

    #[test]
    fn what_was_refused_is_not_held() {
        let story = Story::new().p(held("a", &[(0, 64)])).p(hold_refused("a"));
        caught(ReadsWhileHeld::default(), story.p(write(1, 7, &[(0, 32)])), "no request holds");
    }
}
