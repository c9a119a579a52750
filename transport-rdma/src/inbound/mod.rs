//! The side that is written to: who is connected, who writes under which grant, and fencing.

mod connection;
mod fence;
mod listen;
mod table;

pub(crate) use listen::{Connections, serve};
pub(crate) use table::Receivers;
