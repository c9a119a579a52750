//! libibverbs inside one process: devices that exist in memory only, and fail on demand.
//!
//! Tests link it and load its functions by name ([`symbol`]), or open it in place of
//! `libibverbs.so.1`: the functions have rdma-core's names and types. RDMA writes between
//! queue pairs of this process are memory copies, checked as an adapter checks them: states,
//! sequence numbers, keys, ranges, permissions, sizes of queues. What an adapter would do
//! later (deliver, notify) happens at once unless a test holds it.
//!
//! What it leaves out: receive requests, reads, atomics, anything between processes, and
//! time: a peer that does not answer is noticed at once.

#[allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    dead_code,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    reason = "made by bindgen, shared with transport-rdma"
)]
#[path = "../../src/verbs/bindings.rs"]
mod bindings;
mod control;
mod objects;
mod queue_pairs;
mod verbs;
mod world;

pub use control::{Device, Fabric, Live, NewDevice};
pub use verbs::symbol;
