//! Drives a sender, carries out nothing, and checks at every step what must always hold.

use crate::names::{reader, request, transfer};
use crate::planner::Planner;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{
    Generation, Grant, Incarnation, LayoutId, RequestId, TransferId, WeightVersion,
};
use kvbaton_core::sender::{
    Ended, PullId, Reader, ResolvedPull, SendError, SendWriteId, Sender, SenderAction,
    SenderConfig, StartWrite, WriteResult,
};
use kvbaton_core::time::Timestamp;
use kvbaton_core::wire::{DropTransfers, FailureReason, PullRequest, Reply, Status};
use std::collections::BTreeMap;
use std::time::Duration;

pub const RUN: Incarnation = Incarnation(0xb0a7);

/// How one request of a pull was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    Ok,
    Failed(FailureReason, bool),
}

/// A pull to make; [`Ask::of`] fills in the usual.
#[derive(Debug, Clone)]
pub struct Ask {
    pub reader: Reader,
    pub readers: u32,
    pub layout: Planner,
    pub timeout: Duration,
    pub weights: WeightVersion,
    pub requests: Vec<PullRequest>,
}

impl Ask {
    /// One of our own D ranks asks for `transfers`, two blocks each.
    pub fn of(tp_rank: u32, transfers: &[&str]) -> Self {
        let requests = transfers.iter().map(|name| PullRequest {
            request_id: request(&format!("d-{name}")),
            transfer_id: transfer(name),
            groups: vec![BlockList::run(100, 2)],
            grant: Some(grant(tp_rank, name)),
            end_token: None,
        });
        Self {
            reader: reader(1, tp_rank),
            readers: 1,
            layout: Planner::Blocks,
            timeout: Duration::from_secs(60),
            weights: WeightVersion::default(),
            requests: requests.collect(),
        }
    }

    /// The same, without blocks: a release.
    pub fn release(tp_rank: u32, name: &str) -> Self {
        let mut ask = Self::of(tp_rank, &[name]);
        ask.requests[0].groups.clear();
        ask.requests[0].grant = None;
        ask
    }

    pub fn readers(mut self, readers: u32) -> Self {
        self.readers = readers;
        self
    }

    pub fn weights(mut self, version: u64) -> Self {
        self.weights = WeightVersion(version);
        self
    }

    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

/// The grant that [`Ask::of`] gives to a rank's load.
pub fn grant(tp_rank: u32, name: &str) -> Grant {
    let mut sum = u64::from(tp_rank) + 1;
    for byte in name.bytes() {
        sum = sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte);
    }
    Grant(sum)
}

/// A sender and what was seen of it.
#[derive(Debug, Clone)]
pub struct SenderDriver {
    pub sender: Sender<Planner>,
    pub config: SenderConfig,
    pub now: Timestamp,
    next_pull: u64,
    /// Requests without an answer, by pull; a pull leaves with its last answer.
    unanswered: BTreeMap<PullId, Vec<RequestId>>,
    pub replies: BTreeMap<PullId, Vec<Reply>>,
    pub running: BTreeMap<SendWriteId, StartWrite<Planner>>,
    pub cancelled: Vec<SendWriteId>,
    held: BTreeMap<TransferId, RequestId>,
    pub finished: Vec<(TransferId, RequestId, Ended)>,
}

impl SenderDriver {
    pub fn new() -> Self {
        Self::with(SenderConfig::default())
    }

    pub fn with(config: SenderConfig) -> Self {
        Self {
            sender: Sender::new(config.clone(), RUN, 0),
            config,
            now: Timestamp(0),
            next_pull: 0,
            unanswered: BTreeMap::new(),
            replies: BTreeMap::new(),
            running: BTreeMap::new(),
            cancelled: Vec::new(),
            held: BTreeMap::new(),
            finished: Vec::new(),
        }
    }

    /// P's request `p-NAME` hands over `len` blocks for the transfer `NAME`.
    pub fn hold(&mut self, name: &str) -> Result<(), SendError> {
        self.hold_as(&format!("p-{name}"), name)
    }

