//! What the demo and its engine processes say to each other: one JSON object a line, over
//! the engine's stdin and stdout.

use crate::engine::{Notice, Snapshot, Submit};
use serde::{Deserialize, Serialize};

/// To an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "say")]
pub enum ToEngine {
    /// Run a request.
    Submit(Submit),
    /// End a request.
    Abort {
        /// The request.
        request: String,
    },
    /// Wait until nothing is in use, then answer [`FromEngine::Settled`].
    Settle {
        /// Answer after so many milliseconds in any case.
        within_ms: u64,
    },
    /// Stop in good order.
    Stop,
}

/// From an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "say")]
pub enum FromEngine {
    /// Its memory is registered and, on P, announced.
    Ready {
        /// P's bootstrap server.
        bootstrap: Option<String>,
    },
    /// Something happened to a request.
    Notice(Notice),
    /// Nothing is in use any more, or the time is over.
    Settled(Snapshot),
}
