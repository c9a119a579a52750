//! What the `kvbaton` command does, as a library so that tests can drive the parts.

pub mod bench;
pub mod demo;
pub mod doctor;
pub mod engine;
pub mod inspect;
mod log;
pub mod mapping;
pub mod serve;
pub mod transport;
