//! What is on its way between P and D: it may be lost, come twice, or overtake.

use super::World;
use super::layouts::{P_BASE, Rows, d_base, row_bytes};
use crate::campaign::Check;
use crate::ensure;
use kvbaton_core::ids::Grant;
use kvbaton_core::sender::{PullId, StartWrite, WriteResult};
use kvbaton_core::time::Timestamp;
use kvbaton_core::wire::{DropTransfers, Limits, Pull, Reply, ToPrefill};
use std::time::Duration;

/// How long a pull may be on its way to a stock P.
const LONGEST_WAY: Duration = Duration::from_secs(5);

/// Which pull of which run of which D rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    pub d: usize,
    pub epoch: u64,
    pub id: PullId,
}

/// A message.
#[derive(Debug, Clone)]
pub(super) enum Packet {
    Pull {
        p: usize,
        from: Origin,
        sent: Timestamp,
        pull: Box<Pull>,
    },
    Drop {
        p: usize,
        drop: DropTransfers,
    },
    Reply {
        to: Origin,
        reply: Reply,
    },
    /// A question to the bootstrap server.
    Asked {
        d: usize,
        epoch: u64,
    },
    /// D's own data plane has revoked a grant: never lost.
    Revoked {
        d: usize,
        epoch: u64,
        grant: Grant,
    },
}

impl Packet {
    pub fn words(&self) -> String {
        match self {
            Self::Pull { p, from, pull, .. } => {
                let names: Vec<_> = pull.requests.iter().map(|it| it.request_id.as_str()).collect();
                let layout = if pull.layout.is_some() { "with" } else { "without" };
                format!(
                    "pull {} of D {} {layout} layout for {} at P {p}",
                    from.id.0,
                    from.d,
                    names.join(" ")
                )
            }
            Self::Drop { p, drop } => {
                let names: Vec<_> = drop.transfers.iter().map(|(_, id, _)| id.as_str()).collect();
                format!("drop of {} at P {p}", names.join(" "))
            }
            Self::Reply { to, reply } => {
                let names = |it: &Option<Vec<_>>| format!("{:?}", it.as_deref().unwrap_or(&[]));
                format!(
                    "{:?} to pull {} of D {}: ok {}, failed {}, echo {}",
                    reply.status,
                    to.id.0,
                    to.d,
                    names(&reply.ok),
                    names(&reply.failed),
                    reply.layout_id.0
                )
            }
            Self::Asked { d, .. } => format!("D {d}'s question at the bootstrap server"),
            Self::Revoked { d, grant, .. } => format!("grant {} is revoked at D {d}", grant.0),
        }
    }
}

/// A write whose bytes travel copy by copy.
#[derive(Debug, Clone)]
pub(super) struct InFlight {
    pub p: usize,
    pub start: StartWrite<Rows>,
    pub applied: usize,
    pub until: Timestamp,
    pub cancelled: bool,
    /// Its P has restarted: nobody hears of its end.
    pub orphaned: bool,
}