    pub fn hold_as(&mut self, owner: &str, name: &str) -> Result<(), SendError> {
        let (owner, id) = (request(owner), transfer(name));
        let blocks = vec![BlockList::run(10, 2)];
        let taken = self.sender.hold(owner.clone(), id.clone(), blocks, None, self.now);
        if taken.is_ok() {
            assert!(self.held.insert(id, owner).is_none(), "{name} is held twice");
        }
        self.drain();
        taken
    }

    pub fn started(&mut self, name: &str) -> Result<(), SendError> {
        let owner = request(&format!("p-{name}"));
        let taken = self.sender.prefill_started(owner, transfer(name), self.now);
        self.drain();
        taken
    }

    pub fn pull(&mut self, ask: Ask) -> PullId {
        let id = PullId(self.next_pull);
        self.next_pull += 1;
        let names = ask.requests.iter().map(|it| it.request_id.clone()).collect();
        self.unanswered.insert(id, names);
        let ours = ask.requests.iter().any(|it| it.grant.is_some() || it.groups.is_empty());
        let pull = ResolvedPull {
            id,
            reader: ask.reader,
            expected_readers: ask.readers,
            layout: ask.layout,
            echo: LayoutId(9),
            generation: ours.then_some(Generation(7)),
            timeout: ask.timeout,
            weights: ask.weights,
            requests: ask.requests,
        };
        self.sender.pull(pull, self.now);
        self.drain();
        id
    }

    pub fn drop_load(&mut self, tp_rank: u32, name: &str) {
        let transfers = vec![(request(&format!("d-{name}")), transfer(name), grant(tp_rank, name))];
        let drop = DropTransfers { incarnation: RUN, tp_rank, transfers };
        self.sender.drop_transfers(&drop, self.now);
        self.drain();
    }

    pub fn abort(&mut self, name: &str) {
        self.sender.abort(&transfer(name), self.now);
        self.drain();
    }

    pub fn set_weights(&mut self, version: u64) {
        self.sender.set_weights(WeightVersion(version), self.now);
        self.drain();
    }

    pub fn abort_transfers(&mut self) {
        self.sender.abort_transfers(self.now);
        self.drain();
    }

    pub fn release(&mut self, name: &str) {
        self.sender.release(&transfer(name), self.now);
        self.drain();
    }

