//! Pauses in each mode, on P, on D, on both; with and without clearing.

use super::story::{Story, UNTIL, Which};
use crate::plan::{PauseMode, Plan};

/// Pauses that side in that mode while requests come, run, are held and are loaded.
pub fn plan(scenario: &str, seed: u64, mode: PauseMode, which: Which) -> Plan {
    let mut story = Story::new(scenario, seed, 2, 2).load(24);
    for _ in 0..story.draw.few(1, 2) {
        story.pause(which, mode);
    }
    story.more(6, UNTIL, UNTIL + 1_000);
    story.done()
}
