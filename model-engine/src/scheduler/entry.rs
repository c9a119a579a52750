//! One request, as the scheduler keeps it.

use crate::action::{BlockTable, Step};
use crate::model::{PrefixChain, Weights};
use crate::request::{Request, Transfer};
use kvbaton_core::ids::RequestId;

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Has no blocks, waits for them.
    Queued,
    /// Its KV is being loaded: bytes may land in its blocks.
    Loading,
    /// Has blocks and waits for the end of a pause.
    Paused,
    /// A step of it is out: ranks may write its blocks.
    Computing,
    /// Answered; its blocks wait for the transfer to end.
    Held,
}

/// What becomes of a request once its load or step is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It goes on.
    GoOn,
    /// It starts over with 0 computed tokens `[R04]`.
    StartOver,
    /// It is gone: only its blocks are left.
    Aborted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub request: Request,
    /// Prompt and generated tokens.
    pub tokens: Vec<u32>,
    pub chain: PrefixChain,
    pub table: BlockTable,
    pub phase: Phase,
    pub fate: Fate,
    /// Tokens whose KV is there.
    pub computed: usize,
    /// Tokens whose full blocks were offered to the prefix cache.
    pub published: usize,
    /// Whether prefix hits are not to be used: it starts with 0 computed tokens.
    pub from_scratch: bool,
}

impl Entry {
    pub fn new(request: Request, weights: Weights) -> Self {
        Self {
            tokens: request.prompt.clone(),
            chain: PrefixChain::new(weights, &request.prompt),
            table: BlockTable::default(),
            phase: Phase::Queued,
            fate: Fate::GoOn,
            computed: 0,
            published: 0,
            from_scratch: false,
            request,
        }
    }

    /// Tokens whose KV the request has at its longest: the last token needs none.
    pub fn end(&self) -> usize {
        self.request.prompt.len() + self.request.max_tokens - 1
    }

    pub fn generated(&self) -> &[u32] {
        &self.tokens[self.request.prompt.len()..]
    }

    /// The step that writes what KV is missing and reads all of it.
    pub fn step(&self, id: &RequestId) -> Step {
        let (from, to) = (self.computed, self.tokens.len());
        Step {
            request: id.clone(),
            from,
            to,
            prefix: self.chain.hashes()[from..to].to_vec(),
            table: self.table.clone(),
        }
    }

    /// Back to the start, without blocks (the caller has given them back).
    pub fn start_over(&mut self, weights: Weights) {
        if matches!(self.request.transfer, Transfer::Load(_)) {
            self.request.transfer = Transfer::None;
        }
        self.chain = PrefixChain::new(weights, &self.tokens);
        self.table = BlockTable::default();
        self.phase = Phase::Queued;
        self.fate = Fate::GoOn;
        self.computed = 0;
        self.published = 0;
        self.from_scratch = true;
    }
}