impl World<'_> {
    pub(super) fn deliver(&mut self, at: usize) -> Check {
        let packet = self.net.swap_remove(at);
        self.trace.step(|| format!("arrives: {}", packet.words()));
        self.arrive(packet)
    }

    /// It arrives, and is still on its way. A pull is one message on one connection, and
    /// questions are asked at home: neither comes twice.
    pub(super) fn duplicate(&mut self, at: usize) -> Check {
        let packet = &self.net[at];
        if let Packet::Reply { .. } | Packet::Drop { .. } = packet {
            self.trace.step(|| format!("arrives for the first time: {}", packet.words()));
            self.arrive(packet.clone())?;
        }
        Ok(())
    }

    /// It is lost, and D may be told that a connection broke.
    pub(super) fn lose(&mut self, at: usize, told: bool) -> Check {
        let (to, sent) = match &self.net[at] {
            Packet::Revoked { .. } => return Ok(()),
            Packet::Drop { .. } | Packet::Asked { .. } => (None, false),
            Packet::Pull { from, .. } => (Some(*from), false),
            Packet::Reply { to, .. } => (Some(*to), true),
        };
        let packet = self.net.swap_remove(at);
        self.trace.step(|| format!("lost, D is told: {told}: {}", packet.words()));
        match to {
            Some(to) if told && self.d[to.d].epoch == to.epoch => {
                self.d[to.d].receiver.pull_failed(to.id, sent, self.now)?;
                self.drain_d(to.d)
            }
            _ => Ok(()),
        }
    }

    fn arrive(&mut self, packet: Packet) -> Check {
        match packet {
            // What a stock P cannot tell from a new pull must not come late: its connection
            // is gone by then.
            Packet::Pull { sent, .. } if self.stock && self.now.since(sent) > LONGEST_WAY => Ok(()),
            Packet::Pull { p, from, pull, .. } => self.take_pull(p, from, *pull),
            Packet::Drop { p, drop } => self.take_drop(p, &drop),
            Packet::Reply { to, reply } if self.d[to.d].epoch == to.epoch => {
                self.d[to.d].receiver.reply(to.id, reply, self.now)?;
                self.drain_d(to.d)
            }
            Packet::Asked { d, epoch } if self.d[d].epoch == epoch => {
                let answer = Ok(self.directory());
                self.d[d].receiver.discovered("bootstrap", answer, self.now)?;
                self.drain_d(d)
            }
            Packet::Revoked { d, epoch, grant } if self.d[d].epoch == epoch => {
                self.d[d].receiver.revoked(grant, self.now)?;
                self.drain_d(d)
            }
            Packet::Reply { .. } | Packet::Asked { .. } | Packet::Revoked { .. } => Ok(()),
        }
    }

    /// In some runs every message goes through the codec.
    pub(super) fn through_wire(&self, packet: Packet) -> Check<Packet> {
        if !self.encodes {
            return Ok(packet);
        }
        let mut bytes = Vec::new();
        let limits = Limits::default();
        match &packet {
            Packet::Pull { pull, .. } => {
                if pull.extension.is_some() {
                    pull.encode_compact(&mut bytes);
                } else {
                    pull.encode_stock(&mut bytes);
                }
                let read = ToPrefill::decode(&bytes, &limits);
                let same = matches!(&read, Ok(ToPrefill::Pull(read)) if *read == **pull);
                ensure!(same, "Z01", "{pull:?} reads back as {read:?}");
            }
            Packet::Drop { drop, .. } => {
                drop.encode(&mut bytes);
                let read = ToPrefill::decode(&bytes, &limits);
                let same = matches!(&read, Ok(ToPrefill::Drop(read)) if read == drop);
                ensure!(same, "Z01", "{drop:?} reads back as {read:?}");
            }
            Packet::Reply { reply, .. } => {
                reply.encode(&mut bytes);
                let read = Reply::decode(&bytes, &limits);
                ensure!(read.as_ref() == Ok(reply), "Z01", "{reply:?} reads back as {read:?}");
            }
            Packet::Asked { .. } | Packet::Revoked { .. } => {}
        }
        Ok(packet)
    }

    /// One more copy of a write arrives, or its end. D's data plane takes it only under a
    /// live grant of its registration, inside the rows that it names `[G01]`.
    pub(super) fn step_write(&mut self, at: usize) -> Check {
        let write = &mut self.writes[at];
        if write.cancelled {
            return self.fail_write(at, true);
        }
        let Some(copy) = write.start.copies.get(write.applied).copied() else {
            return self.end_write(at, WriteResult::Written);
        };
        write.applied += 1;
        let (p, orphaned, start) = (write.p, write.orphaned, &write.start);
        let d = &mut self.d[usize::from(start.reader.session.port)];
        let row = row_bytes(self.ds);
        // Into the memory of a process that is gone: far outside.
        let from = copy.destination.0.wrapping_sub(d_base(d.epoch));
        let inside = from.checked_add(copy.len.0).is_some_and(|end| end <= d.memory.len() as u64);
        let blocks = (from / row) as u32..=((from.wrapping_add(copy.len.0 - 1)) / row) as u32;
        let taken = inside
            && match start.grant {
                Some(grant) => {
                    start.generation == Some(d.generation)
                        && d.receiver.rows(grant).is_some()
                        && d.holds(grant, blocks.clone())
                }
                None => d.is_open_to_stock(blocks.clone()),
            };
        self.trace.note(|| {
            let id = &start.transfer;
            format!("P {p} writes blocks {blocks:?} of {id}, taken: {taken}")
        });
        if !taken {
            return self.fail_write(at, true);
        }
        if !orphaned {
            let source = (copy.source.0 - P_BASE) as usize;
            let bytes = &self.p[p].memory[source..source + copy.len.0 as usize];
            let target = from as usize;
            d.memory[target..target + bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    pub(super) fn fail_write(&mut self, at: usize, settled: bool) -> Check {
        self.end_write(at, WriteResult::Failed { settled, message: String::new() })
    }

    fn end_write(&mut self, at: usize, result: WriteResult) -> Check {
        let write = self.writes.swap_remove(at);
        if write.orphaned {
            return Ok(());
        }
        let (p, id) = (write.p, &write.start.transfer);
        self.trace.step(|| format!("P {p}'s write of {id}: {result:?}"));
        self.p[p].sender.write_done(write.start.write, result, self.now)?;
        self.drain_p(p)
    }
}
