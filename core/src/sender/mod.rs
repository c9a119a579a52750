//! P's transfers: requests that finished, D's pulls for them, and the writes between.
//!
//! Inputs are methods that take the time; what must happen next is queued and drained
//! with [`Sender::next_action`]. [`Sender::next_deadline`] says when to call
//! [`Sender::tick`] again.

mod config;
mod engine_side;
mod in_use;
mod memory;
mod planted;
mod pull_side;
mod pull_state;
mod transfer;
mod weights;
mod write_side;

pub use config::SenderConfig;
pub use in_use::{SendInUse, SendUse};
pub use memory::Ended;
pub use transfer::{PullId, Reader, SendWriteId};

use crate::blocks::BlockList;
use crate::deadlines::Deadlines;
use crate::ids::{Generation, Grant, Incarnation, LayoutId, RequestId, TransferId, WeightVersion};
use crate::region::Copy;
use crate::time::Timestamp;
use crate::wire::{FailureReason, PullRequest, Reply};
use memory::{Memory, Remembered};
use pull_state::PullState;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use transfer::{Answer, Pending, Stage, State, Transfer};

/// Turns blocks into copies; the prepared layout of a peer, or a made-up one in tests.
pub trait PlanCopies {
    /// Appends the copies of one request. Nothing to copy is fine.
    ///
    /// # Errors
    /// When the blocks do not fit each other, in words for both sides' operators.
    fn plan(
        &self,
        held: BlocksUntil<'_>,
        wanted: BlocksUntil<'_>,
        out: &mut Vec<Copy>,
    ) -> Result<(), String>;
}

/// Logical blocks per group, and the token at which they end, if known `[A06]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlocksUntil<'a> {
    /// Blocks per group.
    pub groups: &'a [BlockList],
    /// Tokens of the request up to the end of the last block.
    pub end_token: Option<u32>,
}

/// A pull whose layout is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResolvedPull<L> {
    /// Its name; unique per sender.
    pub id: PullId,
    /// Who pulls.
    pub reader: Reader,
    /// D ranks that read one of this rank's transfers `[A02]`.
    pub expected_readers: u32,
    /// Plans its copies.
    pub layout: L,
    /// What the answers echo `[L03]`.
    pub echo: LayoutId,
    /// D's registration; `None` for a stock D.
    pub generation: Option<Generation>,
    /// How long D waits; zero when it did not say.
    pub timeout: Duration,
    /// The weights that D runs; zero when it did not say `[R07]`.
    pub weights: WeightVersion,
    /// What it asks for.
    pub requests: Vec<PullRequest>,
}

/// What the caller must do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SenderAction<L> {
    /// Send an answer to a pull. After `Finish` or `Error` the pull is over.
    Answer {
        /// The pull.
        pull: PullId,
        /// The answer.
        reply: Reply,
    },
    /// Start a write, then call [`Sender::write_done`].
    Write(StartWrite<L>),
    /// End a write early; its outcome still comes.
    CancelWrite(SendWriteId),
    /// A request's blocks go back to P's engine: nothing reads them any more `[P01]`.
    Finished {
        /// P's request.
        request: RequestId,
        /// The transfer.
        transfer: TransferId,
        /// How it ended.
        ended: Ended,
    },
}

/// A write to start.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StartWrite<L> {
    /// Its name.
    pub write: SendWriteId,
    /// The transfer it reads.
    pub transfer: TransferId,
    /// Where it goes.
    pub reader: Reader,
    /// The load's grant; `None` towards a stock D.
    pub grant: Option<Grant>,
    /// D's registration; `None` towards a stock D.
    pub generation: Option<Generation>,
    /// The layout it was planned with.
    pub layout: L,
    /// What to copy; never empty.
    pub copies: Vec<Copy>,
    /// It must end within this time `[P04]`.
    pub timeout: Duration,
}

/// How a write ended, as the data plane says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WriteResult {
    /// Every byte was applied.
    Written,
    /// It failed.
    Failed {
        /// Whether nothing of it can land any more.
        settled: bool,
        /// For the operators of both sides.
        message: String,
    },
}

