//! What an engine's process is asked, and what it tells.

use futures_channel::mpsc::UnboundedSender;
use futures_channel::oneshot;
use kvbaton_actors::engine::Asked;
use kvbaton_actors::events::Event;
use kvbaton_core::ids::{EngineId, RequestId, TransferId, WeightVersion};
use kvbaton_model_engine::Step;
use std::sync::Arc;

/// Where D finds a request's KV.
#[derive(Debug, Clone)]
pub struct Source {
    /// P's engine.
    pub engine: EngineId,
    /// Its bootstrap server.
    pub bootstrap: Arc<str>,
}

/// One request for an engine.
pub struct Submit {
    /// Its name in this engine.
    pub request: RequestId,
    /// Its transfer.
    pub transfer: TransferId,
    /// The prompt.
    pub prompt: Vec<u32>,
    /// Tokens to generate.
    pub max_tokens: u32,
    /// On D, where the KV is; `None` on P.
    pub source: Option<Source>,
    /// Where its end is told. Dropped when the process dies.
    pub told: UnboundedSender<Told>,
}

/// How a request ended in an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// It has these tokens; see [`crate::history::Answer::Tokens`].
    Tokens {
        /// The tokens.
        tokens: Vec<u32>,
        /// What they may be.
        expected: Vec<Vec<u32>>,
    },
    /// Its load failed.
    LoadFailed,
    /// It was aborted.
    Aborted,
    /// It was not taken.
    Refused(Arc<str>),
}

/// What an engine's process is asked to do.
pub enum Order {
    /// Take a request.
    Submit(Submit),
    /// End a request.
    Abort(RequestId),
    /// Take every block away: preempt what runs, drop loads, release what is held.
    GiveBack,
    /// Tell every rank's node of new weights.
    SetWeights(WeightVersion),
    /// Unregister every rank, or none.
    Unregister(oneshot::Sender<Result<(), String>>),
    /// Register every rank again.
    Restore(oneshot::Sender<()>),
    /// P: release what is held.
    ReleaseAll,
    /// Note how full tables are, and tell what is left over.
    Inspect(oneshot::Sender<Vec<Arc<str>>>),
}

/// What comes to an engine's process.
pub enum Input {
    /// From outside.
    Order(Order),
    /// From a rank's node.
    Event(usize, Event),
    /// A step's time has come.
    StepDone(Box<Step>),
    /// What was computed a while ago is to be held now.
    HoldNow(Box<Hold>),
    /// From its lifecycle.
    Asked(Asked),
    /// An order of it that takes time can be carried out now.
    OrderNow,
}

/// A finished request to hold for D.
pub struct Hold {
    /// P's request.
    pub request: RequestId,
    /// The transfer.
    pub transfer: TransferId,
    /// Logical blocks per group.
    pub blocks: Vec<kvbaton_core::blocks::BlockList>,
    /// Tokens that they hold.
    pub end_token: usize,
}
