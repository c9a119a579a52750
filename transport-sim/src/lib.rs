//! kvbaton's actors in a simulated world: network, memory, processes and engines are
//! functions of one seed; oracles watch every step.
//!
//! A [`plan::Plan`] says everything that is decided before a run. Running it gives a
//! [`history::History`], which the oracles judge while it grows. See `SIMULATION.md`.

pub mod bootstrap;
pub mod campaign;
pub mod control;
pub mod data;
pub mod history;
pub mod memory;
pub mod oracles;
pub mod plan;
pub mod scenarios;
pub mod sim;
pub mod sites;
pub mod stock;
pub mod transport;
pub mod world;
