//! One rank of D: its engine's blocks, its memory and its receiver.

use super::layouts::{D_BLOCKS, columns, one_group, row_bytes, topology};
use super::network::{Origin, Packet};
use super::{BLOCKS, Byte, World, content};
use crate::campaign::Check;
use crate::ensure;
use crate::receiver::WatchedReceiver;
use kvbaton_core::ids::{Generation, Grant, LayoutId, RequestId, WeightVersion};
use kvbaton_core::receiver::{LoadEnd, LoadKind, LoadSpec, ReceiverAction, Registered};
use std::ops::RangeInclusive;

/// A load that D's engine waits for.
#[derive(Debug, Clone)]
struct Loading {
    request: RequestId,
    /// The transfer's number.
    number: usize,
    blocks: Vec<u32>,
    grant: Grant,
}

#[derive(Debug, Clone)]
pub(super) struct D {
    pub receiver: WatchedReceiver,
    pub epoch: u64,
    /// What its engine runs.
    pub weights: u64,
    pub generation: Generation,
    pub memory: Vec<Byte>,
    registrations: u64,
    free: Vec<u32>,
    loads: Vec<Loading>,
    next_grant: u64,
}

impl D {
    /// Whether all blocks are rows that the grant's load named.
    pub fn holds(&self, grant: Grant, mut blocks: RangeInclusive<u32>) -> bool {
        let load = self.loads.iter().find(|it| it.grant == grant);
        load.is_some_and(|load| blocks.all(|block| load.blocks.contains(&block)))
    }

    /// Whether all blocks are rows that some live load opened to stock writers `[Z02]`.
    pub fn is_open_to_stock(&self, mut blocks: RangeInclusive<u32>) -> bool {
        blocks.all(|block| {
            self.loads.iter().any(|load| {
                load.blocks.contains(&block) && self.receiver.rows(load.grant) == Some(true)
            })
        })
    }
}

