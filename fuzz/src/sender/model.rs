//! The reference model of a sender: what the contract asks for, written for reading.
//!
//! Plain lists and no timers: whatever is due is looked for. It knows no more than the
//! inputs, and says which effects each one must have.

use super::effects::{Due, Effect, rule_of};
use super::memory::{Memory, Remembered};
use kvbaton_core::ids::{Generation, Grant, LayoutId, RequestId, TransferId, WeightVersion};
use kvbaton_core::sender::{Ended, PullId, Reader, SendWriteId, SenderConfig};
use kvbaton_core::time::Timestamp;
use kvbaton_core::wire::FailureReason;

/// What a plan of so many blocks out of so many must come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foretold {
    /// Something to copy.
    Copies,
    /// The two ranks share nothing.
    Nothing,
    /// Fewer blocks are held than wanted `[A06]`.
    Differ,
}

/// A transfer from when it is first named until it is over.
#[derive(Debug, Clone)]
pub(super) struct Life {
    pub id: TransferId,
    pub owner: Option<RequestId>,
    /// Blocks, once held.
    pub held: Option<u64>,
    pub expires: Timestamp,
    pub expected: Option<u32>,
    /// Who was answered: ok with KV, ok without, or why not.
    pub answered: Vec<(Reader, Result<bool, FailureReason>)>,
    pub ending: Option<FailureReason>,
}

/// One request of a pull without its answer.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub pull: PullId,
    pub name: RequestId,
    pub transfer: TransferId,
    pub reader: Reader,
    pub grant: Option<Grant>,
    pub wanted: u64,
    pub weights: WeightVersion,
    pub foretold: fn(u64, u64) -> Foretold,
    pub stage: Stage,
    pub dropped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Unready,
    Queued(u64),
    /// Its write runs; the name comes with the write.
    Writing(Option<SendWriteId>, bool),
}

/// One pull without its last answer.
#[derive(Debug, Clone)]
pub(super) struct OpenPull {
    pub id: PullId,
    pub deadline: Timestamp,
    /// Its deadline has passed and been dealt with.
    pub late: bool,
    pub open: usize,
    pub echo: LayoutId,
    pub generation: Option<Generation>,
}

#[derive(Debug, Clone)]
pub(super) struct Model {
    pub config: SenderConfig,
    pub weights: WeightVersion,
    pub lives: Vec<Life>,
    pub asks: Vec<Ask>,
    pub pulls: Vec<OpenPull>,
    pub memory: Memory,
    next_place: u64,
    pub due: Due,
}

impl Model {
    pub fn new(config: SenderConfig) -> Self {
        Self {
            memory: Memory::new(config.max_remembered),
            config,
            weights: WeightVersion::default(),
            lives: Vec::new(),
            asks: Vec::new(),
            pulls: Vec::new(),
            next_place: 0,
            due: Due::default(),
        }
    }

    pub fn life(&mut self, id: &TransferId) -> Option<&mut Life> {
        self.lives.iter_mut().find(|it| it.id == *id)
    }

    pub fn running(&self) -> impl Iterator<Item = &Ask> {
        self.asks.iter().filter(|it| matches!(it.stage, Stage::Writing(..)))
    }

    pub fn is_read(&self, id: &TransferId) -> bool {
        self.running().any(|it| it.transfer == *id)
    }

    /// Positions of a transfer's open requests, in the order of its readers.
    pub fn asks_of(&self, id: &TransferId) -> Vec<usize> {
        let mut found: Vec<usize> =
            (0..self.asks.len()).filter(|at| self.asks[*at].transfer == *id).collect();
        if found.len() > 1 {
            found.sort_by(|a, b| self.asks[*a].reader.cmp(&self.asks[*b].reader));
        }
        found
    }

