//! Decides blocks and steps for a whole engine: the same block ids on all its ranks.
//!
//! Inputs change the state once and queue actions; the driver drains them with
//! [`Scheduler::next_action`] until there are none. Reporting what is unknown or over
//! changes nothing and says so `[P13]`.

mod allot;
mod entry;
mod lifecycle;

pub use lifecycle::{Gate, Progress, Until};

use crate::action::{Action, Outcome};
use crate::model::{Digest, Weights, next_token};
use crate::pool::{BlockPool, Counts};
use crate::request::{AddError, OnLoadFailure, Request, Role, Transfer};
use crate::shape::Shape;
use entry::{Entry, Fate, Phase};
use kvbaton_core::ids::{BlockId, RequestId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What a scheduler is made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// The model.
    pub shape: Arc<Shape>,
    /// Blocks of each rank, the null block included.
    pub blocks: u32,
    /// The weights at the start.
    pub weights: Weights,
    /// What the engine is for.
    pub role: Role,
    /// What becomes of a request whose load failed.
    pub on_load_failure: OnLoadFailure,
}

/// The scheduler of one engine. Requests start in the order in which they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduler {
    config: SchedulerConfig,
    pool: BlockPool,
    entries: BTreeMap<RequestId, Entry>,
    queue: VecDeque<RequestId>,
    actions: VecDeque<Action>,
    gate: Gate,
}

impl Scheduler {
    /// A scheduler without requests.
    #[must_use]
    pub fn new(config: SchedulerConfig) -> Self {
        Self {
            pool: BlockPool::new(config.blocks),
            config,
            entries: BTreeMap::new(),
            queue: VecDeque::new(),
            actions: VecDeque::new(),
            gate: Gate::Open,
        }
    }

    /// Takes the next action to carry out.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Adds a request; it starts as soon as there are blocks for all of it.
    ///
    /// # Errors
    /// When it can never run here; nothing is kept of it then.
    pub fn add_request(&mut self, request: Request) -> Result<(), AddError> {
        self.check(&request)?;
        let id = request.id.clone();
        self.entries.insert(id.clone(), Entry::new(request, self.config.weights));
        self.queue.push_back(id);
        self.tick();
        Ok(())
    }

    fn check(&self, request: &Request) -> Result<(), AddError> {
        let id = request.id.clone();
        if request.prompt.is_empty() {
            return Err(AddError::NoPrompt(id));
        }
        let send = matches!(request.transfer, Transfer::Send(_));
        let max_tokens = request.max_tokens;
        if max_tokens == 0 || (send && max_tokens != 1) {
            return Err(AddError::MaxTokens { id, max_tokens });
        }
        let role = self.config.role;
        match (&request.transfer, role) {
            (Transfer::Load(_), Role::Prefill) | (Transfer::Send(_), Role::Decode) => {
                return Err(AddError::WrongRole { id, role });
            }
            _ => {}
        }
        // A request that starts over late keeps less in front than at its start, never more.
        let end = request.prompt.len().saturating_add(max_tokens - 1);
        let needed = self.config.shape.blocks_needed(request.prompt.len(), end);
        if needed > self.pool.total() {
            return Err(AddError::TooLarge { id, needed, total: self.pool.total() });
        }
        if self.entries.contains_key(&id) {
            return Err(AddError::Duplicate(id));
        }
        Ok(())
    }

    /// Starts what can start. Every input does so by itself.
    pub fn tick(&mut self) {
        while self.gate == Gate::Open
            && let Some(id) = self.queue.front().cloned()
        {
            let (shape, version) = (self.config.shape.clone(), self.config.weights.version);
            let entry = self.entries.get_mut(&id).expect("a queued request has an entry");
            if !allot::allot(&mut self.pool, &shape, version, entry) {
                return;
            }
            self.queue.pop_front();
            self.start(&id);
        }
    }

    /// Starts a request that has just got its blocks.
    fn start(&mut self, id: &RequestId) {
        let entry = self.entries.get_mut(id).expect("the caller has it");
        let Transfer::Load(transfer) = entry.request.transfer.clone() else {
            return self.compute(id);
        };
        let (first_token, end_token) = (entry.computed, entry.tokens.len());
        let request = id.clone();
        if first_token == end_token {
            entry.request.transfer = Transfer::None;
            self.actions.push_back(Action::ReleaseRemote { request, transfer });
            return self.compute(id);
        }
        entry.phase = Phase::Loading;
        let blocks = entry.table.lists(&self.config.shape, first_token, end_token);
        self.actions.push_back(Action::Load { request, transfer, blocks, first_token, end_token });
    }

