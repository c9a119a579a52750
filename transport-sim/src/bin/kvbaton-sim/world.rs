//! What is simulated.

use kvbaton_core::planted;
use kvbaton_transport_sim::campaign::{Bug, Run, Suite};
use kvbaton_transport_sim::{scenarios, sites};
use std::sync::OnceLock;

#[cfg(madsim)]
const RUN: &Run = &kvbaton_transport_sim::world::run;
/// Without the simulator nothing runs: `main` says so and ends.
#[cfg(not(madsim))]
const RUN: &Run = &|_, _| unreachable!("this build has no worlds");

/// The world, its scenarios, sites and planted bugs.
pub fn suite() -> Suite<'static> {
    static BUGS: OnceLock<Vec<Bug>> = OnceLock::new();
    let bug = |bug: &planted::Bug| Bug { name: bug.name(), rule: bug.rule() };
    Suite {
        run: RUN,
        scenarios: scenarios::ALL,
        sites: sites::ALL,
        bugs: BUGS.get_or_init(|| planted::Bug::ALL.iter().map(bug).collect()),
    }
}
