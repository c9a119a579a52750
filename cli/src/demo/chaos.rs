//! Whom chaos kills, and when.

use super::fleet::Fleet;
use crate::engine::Side;
use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use std::collections::VecDeque;
use std::time::Instant;

/// Fewest and most kills of a run.
const KILLS: (usize, usize) = (4, 12);
/// One kill per so many requests, within these bounds.
const REQUESTS_PER_KILL: usize = 10;

/// One engine that was killed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kill {
    /// "prefill 0".
    pub engine: String,
    /// The process that was killed.
    pub pid: u32,
    /// Requests that had ended by then.
    pub after: usize,
    /// Requests that ran on it.
    pub running: usize,
    /// Milliseconds until its successor could serve; `None` if the demo did not see it.
    pub back_after_ms: Option<u64>,
}

/// The kills that are due, and those that were done.
#[derive(Debug)]
pub struct Chaos {
    /// How many requests must have ended before each.
    due: VecDeque<(usize, Side)>,
    rng: StdRng,
    kills: Vec<Kill>,
    /// Killed and not back: place, index in `kills`, since when.
    down: Vec<(usize, usize, Instant)>,
}

impl Chaos {
    /// P and D in turn, spread over the run.
    #[must_use]
    pub fn new(requests: usize, seed: u64) -> Self {
        let count = (requests / REQUESTS_PER_KILL).clamp(KILLS.0, KILLS.1);
        let side = |kill| if kill % 2 == 0 { Side::Prefill } else { Side::Decode };
        let due = (0..count).map(|kill| ((kill + 1) * requests / (count + 2), side(kill)));
        let rng = StdRng::seed_from_u64(seed.rotate_left(32) ^ 0xc4a0);
        Self { due: due.collect(), rng, kills: Vec::new(), down: Vec::new() }
    }

    /// Kills and restarts an engine if that is due and one of the side serves requests;
    /// `running` counts those at a place. Gives the place.
    ///
    /// # Errors
    /// When no process can be started.
    pub fn strike(
        &mut self,
        fleet: &mut Fleet,
        ended: usize,
        running: impl Fn(usize) -> usize,
    ) -> Result<Option<usize>> {
        let Some(&(after, side)) = self.due.front() else { return Ok(None) };
        if ended < after {
            return Ok(None);
        }
        let busy: Vec<usize> =
            fleet.ready(side).into_iter().filter(|&slot| running(slot) > 0).collect();
        if busy.is_empty() {
            return Ok(None);
        }
        self.due.pop_front();
        let slot = busy[self.rng.random_range(0..busy.len())];
        let (engine, running) = (fleet.name(slot), running(slot));
        let pid = fleet.kill_and_restart(slot)?;
        self.down.push((slot, self.kills.len(), Instant::now()));
        self.kills.push(Kill { engine, pid, after: ended, running, back_after_ms: None });
        Ok(Some(slot))
    }

    /// An engine can serve again.
    pub fn back(&mut self, slot: usize) {
        let Some(at) = self.down.iter().position(|(down, ..)| *down == slot) else { return };
        let (_, kill, since) = self.down.remove(at);
        self.kills[kill].back_after_ms = Some(since.elapsed().as_millis() as u64);
    }

    /// What was done.
    #[must_use]
    pub fn into_kills(self) -> Vec<Kill> {
        self.kills
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_are_due_before_the_run_is_over() {
        for requests in [8, 64, 1000] {
            let chaos = Chaos::new(requests, 1);
            assert!(chaos.due.len() >= KILLS.0);
            assert!(chaos.due.iter().all(|(after, _)| *after < requests));
            let prefills = chaos.due.iter().filter(|(_, side)| *side == Side::Prefill).count();
            assert!(prefills >= 2 && chaos.due.len() - prefills >= 2);
        }
    }
}
