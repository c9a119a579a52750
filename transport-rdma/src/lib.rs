//! kvbaton over RDMA: the data plane over libibverbs, which is opened at run time.
//!
//! [`RdmaDataPlane`] implements the actors' `DataPlane`; control plane and bootstrap are
//! `transport-tcp`'s. `PROTOCOL.md` beside this file says what travels between two of them.

mod clock;
mod config;
mod counters;
pub mod doctor;
mod gpu;
mod inbound;
mod keys;
mod locality;
mod memory;
mod outbound;
mod plane;
mod promise;
mod rail;
mod side;
mod transport;
pub mod verbs;
mod wire;
mod write;

pub use config::{DeviceChoice, RdmaConfig};
pub use gpu::{Cuda, Exported, GpuMemory, NoGpu};
pub use locality::numa_node_of_pci;
pub use plane::RdmaDataPlane;
pub use transport::RdmaTransport;
