//! kvbaton over TCP.

pub mod data;
