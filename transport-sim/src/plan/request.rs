//! What clients ask for.

use serde::{Deserialize, Serialize};

/// One client request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestPlan {
    /// Its number; unique in a plan.
    pub id: u32,
    /// When it comes, in virtual milliseconds.
    pub at_ms: u64,
    /// Prompts of one family share their beginning.
    pub family: u32,
    /// Tokens of the prompt, at least 1.
    pub prompt_len: u32,
    /// Of these, how many the family shares.
    pub shared_len: u32,
    /// Tokens to generate, at least 1.
    pub max_tokens: u32,
    /// P's engine.
    pub prefill: u16,
    /// D's engine.
    pub decode: u16,
    /// When the client goes away, if it does.
    pub leaves_at_ms: Option<u64>,
    /// How often the client tries again after it got no tokens.
    pub retries: u32,
    /// What is odd about it.
    pub quirk: Quirk,
}

/// What a request can have that others do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quirk {
    /// Nothing.
    None,
    /// P gets it this much later than D, in milliseconds.
    PrefillLate(u64),
    /// D gets it this much later than P.
    DecodeLate(u64),
    /// It has the transfer id of an earlier request `[P11]`.
    SameTransferAs(u32),
    /// It reuses the request and transfer ids of an earlier request, once that has ended.
    SameIdsAs(u32),
    /// D never gets it: P's hold must end by itself.
    NeverPulled,
    /// P never gets it: D's load must end by itself.
    NeverPrefilled,
    /// P's engine releases it as soon as it is held, or before.
    ReleasedEarly,
    /// This many samples of one prompt, each with ids of its own (n > 1).
    Samples(u32),
}
