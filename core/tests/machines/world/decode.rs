//! One rank of D: its engine's blocks, its data plane's grants and its receiver.

use super::{BLOCKS, Content, Packet, World};
use crate::names::session;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{Generation, Grant, LayoutId, RequestId, TransferId};
use kvbaton_core::receiver::{
    LoadEnd, LoadKind, LoadSpec, Receiver, ReceiverAction, ReceiverConfig, Registered,
};
use kvbaton_core::topology::Topology;
use kvbaton_core::wire::LayoutColumns;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A load that D's engine waits for.
#[derive(Debug, Clone)]
pub struct Loading {
    pub transfer: TransferId,
    pub blocks: Vec<u32>,
    pub grant: Grant,
}

/// What one grant opens.
#[derive(Debug, Clone)]
pub struct Rows {
    pub blocks: BTreeSet<u32>,
    /// Whether writers without a grant may write here too.
    pub ungranted: bool,
}

#[derive(Debug, Clone)]
pub struct D {
    pub receiver: Receiver,
    pub epoch: u64,
    rank: usize,
    registrations: u64,
    pub generation: Generation,
    /// By P rank and block: where each P rank's part of a block lies.
    pub memory: BTreeMap<(usize, u32), Content>,
    free: Vec<u32>,
    pub loads: BTreeMap<RequestId, Loading>,
    /// Open grants and their rows.
    pub open: BTreeMap<Grant, Rows>,
    next_grant: u64,
}

impl D {
    pub fn new(rank: usize, ranks: usize, epoch: u64, config: &ReceiverConfig) -> Self {
        let topology =
            Topology { tp_rank: rank as u32, tp_size: ranks as u32, pp_rank: 0, pp_size: 1 };
        let mut d = Self {
            receiver: Receiver::new(config.clone(), topology),
            epoch,
            rank,
            registrations: 0,
            generation: Generation(0),
            memory: BTreeMap::new(),
            free: (0..8).rev().collect(),
            loads: BTreeMap::new(),
            open: BTreeMap::new(),
            next_grant: 0,
        };
        d.register();
        d
    }

    pub fn register(&mut self) {
        self.registrations += 1;
        let name = (self.rank as u64 * 100 + self.epoch) * 100 + self.registrations;
        self.generation = Generation(name);
        self.receiver.register(Registered {
            layout_id: LayoutId::from_random(name * 2),
            generation: self.generation,
            columns: Arc::new(LayoutColumns::default()),
            session: session(self.rank as u16),
        });
    }
}

impl World {
    pub fn load(&mut self, at: usize, request: RequestId, transfer: &TransferId, kind: LoadKind) {
        let engine = self.engine_id();
        let d = &mut self.d[at];
        if d.free.len() < BLOCKS as usize {
            return;
        }
        d.next_grant += 1;
        let grant = Grant((d.rank as u64 * 100 + d.epoch) * 10_000 + d.next_grant);
        let blocks: Vec<u32> = (0..BLOCKS).filter_map(|_| d.free.pop()).collect();
        let spec = LoadSpec {
            request: request.clone(),
            transfer: transfer.clone(),
            engine,
            bootstrap: "bootstrap".into(),
            blocks: vec![blocks.iter().copied().collect::<BlockList>()],
            end_token: None,
            grant,
            kind,
        };
        let taken = d.receiver.load(spec, self.now);
        if taken.is_ok() && kind == LoadKind::Load {
            let loading = Loading { transfer: transfer.clone(), blocks, grant };
            assert!(d.loads.insert(request, loading).is_none(), "loads twice [P11]");
        } else {
            d.free.extend(blocks);
        }
        self.drain_d(at);
    }

    pub fn flush(&mut self, at: usize) {
        self.d[at].receiver.flush(self.now);
        self.drain_d(at);
    }

    pub fn drop_load(&mut self, at: usize, request: &RequestId) {
        self.d[at].receiver.drop_load(request, self.now);
        self.drain_d(at);
    }

    /// D sleeps and wakes: its memory is registered anew.
    pub fn register_again(&mut self, at: usize) {
        self.d[at].receiver.unregister(self.now);
        self.drain_d(at);
        self.d[at].register();
    }

    pub fn drain_d(&mut self, at: usize) {
        let writers: Vec<usize> = (0..self.p.len()).filter(|p| self.paired(*p, at)).collect();
        let d = &mut self.d[at];
        let epoch = d.epoch;
        while let Some(action) = d.receiver.next_action() {
            match action {
                ReceiverAction::Discover { .. } => self.net.push(Packet::Asked { d: at, epoch }),
                ReceiverAction::OpenGrant { grant, generation, blocks, allow_ungranted } => {
                    assert_eq!(generation, d.generation);
                    assert_eq!(allow_ungranted, self.stock);
                    let blocks = blocks[0].iter().map(|block| block.0).collect();
                    let rows = Rows { blocks, ungranted: allow_ungranted };
                    assert!(d.open.insert(grant, rows).is_none(), "opened twice");
                }
                ReceiverAction::Pull { id, address, pull, .. } => {
                    let p = address.parse().expect("a rank's number");
                    self.net.push(Packet::Pull { p, d: at, epoch, id, pull });
                }
                ReceiverAction::ClosePull(_) => {}
                ReceiverAction::Drop { address, drop } => {
                    let p = address.parse().expect("a rank's number");
                    self.net.push(Packet::Drop { p, drop });
                }
                ReceiverAction::Revoke(grant) => {
                    assert!(d.open.contains_key(&grant), "revokes what is not open");
                    self.net.push(Packet::Revoked { d: at, epoch, grant });
                }
                ReceiverAction::Ended { request, transfer, end } => {
                    let load = d.loads.remove(&request).expect("each load ends once [P08]");
                    assert_eq!(load.transfer, transfer);
                    assert!(!d.open.contains_key(&load.grant), "ends under an open grant [G02]");
                    if end == LoadEnd::Loaded {
                        self.loaded += 1;
                        for p in &writers {
                            for (place, block) in load.blocks.iter().enumerate() {
                                let there = d.memory.get(&(*p, *block));
                                let whole = Some(&(transfer.clone(), place as u32));
                                assert_eq!(there, whole, "{request} is loaded from rank {p} [P08]");
                            }
                        }
                    }
                    for block in load.blocks {
                        for p in 0..self.p.len() {
                            d.memory.remove(&(p, block));
                        }
                        d.free.push(block);
                    }
                }
            }
        }
    }
}
