//! One rank of P: its engine's blocks, its layout cache and its sender.

use super::layouts::{P_BLOCKS, Rows, WatchedTable, one_group, row_bytes};
use super::network::{InFlight, Origin, Packet};
use super::{BLOCKS, Byte, World, content};
use crate::campaign::Check;
use crate::ensure;
use crate::sender::WatchedSender;
use kvbaton_core::ids::{Incarnation, LayoutId, RequestId, TransferId, WeightVersion};
use kvbaton_core::sender::{PullId, Reader, ResolvedPull, SenderAction};
use kvbaton_core::topology::expected_pulls;
use kvbaton_core::wire::{DropTransfers, FailureReason, Pull, Reply, ReplyExtension, Status};

#[derive(Debug, Clone)]
pub(super) struct P {
    pub run: Incarnation,
    pub sender: WatchedSender<Rows>,
    pub table: WatchedTable,
    pub memory: Vec<Byte>,
    free: Vec<u32>,
    /// What its engine runs.
    pub weights: u64,
    /// The weights that announced requests were begun with.
    started: Vec<(TransferId, RequestId, u64)>,
    /// Blocks that the sender has, by transfer.
    pub held: Vec<(TransferId, RequestId, Vec<u32>)>,
    /// Whose pull each of its own pulls is.
    pulls: Vec<(PullId, Origin)>,
    next_pull: u64,
}

