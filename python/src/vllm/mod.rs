//! The two halves of the connector that an engine loads; `kvbaton/vllm` calls them.

mod orders;
mod scheduler;
mod settings;
mod stats;
mod worker;

pub use scheduler::SchedulerSide;
pub use settings::ConnectorSettings;
pub use worker::WorkerSide;
