//! What is simulated.

use kvbaton_core::planted;
use kvbaton_transport_sim::campaign::{Bug, Suite};
use kvbaton_transport_sim::{scenarios, sites};
use std::sync::OnceLock;

/// The world, its scenarios, sites and planted bugs.
pub fn suite() -> Suite<'static> {
    static BUGS: OnceLock<Vec<Bug>> = OnceLock::new();
    let bug = |bug: &planted::Bug| Bug { name: bug.name(), rule: bug.rule() };
    Suite {
        run: &kvbaton_transport_sim::world::run,
        scenarios: scenarios::ALL,
        sites: sites::ALL,
        bugs: BUGS.get_or_init(|| planted::Bug::ALL.iter().map(bug).collect()),
    }
}
