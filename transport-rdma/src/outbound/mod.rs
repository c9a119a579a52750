//! The side that writes: one link a peer and registration, with a thread of its own.

mod batch;
mod connect;
mod connection;
mod job;
mod link;
mod mend;
mod worker;

pub(crate) use link::Link;
