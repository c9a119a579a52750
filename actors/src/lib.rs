//! Actors around kvbaton's machines, the transport traits, the runtime facade and
//! the embedding API ([`node::Node`]).

mod alarm;
pub mod clock;
pub mod decode_receiver;
pub mod discovery;
pub mod engine;
pub mod events;
pub mod layout_cache;
pub mod lifecycle_manager;
pub mod metric;
pub mod node;
mod planted;
pub mod prefill_sender;
pub mod runtime;
pub mod transport;
