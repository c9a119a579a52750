//! What is simulated.

use kvbaton_transport_sim::campaign::{Suite, fake};

/// The world, its scenarios, sites and planted bugs.
pub fn suite() -> Suite<'static> {
    fake::suite()
}
