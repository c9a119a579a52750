//! Each scenario over a few seeds: nothing is violated, and it reaches what it is about.
//! Tests are named after what the scenario pins.

#[cfg(not(madsim))]
compile_error!("a suite of simulations: run it with `cargo xtask test --only simulation`");

mod fleets;
mod later;
mod memory;
mod network;
mod requests;
mod restarts;
mod support;
mod versions;
mod writes;
