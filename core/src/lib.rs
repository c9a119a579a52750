//! The decisions of kvbaton, without any effect.
//!
//! Nothing here reads a clock, opens a socket, starts a thread or awaits. Each
//! machine takes the time and an input, changes itself once, and queues actions for
//! its caller to carry out.
#![forbid(unsafe_code)]

pub mod align;
pub mod blocks;
pub mod connector;
pub mod deadlines;
pub mod directory;
pub mod fingerprint;
pub mod ids;
pub mod incompatible;
pub mod layout;
pub mod lifecycle;
pub mod peer_layouts;
pub mod plan;
pub mod planted;
pub mod receiver;
pub mod region;
pub mod sender;
pub mod time;
pub mod topology;
pub mod wire;
