//! The safe layer over libibverbs: devices, memory, queues. It knows no protocol.
//!
//! Every object keeps its parents alive, so that nothing is destroyed before what was made
//! from it. All of it may be used from any thread, as rdma-core promises.

#[allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    dead_code,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    reason = "made by bindgen"
)]
mod bindings;
mod completion;
mod device;
mod error;
mod events;
mod gid;
mod memory;
mod queue_pair;
mod table;

pub use completion::{Channel, Completion, CompletionQueue, Status};
pub use device::{Context, DeviceLimits, Port, devices};
pub use error::VerbsError;
pub use events::AsyncEvent;
pub use gid::{Gid, GidEntry, GidKind};
pub use memory::{Dmabuf, MemoryRegion, ProtectionDomain};
pub use queue_pair::{Endpoint, Posted, QueuePair, QueueSizes, SendQueue, Timing, WritePiece};
pub use table::{Find, Verbs};
pub(crate) use table::{find, open_library};
