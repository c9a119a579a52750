//! kvbaton's actors in a simulated world: network, memory, processes and engines are
//! functions of one seed; oracles watch every step.
//!
//! A [`plan::Plan`] says everything that is decided before a run. Running it gives a
//! [`history::History`], which the oracles judge while it grows. See `SIMULATION.md`.
#![forbid(unsafe_code)]

pub mod campaign;
pub mod history;
pub mod oracles;
pub mod plan;
pub mod world;