    /// Sends the request's next step out, or keeps it for the end of the pause.
    fn compute(&mut self, id: &RequestId) {
        let entry = self.entries.get_mut(id).expect("the caller has it");
        if self.gate == Gate::Frozen {
            entry.phase = Phase::Paused;
        } else {
            entry.phase = Phase::Computing;
            self.actions.push_back(Action::Compute(entry.step(id)));
        }
    }

    /// Every rank has carried the request's step out, and this is what they read.
    pub fn computed(&mut self, id: &RequestId, digest: Digest) -> bool {
        let Some(entry) = self.in_phase(id, Phase::Computing) else { return false };
        if entry.fate != Fate::GoOn {
            self.end_cut_short(id);
            return true;
        }
        entry.computed = entry.tokens.len();
        let token = next_token(digest, entry.computed);
        entry.tokens.push(token);
        entry.chain.push(token);
        let done = entry.generated().len() == entry.request.max_tokens;
        let entry = self.entries.get_mut(id).expect("it was there just now");
        allot::publish(&mut self.pool, &self.config.shape, self.config.weights.version, entry);
        if done {
            self.finish(id)
        } else {
            self.compute(id)
        }
        true
    }

    /// Answers a request that has all its tokens.
    fn finish(&mut self, id: &RequestId) {
        let entry = self.entries.get_mut(id).expect("the caller has it");
        let outcome = Outcome::Tokens(entry.generated().to_vec());
        let request = id.clone();
        self.actions.push_back(Action::Answer { request: request.clone(), outcome });
        if let Transfer::Send(transfer) = entry.request.transfer.clone() {
            entry.phase = Phase::Held;
            let end_token = entry.computed;
            let blocks = entry.table.lists(&self.config.shape, 0, end_token);
            self.actions.push_back(Action::Hold { request, transfer, blocks, end_token });
        } else {
            self.forget(id);
        }
    }

    /// All KV of the request's load has landed on every rank.
    pub fn load_finished(&mut self, id: &RequestId) -> bool {
        let Some(entry) = self.in_phase(id, Phase::Loading) else { return false };
        if entry.fate != Fate::GoOn {
            self.end_cut_short(id);
            return true;
        }
        entry.computed = entry.tokens.len();
        entry.request.transfer = Transfer::None;
        self.compute(id);
        true
    }

    /// The request's load failed on some rank, and no byte of it can land any more.
    pub fn load_failed(&mut self, id: &RequestId) -> bool {
        let Some(entry) = self.in_phase(id, Phase::Loading) else { return false };
        match (entry.fate, self.config.on_load_failure) {
            (Fate::GoOn, OnLoadFailure::Fail) => {
                self.answer(id, Outcome::LoadFailed);
                self.forget(id);
            }
            (Fate::GoOn, OnLoadFailure::Recompute) => self.start_over(id),
            (Fate::StartOver | Fate::Aborted, _) => self.end_cut_short(id),
        }
        true
    }

    /// The request's load was cut short by a reset of either engine, and no byte of it can land
    /// any more: it starts over with 0 computed tokens, whatever the failure policy `[R04]`.
    pub fn load_cut_short(&mut self, id: &RequestId) -> bool {
        let Some(entry) = self.in_phase(id, Phase::Loading) else { return false };
        match entry.fate {
            Fate::GoOn => self.start_over(id),
            Fate::StartOver | Fate::Aborted => self.end_cut_short(id),
        }
        true
    }

    /// The request's transfer is over (sent, released or expired) and nothing reads its
    /// blocks any more.
    pub fn send_finished(&mut self, id: &RequestId) -> bool {
        if self.in_phase(id, Phase::Held).is_none() {
            return false;
        }
        self.forget(id);
        true
    }

    /// Ends the request. Blocks that a load or a step may still write come back when its
    /// end is reported; held blocks when `send_finished` is.
    pub fn abort(&mut self, id: &RequestId) -> bool {
        let Some(entry) = self.entries.get_mut(id) else { return false };
        let (phase, fate) = (entry.phase, entry.fate);
        if fate == Fate::Aborted {
            return false;
        }
        let (request, transfer) = (id.clone(), entry.request.transfer.clone());
        match (transfer, phase) {
            (Transfer::Load(transfer), Phase::Loading) if fate == Fate::GoOn => {
                self.actions.push_back(Action::DropLoad { request, transfer });
            }
            (Transfer::Load(transfer), Phase::Queued) => {
                self.actions.push_back(Action::ReleaseRemote { request, transfer });
            }
            (Transfer::Send(transfer), _) => {
                self.actions.push_back(Action::Release { request, transfer });
            }
            _ => {}
        }
        entry.fate = Fate::Aborted;
        if phase != Phase::Held {
            self.answer(id, Outcome::Aborted);
        }
        if matches!(phase, Phase::Queued | Phase::Paused) {
            self.forget(id);
        }
        true
    }

