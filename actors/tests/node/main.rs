//! Nodes joined by a transport in memory: the same tests run on the real runtime and, with
//! `--cfg madsim`, in the simulator.

mod engine;
mod loading;
mod registering;
mod restarting;
mod transport;
mod two_phases;
mod world;
