//! Discovery: where P's ranks register and D's ask `[P12]`.
//!
//! The server answers as stock ones do, and carries one field more, `kvbaton`, which
//! stock clients skip. Unlike a stock server it lets a restarted rank replace its
//! predecessor.
//!
//! `features` and `incarnation` are 64-bit numbers; JSON readers other than ours may
//! round those, so they travel as hexadecimal strings (`"0x1f"`).

mod client;
mod directory;
mod json;
mod server;

pub use client::{BootstrapClientConfig, HttpBootstrap};
pub use server::{BootstrapConfig, BootstrapServer};
