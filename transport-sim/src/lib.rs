//! kvbaton's actors in a simulated world: network, memory, processes and engines are
//! functions of one seed; oracles watch every step.
//!
//! A [`plan::Plan`] says everything that is decided before a run. Running it gives a
//! [`history::History`], which the oracles judge while it grows. See `SIMULATION.md`.
//!
//! # Building it
//!
//! Worlds need the simulator: they exist in builds with `--cfg madsim` only. Plans, histories,
//! oracles, campaigns and the command line are ordinary code, which every build checks and
//! tests. The suites under `tests/` need the feature `simulation`, so that builds of the whole
//! workspace leave them out, and they refuse to compile without `--cfg madsim`: whoever asks
//! for one gets a simulation or an error, never an empty pass. `cargo xtask test` builds and
//! runs them with both; by hand:
//!
//! ```text
//! cargo sim -p kvbaton-transport-sim --features simulation
//! ```

#[cfg(madsim)]
pub mod bootstrap;
pub mod campaign;
#[cfg(madsim)]
pub mod control;
#[cfg(madsim)]
pub mod data;
pub mod history;
#[cfg(madsim)]
pub mod memory;
pub mod oracles;
pub mod plan;
pub mod scenarios;
#[cfg(madsim)]
pub mod sim;
pub mod sites;
#[cfg(madsim)]
pub mod stock;
#[cfg(madsim)]
pub mod transport;
#[cfg(madsim)]
pub mod world;
/// Without the simulator there are no worlds, only what their runs come to.
#[cfg(not(madsim))]
#[path = "world/outcome.rs"]
pub mod world;
