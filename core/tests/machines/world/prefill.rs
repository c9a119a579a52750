//! One rank of P: its engine's blocks, its layout cache and its sender.

use super::{BLOCKS, Content, InFlight, Packet, World};
use crate::planner::Planner;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{Incarnation, LayoutId, RequestId, TransferId};
use kvbaton_core::sender::{PullId, Reader, ResolvedPull, Sender, SenderAction, SenderConfig};
use kvbaton_core::wire::{DropTransfers, FailureReason, Pull, Reply, Status};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone)]
pub struct P {
    pub rank: usize,
    pub run: Incarnation,
    pub sender: Sender<Planner>,
    /// Layouts of Ds that it holds, by D and id.
    pub layouts: BTreeSet<(u16, LayoutId)>,
    memory: BTreeMap<u32, Content>,
    free: Vec<u32>,
    /// Blocks that the sender has, by transfer.
    pub held: BTreeMap<TransferId, (RequestId, Vec<u32>)>,
    /// Requests that run, by transfer.
    pub announced: BTreeSet<TransferId>,
    /// Whose pull each of its own pulls is: D, D's epoch, D's name.
    pulls: BTreeMap<PullId, (usize, u64, PullId)>,
    next_pull: u64,
}

impl P {
    pub fn new(rank: usize, restarts: u32, config: &SenderConfig) -> Self {
        let run = Incarnation(1000 + u64::from(restarts));
        Self {
            rank,
            run,
            sender: Sender::new(config.clone(), run, 0),
            layouts: BTreeSet::new(),
            memory: BTreeMap::new(),
            free: (0..64).rev().collect(),
            held: BTreeMap::new(),
            announced: BTreeSet::new(),
            pulls: BTreeMap::new(),
            next_pull: 0,
        }
    }

    pub fn read(&self, block: u32) -> Content {
        self.memory[&block].clone()
    }
}

impl World {
    pub fn start(&mut self, at: usize, request: RequestId, transfer: &TransferId) {
        let p = &mut self.p[at];
        let taken = p.sender.prefill_started(request, transfer.clone(), self.now);
        if taken.is_ok() {
            p.announced.insert(transfer.clone());
        }
        self.drain_p(at);
    }

    /// P's engine computes a transfer's blocks and hands them over.
    pub fn hold(&mut self, at: usize, request: RequestId, transfer: &TransferId) {
        let p = &mut self.p[at];
        if p.free.len() < BLOCKS as usize {
            return;
        }
        let blocks: Vec<u32> = (0..BLOCKS).filter_map(|_| p.free.pop()).collect();
        let list: BlockList = blocks.iter().copied().collect();
        for (place, block) in blocks.iter().enumerate() {
            p.memory.insert(*block, (transfer.clone(), place as u32));
        }
        let (id, now) = (transfer.clone(), self.now);
        match p.sender.hold(request.clone(), id.clone(), vec![list], None, now) {
            Ok(()) => {
                p.announced.remove(&id);
                assert!(p.held.insert(id, (request, blocks)).is_none(), "held twice [P11]");
            }
            Err(_) => p.free.extend(blocks),
        }
        self.drain_p(at);
    }

    pub fn abort(&mut self, at: usize, transfer: &TransferId) {
        self.p[at].announced.remove(transfer);
        self.p[at].sender.abort(transfer, self.now);
        self.drain_p(at);
    }

    pub fn release(&mut self, at: usize, transfer: &TransferId) {
        // An engine that lets go of what still runs aborts it.
        if self.p[at].announced.contains(transfer) {
            return self.abort(at, transfer);
        }
        self.p[at].sender.release(transfer, self.now);
        self.drain_p(at);
    }

    pub fn release_all(&mut self, at: usize) {
        self.p[at].sender.release_all(self.now);
        self.drain_p(at);
    }

    /// A pull arrives at P: its layout is looked up first, as the layout cache does.
    pub fn take_pull(&mut self, at: usize, from: (usize, u64, PullId), pull: Pull) {
        let (d, epoch, id) = from;
        let readers = self.readers();
        let p = &mut self.p[at];
        let own = PullId(p.next_pull);
        p.next_pull += 1;
        p.pulls.insert(own, from);
        let extension = pull.extension.as_ref();
        assert_eq!(extension.is_none(), self.stock);
        if extension.is_some_and(|it| !p.sender.is_meant(it.incarnation)) {
            let names: Vec<_> = pull.requests.iter().map(|it| it.request_id.clone()).collect();
            let why = FailureReason::UnknownIncarnation;
            p.sender.refuse_pull(own, &names, why, "restarted", true);
            return self.drain_p(at);
        }
        let key = (pull.session.port, pull.layout_id);
        if pull.layout.is_some() {
            p.layouts.insert(key);
        } else if !p.layouts.contains(&key) {
            let reply = Reply {
                status: Status::LayoutMiss,
                ok: None,
                failed: None,
                message: None,
                layout_id: LayoutId::NONE,
                extension: (!self.stock).then(Default::default),
            };
            self.net.push(Packet::Reply { d, epoch, id, reply });
            return;
        }
        let resolved = ResolvedPull {
            id: own,
            reader: Reader { session: pull.session, tp_rank: pull.tp_rank },
            expected_readers: readers,
            layout: Planner::Blocks,
            echo: pull.layout_id,
            generation: extension.map(|it| it.generation),
            timeout: extension.map(|it| it.timeout).unwrap_or_default(),
            weights: extension.map(|it| it.weights).unwrap_or_default(),
            requests: pull.requests,
        };
        p.sender.pull(resolved, self.now);
        self.drain_p(at);
    }

    pub fn take_drop(&mut self, at: usize, drop: &DropTransfers) {
        self.p[at].sender.drop_transfers(drop, self.now);
        self.drain_p(at);
    }

    pub fn drain_p(&mut self, at: usize) {
        let p = &mut self.p[at];
        while let Some(action) = p.sender.next_action() {
            match action {
                SenderAction::Answer { pull, reply } => {
                    let (d, epoch, id) = p.pulls[&pull];
                    if reply.status == Status::Finish {
                        p.pulls.remove(&pull);
                    }
                    self.net.push(Packet::Reply { d, epoch, id, reply });
                }
                SenderAction::Write(start) => {
                    assert!(p.held.contains_key(&start.transfer), "[P01]");
                    let until = self.now + start.timeout;
                    self.writes.push(InFlight::new(at, start, until));
                }
                SenderAction::CancelWrite(write) => {
                    let mine = |it: &&mut InFlight| it.p == at && !it.orphaned;
                    let mut mine = self.writes.iter_mut().filter(mine);
                    let running = mine.find(|it| it.start.write == write);
                    let running = running.expect("cancels what runs");
                    assert!(!std::mem::replace(&mut running.cancelled, true), "cancels once");
                }
                SenderAction::Finished { request, transfer, .. } => {
                    let read = self
                        .writes
                        .iter()
                        .any(|it| it.p == at && !it.orphaned && it.start.transfer == transfer);
                    assert!(!read, "blocks of {transfer} go back while they are read [P01]");
                    let (owner, blocks) = p.held.remove(&transfer).expect("given back once [P01]");
                    assert_eq!(owner, request);
                    // Whoever gets them next overwrites them at once.
                    for block in blocks {
                        p.memory.insert(block, (TransferId::from("reused"), 0));
                        p.free.push(block);
                    }
                }
            }
        }
    }
}
