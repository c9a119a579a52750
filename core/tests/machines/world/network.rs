//! What is on its way between P and D.

use super::World;
use crate::planner::Planner;
use kvbaton_core::ids::Grant;
use kvbaton_core::sender::{PullId, StartWrite, WriteResult};
use kvbaton_core::time::Timestamp;
use kvbaton_core::wire::{DropTransfers, Pull, Reply};

/// A message; those to a D name the epoch that they are meant for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "a test's few packets")]
pub enum Packet {
    Pull {
        p: usize,
        d: usize,
        epoch: u64,
        id: PullId,
        pull: Pull,
    },
    Drop {
        p: usize,
        drop: DropTransfers,
    },
    Reply {
        d: usize,
        epoch: u64,
        id: PullId,
        reply: Reply,
    },
    /// A question to the bootstrap server.
    Asked {
        d: usize,
        epoch: u64,
    },
    /// D's own data plane has revoked a grant. Never lost.
    Revoked {
        d: usize,
        epoch: u64,
        grant: Grant,
    },
}

/// A write whose bytes travel one block at a time.
#[derive(Debug, Clone)]
pub struct InFlight {
    pub p: usize,
    pub start: StartWrite<Planner>,
    applied: usize,
    pub until: Timestamp,
    pub cancelled: bool,
    /// Its P has restarted: nobody hears of its end.
    pub orphaned: bool,
}

impl InFlight {
    pub fn new(p: usize, start: StartWrite<Planner>, until: Timestamp) -> Self {
        Self { p, start, applied: 0, until, cancelled: false, orphaned: false }
    }
}

impl World {
    pub fn deliver(&mut self, at: usize) {
        let packet = self.net.remove(at);
        self.arrive(packet);
    }

    /// The packet arrives and is still on its way: a duplicate.
    pub fn duplicate(&mut self, at: usize) {
        // Neither questions to one's own machine nor pulls come twice: a pull is one
        // message on one connection.
        if let Packet::Reply { .. } | Packet::Drop { .. } = self.net[at] {
            self.arrive(self.net[at].clone());
        }
    }

    /// The packet is lost, and D may be told that a connection broke.
    pub fn lose(&mut self, at: usize, told: bool) {
        let (d, epoch, id, sent) = match &self.net[at] {
            Packet::Revoked { .. } => return,
            Packet::Drop { .. } | Packet::Asked { .. } => {
                self.net.remove(at);
                return;
            }
            Packet::Pull { d, epoch, id, .. } => (*d, *epoch, *id, false),
            Packet::Reply { d, epoch, id, .. } => (*d, *epoch, *id, true),
        };
        self.net.remove(at);
        if told && self.d[d].epoch == epoch {
            self.d[d].receiver.pull_failed(id, sent, "connection lost", self.now);
            self.drain_d(d);
        }
    }

    fn arrive(&mut self, packet: Packet) {
        match packet {
            Packet::Pull { p, d, epoch, id, pull } => self.take_pull(p, (d, epoch, id), pull),
            Packet::Drop { p, drop } => self.take_drop(p, &drop),
            Packet::Reply { d, epoch, id, reply } if self.d[d].epoch == epoch => {
                self.d[d].receiver.reply(id, reply, self.now);
                self.drain_d(d);
            }
            Packet::Asked { d, epoch } if self.d[d].epoch == epoch => {
                let answer = Ok(self.directory());
                self.d[d].receiver.discovered("bootstrap", answer, self.now);
                self.drain_d(d);
            }
            Packet::Revoked { d, epoch, grant } if self.d[d].epoch == epoch => {
                self.d[d].open.remove(&grant);
                self.d[d].receiver.revoked(grant);
                self.drain_d(d);
            }
            Packet::Reply { .. } | Packet::Asked { .. } | Packet::Revoked { .. } => {}
        }
    }

    /// One more block of a write arrives, or its end. D's data plane takes it only under a
    /// live grant of the current registration, inside the rows that it names [G01].
    pub fn step_write(&mut self, at: usize) {
        let write = &mut self.writes[at];
        let start = &write.start;
        if write.cancelled {
            return self.fail_write(at, true);
        }
        let Some(copy) = start.copies.get(write.applied) else {
            return self.end_write(at, WriteResult::Written);
        };
        write.applied += 1;
        let (block, p) = (copy.destination.0 as u32, write.p);
        let d = &mut self.d[usize::from(start.reader.session.port)];
        let taken = match start.grant {
            Some(grant) => {
                start.generation == Some(d.generation)
                    && d.open.get(&grant).is_some_and(|rows| rows.blocks.contains(&block))
            }
            None => d.open.values().any(|rows| rows.ungranted && rows.blocks.contains(&block)),
        };
        if !taken {
            return self.fail_write(at, true);
        }
        if !write.orphaned {
            d.memory.insert((p, block), self.p[p].read(copy.source.0 as u32));
        }
    }

    pub fn fail_write(&mut self, at: usize, settled: bool) {
        self.end_write(at, WriteResult::Failed { settled, message: "refused".into() });
    }

    fn end_write(&mut self, at: usize, result: WriteResult) {
        let write = self.writes.remove(at);
        if !write.orphaned {
            self.p[write.p].sender.write_done(write.start.write, result, self.now);
            self.drain_p(write.p);
        }
    }
}
