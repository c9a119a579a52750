//! What a caller asks of an engine.

use kvbaton_core::ids::{RequestId, TransferId};

/// What an engine is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Prefills and sends.
    Prefill,
    /// Loads and decodes.
    Decode,
    /// Either.
    Both,
}

/// What becomes of a request whose load failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnLoadFailure {
    /// It fails.
    Fail,
    /// It starts over with 0 computed tokens.
    Recompute,
}

/// A request's part in a transfer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transfer {
    /// None: prefill and decode here.
    None,
    /// P: prefill, sample one token, hold the KV.
    Send(TransferId),
    /// D: load the prompt's KV, then decode.
    Load(TransferId),
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    /// Its name, free to use again once its answer is given and its blocks are back.
    pub id: RequestId,
    /// The prompt; at least one token.
    pub prompt: Vec<u32>,
    /// Tokens to generate, at least 1; 1 for [`Transfer::Send`].
    pub max_tokens: usize,
    /// Its part in a transfer.
    pub transfer: Transfer,
}

/// Why a request was not taken. Nothing is kept of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// No prompt.
    #[error("request {0} has no prompt tokens: send at least one")]
    NoPrompt(RequestId),
    /// Too few or too many tokens to generate.
    #[error(
        "request {id} wants {max_tokens} tokens: at least 1, and exactly 1 when its KV is sent"
    )]
    MaxTokens {
        /// The request.
        id: RequestId,
        /// What it asked for.
        max_tokens: usize,
    },
    /// The id is in use, perhaps by a request whose blocks are not back yet `[P11]`.
    #[error("request {0} exists already: use another id, or wait until its blocks are back")]
    Duplicate(RequestId),
    /// The engine does not do this kind of transfer.
    #[error("request {id} cannot run here: a {role:?} engine does not take this transfer")]
    WrongRole {
        /// The request.
        id: RequestId,
        /// What the engine is for.
        role: Role,
    },
    /// It would not fit even if it were alone `[F31]`.
    #[error(
        "request {id} needs {needed} blocks but the pool has {total}: shorten it or enlarge the pool"
    )]
    TooLarge {
        /// The request.
        id: RequestId,
        /// Blocks it needs at its longest.
        needed: usize,
        /// Blocks of the pool.
        total: usize,
    },
}
