//! The scheduler's side.

use super::{ConnectorGroup, HoldId, Intent, Order, Orders};
use crate::blocks::BlockList;
use crate::ids::{RequestId, TransferId};
use crate::time::Timestamp;
use lru::LruCache;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

/// Ended loads whose transfer is remembered, so that nobody loads it again.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(65_536).expect("above 0");

/// How an engine is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulingConfig {
    /// Groups whose blocks travel, in order.
    pub groups: Vec<ConnectorGroup>,
    /// The last prompt token is always computed by D, from the state before it (recurrent
    /// state; sliding windows that are replayed): P computes one token less.
    pub recompute_last: bool,
    /// Workers that follow orders; each answers for its part of a hold.
    pub workers: usize,
    /// How long a pause leaves held requests to D before it wants their blocks `[R03]`.
    pub pause_drain: Duration,
}

/// What D can have without computing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matched {
    /// Nothing.
    Nothing,
    /// Ask again: another request loads the same transfer, and what it gets will be here.
    Later,
    /// So many tokens more than are computed already; above 0.
    Tokens(u32),
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Its last token was computed: a bound was met, or a stop token, which may be the
    /// only one.
    Complete,
    /// Aborted, refused or failed.
    Aborted,
}

/// A request that wants a transfer.
#[derive(Debug, Clone)]
struct Tracked {
    intent: Intent,
    load: LoadState,
    /// Tokens that were computed when tokens were last matched.
    computed: u32,
    /// P's workers know of it.
    started: bool,
    /// Tokens of the prompt, as far as they are computed here.
    prompt: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoadState {
    /// It has not come to it.
    New,
    /// Workers load it.
    Running,
    /// It ended somehow, or was not needed: a request is loaded once.
    Over,
}

/// A hold that some worker has not given back.
#[derive(Debug, Clone, Copy)]
struct Holding {
    answered: usize,
}

/// The scheduler's side of a connector.
#[derive(Debug)]
pub struct Scheduling {
    config: SchedulingConfig,
    requests: BTreeMap<RequestId, Tracked>,
    /// Transfers that are or were loaded here, and by whom.
    loaded: LruCache<TransferId, RequestId>,
    /// Transfers that will be sent, and of whom: samples of one request share one.
    sending: BTreeMap<TransferId, RequestId>,
    holds: BTreeMap<HoldId, Holding>,
    next_hold: u64,
    orders: Orders,
    /// When a pause wants every block back; the order was given once this has passed.
    drain: Option<Drain>,
}

#[derive(Debug, Clone, Copy)]
struct Drain {
    until: Timestamp,
    ordered: bool,
}

impl Scheduling {
    /// A side without requests.
    #[must_use]
    pub fn new(config: SchedulingConfig) -> Self {
        Self {
            config,
            requests: BTreeMap::new(),
            loaded: LruCache::new(REMEMBERED),
            sending: BTreeMap::new(),
            holds: BTreeMap::new(),
            next_hold: 0,
            orders: Vec::new(),
            drain: None,
        }
    }

    /// A request came. Whether P must leave its last prompt token to D.
    pub fn added(&mut self, request: RequestId, intent: Intent, prompt_tokens: u32) -> bool {
        let shorten = self.config.recompute_last && intent.send && prompt_tokens > 1;
        if intent.send {
            let owner = || request.clone();
            self.sending.entry(intent.transfer.clone()).or_insert_with(owner);
        }
        let prompt = prompt_tokens - u32::from(shorten);
        let (load, computed, started) = (LoadState::New, 0, false);
        self.requests.insert(request, Tracked { intent, load, computed, started, prompt });
        shorten
    }

    /// Whether a request is known.
    #[must_use]
    pub fn knows(&self, request: &RequestId) -> bool {
        self.requests.contains_key(request)
    }

    /// What D need not compute of a prompt of which `computed` tokens are here. May be asked
    /// any number of times.
    pub fn matched(&mut self, request: &RequestId, prompt_tokens: u32, computed: u32) -> Matched {
        let wanted = self.tokens_to_load(prompt_tokens);
        let Some(tracked) = self.requests.get_mut(request) else { return Matched::Nothing };
        if tracked.intent.source.is_none() || tracked.load != LoadState::New {
            return Matched::Nothing;
        }
        tracked.computed = computed;
        if let Some(other) = self.loaded.peek(&tracked.intent.transfer) {
            // Samples of one request share its transfer, which P sends once.
            let other = self.requests.get(other);
            let runs = other.is_some_and(|it| it.load == LoadState::Running);
            return if runs { Matched::Later } else { Matched::Nothing };
        }
        match wanted.saturating_sub(computed) {
            0 => Matched::Nothing,
            tokens => Matched::Tokens(tokens),
        }
    }

    fn tokens_to_load(&self, prompt_tokens: u32) -> u32 {
        let one_less = self.config.recompute_last && prompt_tokens > 1;
        prompt_tokens - u32::from(one_less)
    }

    /// A request got its blocks. `external` tokens are to be loaded into `blocks`, those of
    /// each group that are not computed; may be called again later with what else it got.
    pub fn allocated(&mut self, request: &RequestId, external: u32, blocks: &[BlockList]) {
        let Some(tracked) = self.requests.get_mut(request) else { return };
        if tracked.intent.source.is_some() && tracked.load == LoadState::New {
            self.load(request, external, blocks);
        } else if tracked.intent.send && !tracked.started {
            tracked.started = true;
            let transfer = tracked.intent.transfer.clone();
            if self.sending.get(&transfer) == Some(request) {
                self.orders.push(Order::Started { request: request.clone(), transfer });
            }
        }
    }