impl World<'_> {
    pub(super) fn new_d(&mut self, at: usize, epoch: u64) -> D {
        let receiver = WatchedReceiver::new(self.receiver_config.clone(), topology(at, self.ds));
        let weights = self.d.get(at).map_or(1, |d| d.weights);
        let mut d = D {
            receiver,
            epoch,
            weights,
            generation: Generation(0),
            memory: vec![0; (row_bytes(self.ds) * u64::from(D_BLOCKS)) as usize],
            registrations: 0,
            free: (0..D_BLOCKS).rev().collect(),
            loads: Vec::new(),
            next_grant: 0,
        };
        self.register_d(at, &mut d);
        d.receiver.start_with(WeightVersion(weights));
        d
    }

    fn register_d(&mut self, at: usize, d: &mut D) {
        d.registrations += 1;
        let name = (at as u64 * 100 + d.epoch) * 100 + d.registrations;
        d.generation = Generation(name);
        self.trace.step(|| format!("D {at}: registers, layout id {}", name | 1));
        let reader = &self.names.readers[at * 2];
        d.receiver.register(Registered {
            // Odd, and never the same.
            layout_id: LayoutId(name * 2 + 1),
            generation: d.generation,
            columns: columns(self.ds, self.stock, d.epoch),
            session: reader.session.clone(),
        });
    }

    pub(super) fn load(
        &mut self,
        at: usize,
        request: &RequestId,
        number: usize,
        kind: LoadKind,
        flush: bool,
    ) -> Check {
        let engine = self.engine_id.clone();
        let transfer = self.names.transfers[number].clone();
        let d = &mut self.d[at];
        if d.free.len() < BLOCKS {
            return Ok(());
        }
        self.trace.step(|| format!("D {at}: {kind:?} {request} as {transfer}, flush: {flush}"));
        d.next_grant += 1;
        let grant = Grant((at as u64 * 100 + d.epoch) * 10_000 + d.next_grant);
        let blocks: Vec<u32> = d.free.split_off(d.free.len() - BLOCKS);
        let spec = LoadSpec {
            request: request.clone(),
            transfer,
            engine,
            bootstrap: self.bootstrap.clone(),
            blocks: one_group(&blocks),
            end_token: None,
            grant,
            kind,
        };
        if d.receiver.load(spec, self.now)? && kind == LoadKind::Load {
            d.loads.push(Loading { request: request.clone(), number, blocks, grant });
        } else {
            d.free.extend(blocks);
        }
        if flush {
            d.receiver.flush(self.now)?;
        }
        self.drain_d(at)
    }

    pub(super) fn flush(&mut self, at: usize) -> Check {
        self.trace.step(|| format!("D {at}: flush"));
        self.d[at].receiver.flush(self.now)?;
        self.drain_d(at)
    }

    pub(super) fn drop_load(&mut self, at: usize, request: &RequestId) -> Check {
        self.trace.step(|| format!("D {at}: drops {request}"));
        self.d[at].receiver.drop_load(request, self.now)?;
        self.drain_d(at)
    }

    /// D sleeps and wakes: its memory is registered anew.
    pub(super) fn register_again(&mut self, at: usize) -> Check {
        self.trace.step(|| format!("D {at}: unregisters"));
        self.d[at].receiver.unregister(self.now)?;
        self.drain_d(at)?;
        let mut d = self.d[at].clone();
        self.register_d(at, &mut d);
        self.d[at] = d;
        Ok(())
    }

    /// D's process ends and comes back with its memory empty, on the same address `[L11]`.
    pub(super) fn restart_d(&mut self, at: usize) {
        let epoch = self.d[at].epoch + 1;
        self.trace.note(|| format!("D {at} restarts"));
        self.d[at] = self.new_d(at, epoch);
    }

    pub(super) fn drain_d(&mut self, at: usize) -> Check {
        let epoch = self.d[at].epoch;
        let mut actions = std::mem::take(&mut self.d[at].receiver.actions);
        for action in actions.drain(..) {
            match action {
                ReceiverAction::Discover { .. } => self.send(Packet::Asked { d: at, epoch })?,
                ReceiverAction::Pull { id, address, pull, .. } => {
                    let from = Origin { d: at, epoch, id };
                    let p = self.rank_at(&address);
                    let (sent, pull) = (self.now, Box::new(pull));
                    self.send(Packet::Pull { p, from, sent, pull })?;
                }
                ReceiverAction::Drop { address, drop } => {
                    let p = self.rank_at(&address);
                    self.send(Packet::Drop { p, drop })?;
                }
                ReceiverAction::Revoke(grant) => {
                    self.send(Packet::Revoked { d: at, epoch, grant })?;
                }
                ReceiverAction::Ended { request, end, .. } => self.take_end(at, &request, &end)?,
                ReceiverAction::OpenGrant { .. } | ReceiverAction::ClosePull(_) => {}
            }
        }
        self.d[at].receiver.actions = actions;
        Ok(())
    }

    /// What is loaded must be what P held, of the weights that D runs: every head of every
    /// block `[P08, A07, R07]`.
    fn take_end(&mut self, at: usize, request: &RequestId, end: &LoadEnd) -> Check {
        let row = row_bytes(self.ds) as usize;
        let first_head = at * 2 / self.ds;
        let d = &mut self.d[at];
        let found = d.loads.iter().position(|it| it.request == *request);
        ensure!(found.is_some(), "P08", "{request} ends twice");
        let load = d.loads.swap_remove(found.unwrap_or_default());
        if *end == LoadEnd::Loaded {
            for (place, block) in load.blocks.iter().enumerate() {
                for head in 0..row {
                    let is = d.memory[*block as usize * row + head];
                    let must = content(d.weights, load.number, place, first_head + head);
                    ensure!(
                        is == must,
                        "P08",
                        "{request} is loaded at D {at} with {is:#x} in head {head} of block \
                         {block}, must be {must:#x}"
                    );
                }
            }
        }
        // Whoever gets the blocks next must not find the old KV there.
        for block in load.blocks {
            d.memory[block as usize * row..][..row].fill(0);
            d.free.push(block);
        }
        Ok(())
    }
}
