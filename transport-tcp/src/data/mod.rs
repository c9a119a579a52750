//! The TCP data plane: ours (see `PROTOCOL.md` beside this file) and Mooncake's.
//!
//! A write is cut into parts, one a connection, and each part into bounded frames that
//! are sent straight from registered memory. The receiver reads straight into granted
//! rows, and checks before each read that the grant and the registration still live
//! `[G01]`: a lock is held for that one non-blocking read, so `revoke` and `unregister`
//! never wait for a peer `[G02]`.

mod config;
mod counters;
mod frame;
pub mod hello;
mod lane;
mod listen;
pub mod memory;
mod mooncake;
pub mod net;
mod outgoing;
mod peer;
mod plane;
mod receive;
mod timer;
mod write;

pub use config::{AddressCheck, DataConfig, is_loopback_or_private};
pub use plane::TcpDataPlane;
