//! Actors around kvbaton's machines, the transport traits, the runtime facade and
//! the embedding API.

pub mod transport;
