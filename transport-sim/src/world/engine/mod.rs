//! One engine's process: a scheduler and its ranks, each with a node.

mod expect;
mod gather;
mod host;
mod loads;
mod order;
mod ports;
mod rows;
mod sleeping;
mod start;

pub use order::{Input, Order, Source, Submit, Told};
pub use ports::started;
pub use rows::payload;
pub use start::run;
