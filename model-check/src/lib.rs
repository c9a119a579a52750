//! x
pub mod check;
pub mod coverage;
pub mod options;
pub mod rules;
pub mod step;
pub mod world;
mod data_plane; mod decode; mod memory; mod moves; mod memo; mod names; mod network; mod prefill;
