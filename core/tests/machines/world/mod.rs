//! Both sides together, over a network and a data plane that tests drive step by step.
//!
//! P's ranks write into each D's memory; every block's content says which transfer it
//! belongs to, so that a load's blocks can be compared with what P held.

mod decode;
mod network;
mod prefill;

pub use decode::D;
pub use network::{InFlight, Packet};
pub use prefill::P;

use kvbaton_core::directory::{EngineRanks, OurRank, Rank};
use kvbaton_core::ids::{EngineId, TransferId};
use kvbaton_core::receiver::ReceiverConfig;
use kvbaton_core::sender::SenderConfig;
use kvbaton_core::time::Timestamp;
use std::time::Duration;

/// What a block holds: the transfer that it was computed for, and its place there.
pub type Content = (TransferId, u32);

/// Blocks of each transfer.
pub const BLOCKS: u32 = 2;

/// A P of one or two ranks and one or two Ds.
#[derive(Debug, Clone)]
pub struct World {
    pub now: Timestamp,
    pub p: Vec<P>,
    pub d: Vec<D>,
    /// P's engine id changes with each restart.
    pub engine: u32,
    /// Whether P's ranks are stock ones: no grants, no drops, no run of their own.
    pub stock: bool,
    pub net: Vec<Packet>,
    pub writes: Vec<InFlight>,
    pub sender_config: SenderConfig,
    pub receiver_config: ReceiverConfig,
    /// Loads that ended as loaded.
    pub loaded: u32,
}

impl World {
    /// `ds` are the tensor-parallel ranks of one D.
    pub fn new(
        ps: usize,
        ds: usize,
        sender_config: SenderConfig,
        receiver_config: ReceiverConfig,
    ) -> Self {
        Self {
            now: Timestamp(0),
            p: (0..ps).map(|rank| P::new(rank, 0, &sender_config)).collect(),
            d: (0..ds).map(|rank| D::new(rank, ds, 0, &receiver_config)).collect(),
            engine: 0,
            stock: false,
            net: Vec::new(),
            writes: Vec::new(),
            sender_config,
            receiver_config,
            loaded: 0,
        }
    }

    pub fn engine_id(&self) -> EngineId {
        EngineId::from(format!("engine {}", self.engine))
    }

    /// What the bootstrap server says now.
    pub fn directory(&self) -> Vec<(EngineId, EngineRanks)> {
        let rank = |p: &P| Rank {
            address: format!("{}", p.rank).into(),
            ours: (!self.stock).then_some(OurRank {
                revision: 1,
                features: 0,
                incarnation: p.run,
                sizes: (0, 0),
            }),
        };
        let ranks = self.p.iter().map(|p| (p.rank as u32, [(0, rank(p))].into())).collect();
        vec![(self.engine_id(), ranks)]
    }

    /// Whether P's rank holds a part of what D's rank loads. With equal sizes they pair one
    /// to one; otherwise one side has a single rank here.
    pub fn paired(&self, p: usize, d: usize) -> bool {
        self.p.len() != self.d.len() || p == d
    }

    /// D ranks that read each of P's ranks.
    pub fn readers(&self) -> u32 {
        (self.d.len() / self.p.len()).max(1) as u32
    }

    /// P's process ends and comes back; what is on its way may still arrive.
    pub fn restart_p(&mut self) {
        self.engine += 1;
        for rank in 0..self.p.len() {
            self.p[rank] = P::new(rank, self.engine, &self.sender_config);
        }
        self.writes.iter_mut().for_each(|write| write.orphaned = true);
    }

    /// A D's process ends and comes back with its memory empty.
    pub fn restart_d(&mut self, d: usize) {
        let epoch = self.d[d].epoch + 1;
        self.d[d] = D::new(d, self.d.len(), epoch, &self.receiver_config);
    }

    /// Lets time pass. Writes end within their time, as P's data plane promises.
    pub fn advance(&mut self, by: Duration) {
        let until = self.now + by;
        loop {
            let senders = self.p.iter().filter_map(|p| p.sender.next_deadline());
            let receivers = self.d.iter().filter_map(|d| d.receiver.next_deadline());
            let writes = self.writes.iter().map(|write| write.until);
            let Some(next) = senders.chain(receivers).chain(writes).min() else { break };
            if next > until {
                break;
            }
            self.now = self.now.max(next);
            while let Some(at) = self.writes.iter().position(|write| write.until <= self.now) {
                self.fail_write(at, false);
            }
            for at in 0..self.p.len() {
                self.p[at].sender.tick(self.now);
                self.drain_p(at);
            }
            for at in 0..self.d.len() {
                self.d[at].receiver.tick(self.now);
                self.drain_d(at);
            }
        }
        self.now = until;
    }

    /// Everything on its way arrives, again and again, until nothing is.
    pub fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 10_000, "it never comes to rest");
            if !self.net.is_empty() {
                self.deliver(0);
            } else if !self.writes.is_empty() {
                self.step_write(0);
            } else {
                break;
            }
        }
    }

    /// The network heals, P's engine ends what it announced, and time passes: nothing may
    /// be left of anything.
    pub fn heal(&mut self) {
        self.settle();
        for at in 0..self.p.len() {
            let announced: Vec<TransferId> = self.p[at].announced.iter().cloned().collect();
            for transfer in announced {
                self.abort(at, &transfer);
            }
        }
        for _ in 0..4 {
            self.advance(Duration::from_secs(2_000));
            self.settle();
        }
        for p in &self.p {
            let s = &p.sender;
            assert_eq!((s.transfers(), s.open_pulls(), s.waiting()), (0, 0, 0), "{s:#?}");
            assert_eq!((s.queued(), s.writes(), s.held(), s.next_deadline()), (0, 0, 0, None));
            assert!(p.held.is_empty(), "blocks are lost: {:?}", p.held);
        }
        for d in &self.d {
            assert_eq!((d.receiver.loads(), d.receiver.open_pulls()), (0, 0), "{:#?}", d.receiver);
            assert_eq!(d.receiver.next_deadline(), None);
            assert!(d.loads.is_empty() && d.open.is_empty(), "{:?} {:?}", d.loads, d.open);
        }
    }
}