/// Why P's engine was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The transfer id belongs to another request that is not over `[P11]`.
    #[error(
        "transfer {transfer} of request {request} is still in use by request {owner}; \
         its blocks stay with the caller: give each request a transfer id of its own"
    )]
    TransferInUse {
        /// The id.
        transfer: TransferId,
        /// Who asked.
        request: RequestId,
        /// Who has it.
        owner: RequestId,
    },
    /// Too many transfers.
    #[error(
        "{limit} transfers are known already; the blocks of request {request} stay with the \
         caller: raise `max_transfers`, or find out why D pulls none of them"
    )]
    TooMany {
        /// Who asked.
        request: RequestId,
        /// The bound.
        limit: usize,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Timer {
    Transfer(TransferId),
    Pull(PullId),
}

/// P's side of all transfers of one rank. `L` plans the copies of one peer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sender<L> {
    config: SenderConfig,
    incarnation: Incarnation,
    features: u64,
    /// What P's engine runs: the weights of every transfer that it has named and that is not
    /// ending `[R07]`.
    weights: WeightVersion,
    transfers: BTreeMap<TransferId, Transfer>,
    pulls: BTreeMap<PullId, OpenPull<L>>,
    /// Ready and pulled, waiting for a slot, in order of arrival `[P03]`.
    queue: BTreeMap<u64, (TransferId, Reader)>,
    next_place: u64,
    /// Requests of pulls without a terminal answer, over all pulls.
    waiting: usize,
    /// Transfers that only D has named.
    unconfirmed: usize,
    /// Transfers whose blocks are held: counted, so that asking costs nothing `[F15]`.
    held: usize,
    held_blocks: u64,
    writes: BTreeMap<SendWriteId, (TransferId, Reader)>,
    next_write: u64,
    memory: Memory,
    timers: Deadlines<Timer>,
    /// Pulls with something to say, answered once the input is dealt with.
    touched: BTreeSet<PullId>,
    actions: VecDeque<SenderAction<L>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct OpenPull<L> {
    state: PullState<L>,
    generation: Option<Generation>,
    /// Requests without an answer, by transfer.
    open: BTreeMap<TransferId, PullRequest>,
}

impl<L: PlanCopies + Clone> Sender<L> {
    /// A sender of the process `incarnation`.
    #[must_use]
    pub fn new(config: SenderConfig, incarnation: Incarnation, features: u64) -> Self {
        Self {
            memory: Memory::new(config.max_remembered),
            config,
            incarnation,
            features,
            weights: WeightVersion::default(),
            transfers: BTreeMap::new(),
            pulls: BTreeMap::new(),
            queue: BTreeMap::new(),
            next_place: 0,
            waiting: 0,
            unconfirmed: 0,
            held: 0,
            held_blocks: 0,
            writes: BTreeMap::new(),
            next_write: 0,
            timers: Deadlines::default(),
            touched: BTreeSet::new(),
            actions: VecDeque::new(),
        }
    }

    /// The next thing to do; call until `None` after each input.
    pub fn next_action(&mut self) -> Option<SenderAction<L>> {
        self.actions.pop_front()
    }

    /// When [`Self::tick`] is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.timers.next()
    }

    /// Does what is due: expiries `[P06]` and pulls past their deadline `[P04]`.
    pub fn tick(&mut self, now: Timestamp) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Transfer(transfer) => self.expire(&transfer, now),
                Timer::Pull(pull) => self.time_out_pull(pull),
            }
        }
        self.settle_input(now);
    }

    /// Requests whose blocks are held for D, whether or not a write reads them.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// Logical blocks of these requests, over all groups.
    #[must_use]
    pub fn held_blocks(&self) -> u64 {
        self.held_blocks
    }

    /// Transfers known, held or only named.
    #[must_use]
    pub fn transfers(&self) -> usize {
        self.transfers.len()
    }

    /// Writes in flight.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.writes.len()
    }

    /// Pulls without a terminal answer.
    #[must_use]
    pub fn open_pulls(&self) -> usize {
        self.pulls.len()
    }

    /// Pulls that wait for a free slot.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Requests of pulls without a terminal answer, over all pulls.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether a pull or drop that names the run `meant` is for this process; zero means
    /// that D does not know `[P12]`.
    #[must_use]
    pub fn is_meant(&self, meant: Incarnation) -> bool {
        self.incarnation.is_meant(meant)
    }

    /// The one function that ends a transfer `[P01]`. Who waits is answered now; the
    /// blocks go back now, or when the last write that reads them has ended.
    fn end(&mut self, id: &TransferId, ended: Ended) {
        let Some(transfer) = self.transfers.get_mut(id) else { return };
        let why = match ended {
            Ended::Sent => FailureReason::AlreadyUsed,
            Ended::Failed(why) => why,
        };
        transfer.ending.get_or_insert(why);
        let (running, waiting): (Vec<Reader>, Vec<Reader>) = transfer
            .pending
            .keys()
            .cloned()
            .partition(|it| transfer.pending[it].stage.is_writing());
        for reader in waiting {
            self.fail_reader(id, &reader, why, true, message(why, id));
        }
        for reader in running {
            self.cancel_write(id, &reader);
        }
        if self.transfers[id].reading == 0 {
            self.finish(id, ended);
        } else if planted::frees_while_read(ended) {
            self.give_back_early(id, ended);
        }
    }

    /// Ends a reader's write early, once.
    fn cancel_write(&mut self, id: &TransferId, reader: &Reader) {
        let pending = self.transfers.get_mut(id).and_then(|it| it.pending.get_mut(reader));
        if let Some(Pending { stage: Stage::Writing { write, cancelled, .. }, .. }) = pending
            && !std::mem::replace(cancelled, true)
        {
            self.actions.push_back(SenderAction::CancelWrite(*write));
        }
    }

    /// Forgets a transfer that nothing reads, and gives its blocks back.
    fn finish(&mut self, id: &TransferId, ended: Ended) {
        let Some(transfer) = self.transfers.remove(id) else { return };
        assert_eq!(transfer.reading, 0, "blocks of {id} go back while a write reads them [P01]");
        assert!(transfer.pending.is_empty(), "{id} ends with an unanswered pull [P02]");
        self.timers.clear(&Timer::Transfer(id.clone()));
        self.unconfirmed -= usize::from(transfer.request.is_none());
        let handed_over = match &transfer.state {
            State::Waiting => false,
            State::Ready(held) => {
                self.held -= 1;
                self.held_blocks -= held.len();
                true
            }
        };
        self.memory.remember(
            id.clone(),
            Remembered { ended, request: transfer.request.clone(), told: handed_over },
        );
        if let (true, Some(request)) = (handed_over, transfer.request) {
            self.actions.push_back(SenderAction::Finished { request, transfer: id.clone(), ended });
        }
    }

    /// Gives a reader its terminal failure.
    fn fail_reader(
        &mut self,
        id: &TransferId,
        reader: &Reader,
        why: FailureReason,
        settled: bool,
        text: String,
    ) {
        let Some(transfer) = self.transfers.get_mut(id) else { return };
        let Some(pending) = transfer.pending.remove(reader) else { return };
        transfer.answered.insert(reader.clone(), Answer::Failed(why));
        if let Stage::Queued(place) = pending.stage {
            self.queue.remove(&place);
        }
        self.close_request(pending.pull, id, |state, request| {
            state.fail(request, why, settled, text);
        });
    }

    fn close_request(
        &mut self,
        pull: PullId,
        transfer: &TransferId,
        answer: impl FnOnce(&mut PullState<L>, RequestId),
    ) {
        let Some(open) = self.pulls.get_mut(&pull) else { return };
        let Some(request) = open.open.remove(transfer) else { return };
        self.waiting -= 1;
        answer(&mut open.state, request.request_id);
        self.touched.insert(pull);
    }

    /// After an input: start what has a slot, then answer every pull with news.
    fn settle_input(&mut self, now: Timestamp) {
        self.fill_slots(now);
        while let Some(pull) = self.touched.pop_first() {
            let Some(open) = self.pulls.get_mut(&pull) else { continue };
            let Some(reply) = open.state.take_reply(self.incarnation, self.features) else {
                continue;
            };
            if open.state.open == 0 {
                self.pulls.remove(&pull);
                self.timers.clear(&Timer::Pull(pull));
            }
            self.actions.push_back(SenderAction::Answer { pull, reply });
        }
    }
}

