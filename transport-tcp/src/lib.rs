//! kvbaton over TCP: control plane, data plane, bootstrap server, who may talk to whom.

pub mod bootstrap;
pub mod control;
pub mod data;
pub mod http;
pub mod key;
pub mod network;
mod transport;

pub use transport::{TcpConfig, TcpTransport};