    /// When something is due next.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let lives = self.lives.iter().map(|it| it.expires);
        let pulls = self.pulls.iter().filter(|it| !it.late).map(|it| it.deadline);
        lives.chain(pulls).filter(|at| *at != Timestamp::NEVER).min()
    }

    pub fn new_life(&mut self, id: &TransferId, owner: Option<RequestId>, expires: Timestamp) {
        self.lives.push(Life {
            id: id.clone(),
            owner,
            held: None,
            expires,
            expected: None,
            answered: Vec::new(),
            ending: None,
        });
    }

    pub fn enqueue(&mut self, ask: usize) {
        self.asks[ask].stage = Stage::Queued(self.next_place);
        self.next_place += 1;
    }

    /// A request's terminal failure.
    pub fn fail(&mut self, ask: usize, why: FailureReason, settled: bool) {
        let ask = self.asks.remove(ask);
        if let Some(life) = self.life(&ask.transfer) {
            life.answered.push((ask.reader, Err(why)));
        }
        self.answer(ask.pull, Effect::Failed(ask.pull, ask.name, why, settled));
    }

    /// A request got what it wanted.
    pub fn succeed(&mut self, ask: usize) {
        let ask = self.asks.remove(ask);
        if let Some(life) = self.life(&ask.transfer) {
            life.answered.push((ask.reader, Ok(true)));
        }
        self.answer(ask.pull, Effect::Ok(ask.pull, ask.name));
    }

    pub fn answer(&mut self, pull: PullId, effect: Effect) {
        let rule = match &effect {
            Effect::Failed(_, _, why, _) => rule_of(*why),
            _ => "P02",
        };
        self.due.push(rule, effect);
        if let Some(pull) = self.pulls.iter_mut().find(|it| it.id == pull) {
            pull.open -= 1;
        }
    }

    /// The transfer must end: who waits is told, who writes is stopped, and once nothing
    /// reads the blocks they go back `[P01]`.
    pub fn end(&mut self, id: &TransferId, ended: Ended) {
        let why = match ended {
            Ended::Sent => FailureReason::AlreadyUsed,
            Ended::Failed(why) => why,
        };
        let Some(life) = self.life(id) else { return };
        life.ending.get_or_insert(why);
        while let Some(at) = self
            .asks
            .iter()
            .position(|it| it.transfer == *id && !matches!(it.stage, Stage::Writing(..)))
        {
            self.fail(at, why, true);
        }
        for at in self.asks_of(id) {
            self.cancel(at);
        }
        if !self.is_read(id) {
            self.finish(id, ended);
        }
    }

    /// A running write is stopped, once.
    pub fn cancel(&mut self, at: usize) {
        let ask = &mut self.asks[at];
        if let Stage::Writing(_, cancelled) = &mut ask.stage
            && !std::mem::replace(cancelled, true)
        {
            let effect = Effect::Cancel(ask.transfer.clone(), ask.reader.clone());
            self.due.push("P09", effect);
        }
    }

    pub fn finish(&mut self, id: &TransferId, ended: Ended) {
        let Some(at) = self.lives.iter().position(|it| it.id == *id) else { return };
        let life = self.lives.remove(at);
        let told = life.held.is_some();
        self.memory.remember(id, Remembered { ended, owner: life.owner.clone(), told });
        if let (true, Some(owner)) = (told, life.owner) {
            let rule = match ended {
                Ended::Sent => "P07",
                Ended::Failed(why) => rule_of(why),
            };
            self.due.push(rule, Effect::Finished(owner, id.clone(), ended));
        }
    }

    /// A transfer ends once every reader has its answer `[A02, P07]`.
    pub fn end_if_answered(&mut self, id: &TransferId) {
        let waits = self.asks.iter().any(|it| it.transfer == *id);
        let Some(life) = self.life(id) else { return };
        if life.ending.is_none() && !waits && life.all_answered() {
            let ended = life.outcome();
            self.end(id, ended);
        }
    }

    /// Starts what has a slot, in order of arrival, passing over readers that use all of
    /// theirs `[P03, Z03]`.
    pub fn fill_slots(&mut self, now: Timestamp) {
        while let Some(at) = self.next_in_turn() {
            let ask = &self.asks[at];
            let late = self.pulls.iter().any(|it| it.id == ask.pull && it.deadline <= now);
            if late {
                self.asks[at].stage = Stage::Unready;
                continue;
            }
            let (id, reader) = (ask.transfer.clone(), ask.reader.clone());
            let (wanted, foretold) = (ask.wanted, ask.foretold);
            let held = self.life(&id).and_then(|it| it.held).unwrap_or(0);
            match foretold(held, wanted) {
                Foretold::Copies => {
                    self.asks[at].stage = Stage::Writing(None, false);
                    self.due.push("P03", Effect::Write(id, reader));
                }
                Foretold::Nothing => {
                    self.succeed(at);
                    self.end_if_answered(&id);
                }
                Foretold::Differ => {
                    self.fail(at, FailureReason::BlocksDiffer, true);
                    self.end(&id, Ended::Failed(FailureReason::BlocksDiffer));
                }
            }
        }
    }

    fn next_in_turn(&self) -> Option<usize> {
        if self.running().count() >= self.config.senders.max(1) {
            return None;
        }
        let mut first: Option<(u64, usize)> = None;
        for (at, ask) in self.asks.iter().enumerate() {
            let Stage::Queued(place) = ask.stage else { continue };
            if first.is_some_and(|(earlier, _)| earlier < place) {
                continue;
            }
            let session = &ask.reader.session;
            let busy = self.running().filter(|it| it.reader.session == *session).count();
            if busy < self.config.senders_per_peer.max(1) {
                first = Some((place, at));
            }
        }
        first.map(|(_, at)| at)
    }

    /// Ends an input: slots, then pulls that nothing is open of.
    pub fn settle(&mut self, now: Timestamp) {
        self.fill_slots(now);
        let mut at = 0;
        while at < self.pulls.len() {
            if self.pulls[at].open == 0 {
                let over = self.pulls.remove(at).id;
                self.due.push("P02", Effect::Over(over));
            } else {
                at += 1;
            }
        }
    }
}

impl Life {
    pub fn all_answered(&self) -> bool {
        self.expected.is_some_and(|expected| self.answered.len() as u32 >= expected)
    }

    /// Badly if the first reader that failed did, well if one got KV, else released.
    pub fn outcome(&self) -> Ended {
        let failed = self.answered.iter().filter_map(|(reader, how)| Some((reader, how.err()?)));
        if let Some((_, why)) = failed.min_by_key(|(reader, _)| *reader) {
            return Ended::Failed(why);
        }
        let sent = self.answered.iter().any(|(_, how)| *how == Ok(true));
        if sent { Ended::Sent } else { Ended::Failed(FailureReason::Released) }
    }

    pub fn knows(&self, reader: &Reader) -> bool {
        self.answered.iter().any(|(known, _)| known == reader)
    }
}
