//! Decisions of a connector inside an engine: between the engine's scheduler, which owns
//! requests and blocks, and the nodes of its workers, which move KV.
//!
//! [`Scheduling`] is asked at every hook of the scheduler and queues [`Order`]s, which go
//! to every worker with the next step. [`Working`] follows the orders of one worker and
//! says what the engine must be told, each thing once.

mod groups;
mod intent;
mod orders;
mod scheduling;
mod working;

pub use groups::ConnectorGroup;
pub use intent::{Intent, IntentError, Parameters, Source};
pub use orders::{HoldId, Order, Orders};
pub use scheduling::{Ending, Matched, Scheduling, SchedulingConfig};
pub use working::{Report, Working};
