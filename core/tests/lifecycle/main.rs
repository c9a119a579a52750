//! The lifecycle of a whole engine: every fault at every step of every operation.

mod faults;
mod orders;
mod starts;
mod table;
mod world;
