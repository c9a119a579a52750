//! Sleeping and waking again and again. `cargo xtask sim cycles` does it 2,000 times.

use crate::support::run;
use kvbaton_transport_sim::campaign::cycles::Cycles;
use kvbaton_transport_sim::scenarios;

#[test]
fn s01_s02_r04_60_sleeps_under_load_and_no_table_grows() {
    let found = Cycles::of(&run(&scenarios::cycles(1, 60, 64)));
    assert!(found.is_well(), "{found}");
    assert_eq!(found.wakes, 80, "{found}");
    assert!(found.answered > 1_000, "{found}");
}