impl World<'_> {
    pub(super) fn new_p(&mut self, rank: usize) -> Check<P> {
        let run = Incarnation(1_000 + self.engine);
        let mut table = WatchedTable::new(self.most_layouts);
        table.register(rank, self.ps)?;
        let weights = self.p.get(rank).map_or(1, |p| p.weights);
        let mut sender = WatchedSender::new(self.sender_config.clone(), run);
        sender.set_weights(WeightVersion(weights), self.now)?;
        Ok(P {
            run,
            sender,
            weights,
            started: Vec::new(),
            table,
            memory: vec![0; (row_bytes(self.ps) * u64::from(P_BLOCKS)) as usize],
            free: (0..P_BLOCKS).rev().collect(),
            held: Vec::new(),
            pulls: Vec::new(),
            next_pull: 0,
        })
    }

    pub(super) fn start(&mut self, at: usize, owner: &RequestId, id: &TransferId) -> Check {
        self.trace.step(|| format!("P {at}: {owner} starts as {id}"));
        let p = &mut self.p[at];
        let known = p.sender.is_owned(id);
        if p.sender.prefill_started(owner, id, self.now)? && !known {
            p.started.retain(|(of, ..)| of != id);
            p.started.push((id.clone(), owner.clone(), p.weights));
        }
        self.drain_p(at)
    }

    /// P's engine computes a transfer's blocks and hands them over.
    pub(super) fn hold(&mut self, at: usize, owner: &RequestId, number: usize) -> Check {
        let id = self.names.transfers[number].clone();
        let (row, ps) = (row_bytes(self.ps) as usize, self.ps);
        let p = &mut self.p[at];
        if p.free.len() < BLOCKS {
            return Ok(());
        }
        self.trace.step(|| format!("P {at}: {owner} holds {id}"));
        let begun = p.started.iter().find(|(of, by, _)| *of == id && by == owner);
        let begun = begun.filter(|_| p.sender.is_owned(&id)).map(|(.., weights)| *weights);
        let weights = begun.unwrap_or(p.weights);
        let blocks: Vec<u32> = p.free.split_off(p.free.len() - BLOCKS);
        for (place, block) in blocks.iter().enumerate() {
            for head in 0..row {
                let byte = content(weights, number, place, at * 2 / ps + head);
                p.memory[*block as usize * row + head] = byte;
            }
        }
        if p.sender.hold(owner, &id, one_group(&blocks), None, self.now)? {
            p.held.push((id, owner.clone(), blocks));
        } else {
            p.free.extend(blocks);
        }
        self.drain_p(at)
    }

    pub(super) fn abort(&mut self, at: usize, id: &TransferId) -> Check {
        self.trace.step(|| format!("P {at}: aborts {id}"));
        self.p[at].sender.abort(id, self.now)?;
        self.drain_p(at)
    }

    /// An engine that lets go of what still runs aborts it.
    pub(super) fn release(&mut self, at: usize, id: &TransferId) -> Check {
        let sender = &self.p[at].sender;
        if sender.is_owned(id) && !sender.is_held(id) {
            return self.abort(at, id);
        }
        self.trace.step(|| format!("P {at}: releases {id}"));
        self.p[at].sender.release(id, self.now)?;
        self.drain_p(at)
    }

    pub(super) fn release_all(&mut self, at: usize) -> Check {
        self.trace.step(|| format!("P {at}: releases all"));
        self.p[at].sender.release_all(self.now)?;
        self.drain_p(at)
    }

    /// P sleeps, once nothing is written, or wakes `[S01, L09]`.
    pub(super) fn sleep_or_wake(&mut self, at: usize) -> Check {
        if !self.p[at].table.is_registered() {
            self.trace.step(|| format!("P {at}: registers again"));
            return self.p[at].table.register(at, self.ps);
        }
        if self.p[at].sender.machine().in_use().next().is_some() {
            return Ok(());
        }
        self.trace.step(|| format!("P {at}: unregisters"));
        self.p[at].table.unregister();
        self.p[at].sender.refuse_open_pulls(self.now)?;
        self.drain_p(at)
    }

    /// Every layout that P keeps is lost, as in an eviction: registering again does it.
    pub(super) fn forget_layouts(&mut self, at: usize) -> Check {
        if !self.p[at].table.is_registered() {
            return Ok(());
        }
        self.trace.step(|| format!("P {at}: forgets its layouts"));
        self.p[at].table.register(at, self.ps)
    }

    /// A pull arrives at P: its layout is looked up first, as the layout cache does.
    pub(super) fn take_pull(&mut self, at: usize, from: Origin, pull: Pull) -> Check {
        let p = &mut self.p[at];
        let own = PullId(p.next_pull);
        p.next_pull += 1;
        let extension = pull.extension.clone();
        let extended = extension.is_some();
        let why = match &extension {
            Some(it) if !p.sender.machine().is_meant(it.incarnation) => {
                Some(FailureReason::UnknownIncarnation)
            }
            _ if !p.table.is_registered() => Some(FailureReason::Unavailable),
            _ => None,
        };
        if let Some(why) = why {
            p.pulls.push((own, from));
            let names: Vec<_> = pull.requests.iter().map(|it| it.request_id.clone()).collect();
            p.sender.refuse_pull(own, &names, why, extended, self.now)?;
            return self.drain_p(at);
        }
        let Some((layout, echo)) = p.table.resolve(&pull)? else {
            let reply = Reply {
                status: Status::LayoutMiss,
                ok: None,
                failed: None,
                message: None,
                layout_id: LayoutId::NONE,
                extension: extended.then(ReplyExtension::default),
            };
            return self.send(Packet::Reply { to: from, reply });
        };
        p.pulls.push((own, from));
        let local = super::layouts::topology(at, self.ps);
        let expected_readers = expected_pulls(local, pull.tp_size, pull.pp_size);
        ensure!(expected_readers.is_ok(), "A04", "sizes do not divide: {expected_readers:?}");
        let resolved = ResolvedPull {
            id: own,
            reader: Reader { session: pull.session, tp_rank: pull.tp_rank },
            expected_readers: expected_readers.unwrap_or(1),
            layout,
            echo,
            generation: extension.as_ref().map(|it| it.generation),
            timeout: extension.as_ref().map(|it| it.timeout).unwrap_or_default(),
            weights: extension.map(|it| it.weights).unwrap_or_default(),
            requests: pull.requests,
        };
        p.sender.pull(resolved, self.now)?;
        self.drain_p(at)
    }

    pub(super) fn take_drop(&mut self, at: usize, drop: &DropTransfers) -> Check {
        self.p[at].sender.drop_transfers(drop, self.now)?;
        self.drain_p(at)
    }

    pub(super) fn drain_p(&mut self, at: usize) -> Check {
        let row = row_bytes(self.ps) as usize;
        let mut actions = std::mem::take(&mut self.p[at].sender.actions);
        for action in actions.drain(..) {
            let p = &mut self.p[at];
            match action {
                SenderAction::Answer { pull, reply } => {
                    let found = p.pulls.iter().position(|(own, _)| *own == pull);
                    ensure!(found.is_some(), "P02", "an answer to no pull");
                    let found = found.unwrap_or_default();
                    let to = p.pulls[found].1;
                    if reply.status == Status::Finish {
                        p.pulls.swap_remove(found);
                    }
                    self.send(Packet::Reply { to, reply })?;
                }
                SenderAction::Write(start) => {
                    let until = self.now + start.timeout;
                    self.writes.push(InFlight {
                        p: at,
                        start,
                        applied: 0,
                        until,
                        cancelled: false,
                        orphaned: false,
                    });
                }
                SenderAction::CancelWrite(write) => {
                    let mut mine = self.writes.iter_mut().filter(|it| it.p == at && !it.orphaned);
                    if let Some(running) = mine.find(|it| it.start.write == write) {
                        running.cancelled = true;
                    }
                }
                SenderAction::Finished { transfer, .. } => {
                    let found = p.held.iter().position(|(id, ..)| *id == transfer);
                    ensure!(found.is_some(), "P01", "{transfer}'s blocks come back twice");
                    let (_, _, blocks) = p.held.swap_remove(found.unwrap_or_default());
                    // Whoever gets them next overwrites them at once.
                    for block in blocks {
                        p.memory[block as usize * row..][..row].fill(super::REUSED);
                        p.free.push(block);
                    }
                }
            }
        }
        self.p[at].sender.actions = actions;
        Ok(())
    }
}