    /// Lets time pass, calling `tick` when it is due, as the caller must.
    pub fn wait_until(&mut self, until: Timestamp) {
        while let Some(due) = self.sender.next_deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.sender.tick(self.now);
            self.drain();
        }
        self.now = self.now.max(until);
    }

    /// The write that runs for a transfer.
    pub fn write_of(&self, name: &str) -> SendWriteId {
        let mut of = self.running.values().filter(|it| it.transfer == transfer(name));
        of.next().unwrap_or_else(|| panic!("no write runs for {name}")).write
    }

    pub fn write_done(&mut self, write: SendWriteId, result: WriteResult) {
        self.running.remove(&write).expect("a write ends once");
        self.sender.write_done(write, result, self.now);
        self.drain();
    }

    /// The running write of a transfer ends well.
    pub fn written(&mut self, name: &str) {
        self.write_done(self.write_of(name), WriteResult::Written);
    }

    pub fn write_failed(&mut self, name: &str, settled: bool) {
        let message = "refused".to_owned();
        self.write_done(self.write_of(name), WriteResult::Failed { settled, message });
    }

    pub fn drain(&mut self) {
        while let Some(action) = self.sender.next_action() {
            match action {
                SenderAction::Answer { pull, reply } => self.take_answer(pull, reply),
                SenderAction::Write(write) => self.take_write(write),
                SenderAction::CancelWrite(write) => {
                    assert!(self.running.contains_key(&write), "cancels a write that does not run");
                    assert!(!self.cancelled.contains(&write), "cancels {write:?} twice");
                    self.cancelled.push(write);
                }
                SenderAction::Finished { request, transfer, ended } => {
                    assert_eq!(self.held.remove(&transfer).as_ref(), Some(&request), "[P01]");
                    let read = self.running.values().any(|write| write.transfer == transfer);
                    assert!(!read, "blocks of {transfer} go back while a write reads them [P01]");
                    self.finished.push((transfer, request, ended));
                }
            }
        }
        self.check();
    }

    fn take_answer(&mut self, pull: PullId, reply: Reply) {
        let open = self.unanswered.get_mut(&pull).expect("an answer to a pull that is over [P02]");
        for name in reply.ok.iter().chain(&reply.failed).flatten() {
            let at = open.iter().position(|it| it == name).expect("answered once [P02]");
            open.remove(at);
        }
        match reply.status {
            Status::Finish => assert!(open.is_empty(), "finished without {open:?} [P02]"),
            Status::Continue => assert!(!open.is_empty(), "nothing is left to continue with"),
            Status::Error | Status::LayoutMiss => panic!("a sender never says {:?}", reply.status),
        }
        if open.is_empty() {
            self.unanswered.remove(&pull);
        }
        self.replies.entry(pull).or_default().push(reply);
    }

    fn take_write(&mut self, write: StartWrite<Planner>) {
        assert!(self.held.contains_key(&write.transfer), "reads blocks that are not held [P01]");
        assert!(!write.copies.is_empty());
        assert!(!write.timeout.is_zero() && write.timeout <= self.config.write_timeout);
        assert!(self.running.insert(write.write, write).is_none(), "a write's name is new");
        assert!(self.running.len() <= self.config.senders.max(1), "more writes than slots [P03]");
        assert!(self.busiest() <= self.config.senders_per_peer.max(1), "[Z03]");
    }

    /// Most writes that run towards one session.
    fn busiest(&self) -> usize {
        let mut running: BTreeMap<_, usize> = BTreeMap::new();
        for write in self.running.values() {
            *running.entry(&write.reader.session).or_default() += 1;
        }
        running.into_values().max().unwrap_or(0)
    }

    fn check(&self) {
        let sender = &self.sender;
        assert_eq!(sender.open_pulls(), self.unanswered.len());
        assert_eq!(sender.waiting(), self.unanswered.values().map(Vec::len).sum::<usize>());
        assert_eq!(sender.writes(), self.running.len());
        assert_eq!(sender.held(), self.held.len());
        assert!(sender.queued() + sender.writes() <= sender.waiting());
        let full = sender.writes() == self.config.senders.max(1);
        let one_is_full = self.busiest() == self.config.senders_per_peer.max(1);
        assert!(sender.queued() == 0 || full || one_is_full, "a slot is left unused [P03]");
        assert!(sender.transfers() <= self.config.max_transfers);
        assert!(sender.waiting() <= self.config.max_waiting);
    }

    /// All answers to a pull so far, in order.
    pub fn answers(&self, pull: PullId) -> Vec<(RequestId, Answered)> {
        let mut answers = Vec::new();
        for reply in self.replies.get(&pull).into_iter().flatten() {
            let ok = reply.ok.iter().flatten().map(|name| (name.clone(), Answered::Ok));
            answers.extend(ok);
            for (at, name) in reply.failed.iter().flatten().enumerate() {
                let why = reply.extension.as_ref().map(|it| it.outcomes[at].clone());
                let (_, why, settled) = why.unwrap_or((name.clone(), FailureReason::Other, false));
                answers.push((name.clone(), Answered::Failed(why, settled)));
            }
        }
        answers
    }

    /// The only answer to a pull of one request.
    pub fn answer(&self, pull: PullId) -> Option<Answered> {
        let answers = self.answers(pull);
        assert!(answers.len() <= 1, "{answers:?}");
        answers.first().map(|(_, answer)| *answer)
    }

    /// Whether every reply to the pull has been sent.
    pub fn is_over(&self, pull: PullId) -> bool {
        !self.unanswered.contains_key(&pull)
    }

    /// How a transfer's blocks came back.
    pub fn ended(&self, name: &str) -> Vec<Ended> {
        let of = self.finished.iter().filter(|(id, ..)| *id == transfer(name));
        of.map(|(_, _, ended)| *ended).collect()
    }
}
