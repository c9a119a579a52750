//! From two layouts and the blocks of a request to byte copies.
//!
//! [`PreparedLayout`] holds all that does not depend on a request. [`PreparedLayout::plan`]
//! is the hot path: block lists become runs once per group, and each run is applied to
//! the group's spans `[A08]`.

mod coalesce;
mod copies;
mod heads;
mod local;
mod prepare;
mod rows;
mod runs;

pub use copies::{BlockRequest, PlanScratch, PlanSummary, TokenEnds};
pub(crate) use local::groups_of;
pub use local::{GroupSpec, Heads, LocalLayout, PeerTopology};
pub use prepare::PreparedLayout;
pub(crate) use rows::RowMap;
