//! One engine's process: a scheduler and its ranks, each with a node.

mod expect;
mod gather;
mod host;
mod leftovers;
mod lifecycle;
mod loads;
mod order;
mod ports;
mod ranks;
mod reregister;
mod rows;
mod start;

pub use order::{Input, Order, Source, Submit, Told};
pub use ports::started;
pub use rows::payload;
pub use start::run;