    fn load(&mut self, request: &RequestId, external: u32, blocks: &[BlockList]) {
        let blocks = self.clipped(blocks);
        let Some(tracked) = self.requests.get_mut(request) else { return };
        let Some(source) = tracked.intent.source.clone() else { return };
        let transfer = tracked.intent.transfer.clone();
        tracked.load = LoadState::Over;
        if self.loaded.contains(&transfer) {
            return; // another sample has it
        }
        self.loaded.put(transfer.clone(), request.clone());
        let request = request.clone();
        if external == 0 || blocks.iter().all(BlockList::is_empty) {
            // All of it is here already, or it comes from elsewhere [P10].
            self.orders.push(Order::Release { request, transfer, source });
            return;
        }
        tracked.load = LoadState::Running;
        let end_token = tracked.computed.saturating_add(external);
        self.orders.push(Order::Load { request, transfer, source, blocks, end_token });
    }

    fn clipped(&self, blocks: &[BlockList]) -> Vec<BlockList> {
        blocks.iter().enumerate().map(|(index, list)| self.group(index).clip(list)).collect()
    }

    fn group(&self, index: usize) -> ConnectorGroup {
        self.config.groups.get(index).copied().unwrap_or(ConnectorGroup::all(0))
    }

    /// A request is over; `blocks` hold its `computed` tokens. With an answer its blocks
    /// must stay as they are until [`Self::given_back`] names it.
    #[must_use]
    pub fn finished(
        &mut self,
        request: &RequestId,
        ending: Ending,
        computed: u32,
        blocks: &[BlockList],
    ) -> Option<HoldId> {
        let tracked = self.requests.remove(request)?;
        let transfer = tracked.intent.transfer;
        match (tracked.load, tracked.intent.source) {
            (LoadState::Running, _) => self.orders.push(Order::Drop(request.clone())),
            (LoadState::New, Some(source)) if !self.loaded.contains(&transfer) => {
                // It never came to loading: P need not hold it any longer [P10].
                self.loaded.put(transfer.clone(), request.clone());
                let (request, transfer) = (request.clone(), transfer.clone());
                self.orders.push(Order::Release { request, transfer, source });
            }
            _ => {}
        }
        if self.sending.get(&transfer) != Some(request) {
            return None;
        }
        self.sending.remove(&transfer);
        // D computes what comes after the prompt itself.
        let end_token = computed.min(tracked.prompt);
        let until = |(index, list)| self.group(index).until(end_token, list);
        let blocks: Vec<BlockList> = blocks.iter().enumerate().map(until).collect();
        let blocks = self.clipped(&blocks);
        if ending == Ending::Aborted || blocks.iter().all(BlockList::is_empty) {
            self.orders.push(Order::Abort(transfer));
            return None;
        }
        let hold = HoldId(self.next_hold);
        self.next_hold += 1;
        self.holds.insert(hold, Holding { answered: 0 });
        let request = request.clone();
        self.orders.push(Order::Hold { hold, request, transfer, blocks, end_token });
        Some(hold)
    }

    /// Every worker has ended these loads.
    pub fn loads_ended<'a>(&mut self, requests: impl IntoIterator<Item = &'a RequestId>) {
        for request in requests {
            if let Some(tracked) = self.requests.get_mut(request) {
                tracked.load = LoadState::Over;
            }
        }
    }

    /// So many workers more have given these holds back. Those that all of them have: their
    /// blocks are free, named once.
    #[must_use]
    pub fn given_back(
        &mut self,
        answers: impl IntoIterator<Item = (HoldId, usize)>,
    ) -> Vec<HoldId> {
        let mut free = Vec::new();
        for (hold, workers) in answers {
            let Some(holding) = self.holds.get_mut(&hold) else { continue };
            holding.answered = holding.answered.saturating_add(workers);
            if holding.answered >= self.config.workers {
                self.holds.remove(&hold);
                free.push(hold);
            }
        }
        free
    }

    /// Takes the orders for the next step.
    pub fn take_orders(&mut self) -> Orders {
        std::mem::take(&mut self.orders)
    }

    /// Number of holds.
    #[must_use]
    pub fn holding(&self) -> usize {
        self.holds.len()
    }

    /// Every hold's blocks are wanted back `[R03]`.
    pub fn release_all(&mut self) {
        if !self.holds.is_empty() {
            self.orders.push(Order::ReleaseAll);
        }
    }

    /// Whether the engine must go on stepping although it has no request: orders have to
    /// reach the workers, or it is paused, wants blocks back and has to hear of it. Held
    /// requests alone let it sleep.
    pub fn must_step(&mut self, paused: bool, now: Timestamp) -> bool {
        if !paused || self.holds.is_empty() {
            self.drain = None;
            return !self.orders.is_empty();
        }
        let until = now + self.config.pause_drain;
        let drain = self.drain.get_or_insert(Drain { until, ordered: false });
        if now >= drain.until && !drain.ordered {
            drain.ordered = true;
            self.orders.push(Order::ReleaseAll);
        }
        true
    }
}
