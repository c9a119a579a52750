//! One model engine over nodes: a scheduler, its ranks, and one node with its own memory
//! per rank. The demo runs each in a process of its own; tests may run several in one.

mod clock;
mod computing;
mod fit;
mod gather;
mod host;
mod lifecycle;
mod memory;
mod model;
mod notice;
mod operate;
mod snapshot;
mod spec;
mod transfers;
mod weights;

pub use clock::monotonic_nanos;
pub use fit::check_pair;
pub use host::EngineHost;
pub use memory::RankNode;
pub use model::{Model, ModelKind};
pub use notice::{Measured, Notice, Outcome, Snapshot, Source, Submit};
pub use operate::{Awake, Mode, Operate};
pub use spec::{EngineSpec, Side, WEIGHTS};
