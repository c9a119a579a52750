//! The simulated data plane: writes take time, arrive in pieces, are torn by crashes, and
//! may land after their issuer gave up.

mod flight;
mod ranges;
mod receive;
mod state;

pub use ranges::merged;
pub use state::{Checks, SimData};
