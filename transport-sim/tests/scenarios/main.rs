//! Each scenario over a few seeds: nothing is violated, and it reaches what it is about.
//! Tests are named after what the scenario pins.

#[cfg(not(madsim))]
compile_error!("a suite of simulations: run it with `cargo xtask test --only simulation`");

mod cycles;
mod fleets;
mod lifecycle;
mod matrix;
mod memory;
mod network;
mod requests;
mod restarts;
mod steps;
mod support;
mod versions;
mod wakes;
mod writes;
