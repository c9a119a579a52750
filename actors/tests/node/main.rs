//! Nodes joined by a transport in memory: the same tests run on the real runtime and, with
//! `--cfg madsim`, in the simulator.

mod loading;
mod registering;
mod restarting;
mod transport;
mod world;
