//! What the demo and its engine processes say to each other: one JSON object a line, over
//! the engine's stdin and stdout.

use crate::engine::{Measured, Notice, Operate, Snapshot, Submit};
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
    /// Do this to the engine's lifecycle; [`FromEngine::Operated`] is the answer. Several may
    /// be out at a time.
    Operate {
        /// Names the question.
        id: u64,
        /// What.
        operate: Operate,
    },
    /// Answer [`FromEngine::Measured`].
    Measure,
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
    /// An operation has ended.
    Operated {
        /// Which.
        id: u64,
        /// How.
        ended: Operated,
    },
    /// What of its memory is there.
    Measured(Measured),
    /// Nothing is in use any more, or the time is over.
    Settled(Snapshot),
}

/// How an operation ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operated {
    /// Microseconds that it took.
    pub took_us: u64,
    /// Its words, if it failed.
    pub error: Option<String>,
    /// Of a reset of the prefix cache: whether it is empty.
    pub emptied: Option<bool>,
}