    /// Takes every running request's blocks away: it starts over, with the tokens it has and
    /// 0 computed ones, whatever the failure policy `[R04]`. Loads are dropped; they and steps
    /// that are out keep their blocks until their end is reported. Held blocks stay.
    pub fn preempt_all(&mut self) {
        let ids: Vec<_> = self.entries.keys().rev().cloned().collect();
        for id in ids {
            let entry = self.entries.get_mut(&id).expect("ids are of entries");
            match entry.phase {
                Phase::Loading | Phase::Computing if entry.fate == Fate::GoOn => {
                    entry.fate = Fate::StartOver;
                    if let Transfer::Load(transfer) = entry.request.transfer.clone() {
                        self.actions.push_back(Action::DropLoad { request: id, transfer });
                    }
                }
                Phase::Paused => self.start_over(&id),
                _ => {}
            }
        }
    }

    /// Goes over to new weights and forgets the prefix cache `[R07]`; loads that have not
    /// started are given up, and their requests start over. False, and nothing changed, while
    /// any request or transfer has blocks `[R06]`.
    #[must_use]
    pub fn update_weights(&mut self, version: u64) -> bool {
        if self.pool.counts().held != 0 {
            return false;
        }
        self.config.weights.version = version;
        self.pool.forget_cache();
        for (id, entry) in &mut self.entries {
            if let Transfer::Load(transfer) = entry.request.transfer.clone() {
                self.actions.push_back(Action::ReleaseRemote { request: id.clone(), transfer });
            }
            entry.start_over(self.config.weights);
        }
        true
    }

    fn in_phase(&mut self, id: &RequestId, phase: Phase) -> Option<&mut Entry> {
        self.entries.get_mut(id).filter(|entry| entry.phase == phase)
    }

    fn answer(&mut self, id: &RequestId, outcome: Outcome) {
        self.actions.push_back(Action::Answer { request: id.clone(), outcome });
    }

    /// A load or a step that was cut short is over: its blocks are safe to take.
    fn end_cut_short(&mut self, id: &RequestId) {
        match self.entries[id].fate {
            Fate::StartOver => self.start_over(id),
            Fate::Aborted | Fate::GoOn => self.forget(id),
        }
    }

    fn start_over(&mut self, id: &RequestId) {
        self.give_back(id);
        let entry = self.entries.get_mut(id).expect("the caller has it");
        entry.start_over(self.config.weights);
        self.queue.push_front(id.clone());
        self.tick();
    }

    fn forget(&mut self, id: &RequestId) {
        self.give_back(id);
        self.entries.remove(id);
        self.queue.retain(|queued| queued != id);
        self.tick();
    }

    fn give_back(&mut self, id: &RequestId) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        let table = std::mem::take(&mut entry.table);
        let blocks: Vec<BlockId> =
            table.blocks().filter(|&block| self.pool.give_back(block)).collect();
        if !blocks.is_empty() {
            self.actions.push_back(Action::Free { request: id.clone(), blocks });
        }
    }

    /// Where all blocks are.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.pool.counts()
    }

    /// Requests that have not ended: queued, running, held, or waiting for blocks to settle.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.entries.len()
    }

    /// The weights in use.
    #[must_use]
    pub const fn weights(&self) -> Weights {
        self.config.weights
    }

    /// The model.
    #[must_use]
    pub const fn shape(&self) -> &Arc<Shape> {
        &self.config.shape
    }

    /// Checks what must hold between calls: every block is accounted for and held by as many
    /// requests as name it.
    ///
    /// # Panics
    /// When it does not.
    pub fn assert_consistent(&self) {
        self.pool.assert_consistent();
        let mut holders = vec![0; self.config.blocks as usize];
        for block in self.entries.values().flat_map(|entry| entry.table.blocks()) {
            holders[block.0 as usize] += 1;
        }
        for (block, &holders) in (0..).zip(&holders) {
            assert_eq!(self.pool.holders(BlockId(block)), holders, "holders of block {block}");
        }
        for (id, entry) in &self.entries {
            let queued = self.queue.iter().filter(|queued| *queued == id).count();
            assert_eq!(queued, usize::from(entry.phase == Phase::Queued), "{id} in the queue");
        }
    }
}
