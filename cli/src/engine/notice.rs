//! What an engine is asked and what it reports, in a form that another process can read.

use serde::{Deserialize, Serialize};

/// Where D finds a request's KV.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// P's engine id.
    pub engine: String,
    /// P's bootstrap server.
    pub bootstrap: String,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submit {
    /// Its id, unique in the engine.
    pub request: String,
    /// Its transfer, the same on both sides.
    pub transfer: String,
    /// The prompt.
    pub prompt: Vec<u32>,
    /// Tokens to generate.
    pub max_tokens: usize,
    /// On D, where the KV is; `None` on P.
    pub source: Option<Source>,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// With these tokens.
    Tokens(Vec<u32>),
    /// Its load failed; the reason came with [`Notice::LoadFailed`].
    LoadFailed,
    /// It was aborted.
    Aborted,
}

/// One thing that happened in an engine. Times are of the machine's monotonic clock, in
/// nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "notice")]
pub enum Notice {
    /// P: the request's KV is complete, and every rank holds it for D.
    Held {
        /// The request.
        request: String,
        /// When.
        at: u64,
    },
    /// P: its blocks came back on every rank.
    SendEnded {
        /// The request.
        request: String,
        /// How, on each rank.
        how: String,
    },
    /// D: all KV of the request is there, on every rank.
    Loaded {
        /// The request.
        request: String,
        /// When the load was asked for.
        started: u64,
        /// When its last rank had it.
        at: u64,
        /// Logical blocks, over all groups.
        blocks: u64,
        /// Bytes, over all ranks.
        bytes: u64,
        /// Tokens that were there already.
        hit_tokens: usize,
    },
    /// D: the load failed on some rank.
    LoadFailed {
        /// The request.
        request: String,
        /// The first failure.
        why: String,
        /// Whether the engine computes the request itself instead.
        recomputes: bool,
    },
    /// D: loaded KV was compared with what the model says it is.
    Compared {
        /// The request.
        request: String,
        /// Bytes compared.
        bytes: u64,
        /// Bytes that differ.
        different: u64,
        /// The first that does.
        first: Option<String>,
    },
    /// The engine computes a request's prompt, on D although it was to be loaded, on P again.
    Recomputed {
        /// The request.
        request: String,
    },
    /// The blocks of the request that was aborted last are back.
    BlocksBack {
        /// The request.
        request: String,
        /// Nanoseconds since the abort was asked for.
        took: u64,
    },
    /// The request's answer.
    Answer {
        /// The request.
        request: String,
        /// How it ended.
        outcome: Outcome,
    },
    /// The request was not taken.
    Refused {
        /// The request.
        request: String,
        /// Why.
        why: String,
    },
}

/// How an engine stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// What is still in use, in words; empty when every block and load has come back.
    pub leftovers: Vec<String>,
    /// Payload bytes that landed in its memory, over all ranks.
    pub bytes_received: u64,
    /// Writes refused by its data planes (late, stale or out of range).
    pub refused_writes: u64,
    /// Each node's metrics in Prometheus' text format, then the lifecycle's.
    pub metrics: Vec<String>,
}

/// What of an engine's memory is there, in bytes over all its ranks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Measured {
    /// The lifecycle's state.
    pub state: String,
    /// KV memory in place.
    pub kv_resident: u64,
    /// Weights in place.
    pub weights_resident: u64,
    /// Weights kept elsewhere.
    pub weights_kept: u64,
    /// The whole process.
    pub process_resident: u64,
}