/// A failure in words that tell D's operator what happened and what to do.
fn message(why: FailureReason, transfer: &TransferId) -> String {
    let what = match why {
        FailureReason::Aborted => "was aborted by the prefill engine",
        FailureReason::Released => "was released before it was pulled",
        FailureReason::Expired => "expired: it was not pulled within the prefill's hold timeout",
        FailureReason::TimedOut => "was not ready before the pull's deadline",
        FailureReason::UnknownIncarnation => {
            "belongs to a prefill process that has restarted; ask the bootstrap server again"
        }
        FailureReason::WriteFailed => "failed: a write to a decode rank failed",
        FailureReason::BlocksDiffer => "failed: its blocks do not fit those of the pull",
        FailureReason::Dropped => "was dropped by the decode engine",
        FailureReason::AlreadyUsed => {
            "was sent already, or another request pulls it: one transfer serves one request"
        }
        FailureReason::Unavailable => "cannot be sent: the prefill's memory is not registered",
        FailureReason::Overloaded => "was refused: the prefill knows too many transfers",
        FailureReason::Reset => "was given up by a reset of the prefill engine: recompute it",
        FailureReason::OtherWeights => {
            "was computed with weights that the prefill engine has replaced: recompute it"
        }
        FailureReason::Other => "failed",
    };
    format!("transfer {transfer} {what}")
}
