//! D: its engine's blocks and loads, its data plane's grants, its receiver and its
//! registration.

mod asked;
mod lasting;

use crate::coverage::Seen;
use crate::data_plane::{Piece, Write, pieces};
use crate::memo::Output;
use crate::memory::decode_columns;
use crate::names::{
    address, decode_request, engine, generation, grant, layout_id, number, transfer,
};
use crate::network::{Letter, Packet};
use crate::options::{Broken, Options};
use crate::prefill::DRAIN;
use crate::rules::Rule;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::directory::{EngineRanks, OurRank, Rank};
use kvbaton_core::ids::{EngineId, Generation, Grant, Incarnation, SessionAddress};
use kvbaton_core::lifecycle::{Lifecycle, Names, State};
use kvbaton_core::receiver::{LoadKind, LoadSpec, Receiver, ReceiverConfig, Registered};
use kvbaton_core::region::Copy;
use kvbaton_core::sender::PullId;
use kvbaton_core::time::Timestamp;
use kvbaton_core::topology::Topology;
use kvbaton_core::wire::Reply;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How one of D's requests stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Load {
    /// Not loaded yet.
    New,
    /// Its blocks, from `first` on, are lent to the transfer.
    Running {
        /// The first block.
        first: u8,
        /// Restarts of P's engine before it was asked for.
        engine: u8,
    },
    /// Reported; the engine has the blocks again.
    Ended {
        /// Restarts of P's engine before it was asked for.
        engine: u8,
    },
}

/// What D takes in.
#[derive(Debug, Clone, Hash)]
pub enum DecodeInput {
    /// Its engine loads requests, in one pull, from P's engine after so many restarts.
    Load(Vec<u8>, u8),
    /// Its engine gives a load up.
    Drop(u8),
    /// P or its own data plane tells it something.
    Letter(Letter),
    /// The bootstrap server lists P's engine after so many restarts, as these processes.
    Discovered(u8, Vec<Incarnation>),
    /// The bootstrap server cannot be asked.
    NotDiscovered,
    /// The connection of a pull broke: P may have read it, or has not.
    PullFailed(PullId, bool),
    /// A copy of a write reaches its data plane.
    Land(Write, Copy),
    /// The engine asks for the registration's end.
    Sleep,
    /// The drain is over.
    Leave,
    /// Memory is registered again, elsewhere.
    Wake,
    /// What is due is done.
    Tick(Timestamp),
}

/// D.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Decode {
    /// Core's machine.
    pub receiver: Receiver,
    /// Core's machine.
    pub lifecycle: Lifecycle,
    registration: u8,
    now: Timestamp,
    /// By request.
    pub loads: Vec<Load>,
    /// Grants that the data plane honours, and their blocks.
    pub open: BTreeMap<Grant, Vec<u8>>,
    /// By P rank and block of D: the block of P that has landed there.
    memory: BTreeMap<(u8, u8), u8>,
    /// P ranks that echoed the current layout id, one bit each.
    heard: u8,
}

impl Decode {
    /// A registered D.
    pub fn new(options: &Options) -> Self {
        let config = ReceiverConfig {
            load_timeout: Duration::from_secs(100),
            max_peers: crate::memory::REMEMBERED,
            ..ReceiverConfig::default()
        };
        let mut decode = Self {
            receiver: Receiver::new(config, Topology::SINGLE),
            lifecycle: Lifecycle::default(),
            registration: 0,
            now: Timestamp(0),
            loads: vec![Load::New; options.loads.into()],
            open: BTreeMap::new(),
            memory: BTreeMap::new(),
            heard: 0,
        };
        decode.register(options);
        decode
    }

    fn register(&mut self, options: &Options) {
        let same = options.broken == Some(Broken::SameLayoutId);
        let names = Names {
            generation: generation(self.registration),
            layout_id: layout_id(if same { 0 } else { self.registration }),
        };
        self.heard = 0;
        self.lifecycle.registered(names);
        self.receiver.register(Registered {
            layout_id: names.layout_id,
            generation: names.generation,
            columns: Arc::new(decode_columns(self.registration, options.ranks)),
            session: SessionAddress { host: "d".into(), port: 1 },
        });
    }

    fn generation(&self) -> Option<Generation> {
        self.lifecycle.names().map(|names| names.generation)
    }

    /// Whether its engine may load.
    pub fn is_awake(&self) -> bool {
        self.lifecycle.names().is_some()
    }

    /// Takes an input, and carries out what the receiver then asks for.
    pub fn take(&mut self, input: DecodeInput, options: &Options, out: &mut Output) {
        match input {
            DecodeInput::Load(loads, restarts) => self.load(&loads, restarts, options),
            DecodeInput::Drop(load) => {
                self.receiver.drop_load(&decode_request(load), self.now);
            }
            DecodeInput::Letter(letter) => match &*letter {
                Packet::Reply { rank, id, reply } => self.reply(*rank, *id, reply.clone(), out),
                Packet::Revoked(grant) => {
                    self.open.remove(grant);
                    self.receiver.revoked(*grant);
                }
                Packet::Broken(id) => self.pull_failed(*id, true),
                other => unreachable!("D gets no {other:?}"),
            },
            DecodeInput::Discovered(restarts, processes) => {
                let answer = Ok(directory(restarts, &processes));
                self.receiver.discovered("bootstrap", answer, self.now);
            }
            DecodeInput::NotDiscovered => {
                self.receiver.discovered("bootstrap", Err("silent".into()), self.now);
            }
            DecodeInput::PullFailed(id, sent) => self.pull_failed(id, sent),
            DecodeInput::Land(write, copy) => {
                out.taken = true;
                for piece in pieces(copy, options.ranks) {
                    out.taken &= self.land(&write, piece, options, out);
                }
            }
            DecodeInput::Sleep => {
                let asked = self.lifecycle.unregister(DRAIN, self.now);
                asked.expect("it is registered");
            }
            DecodeInput::Leave => self.leave(out),
            DecodeInput::Wake => {
                self.lifecycle.restore().expect("it is unregistered");
                self.registration += 1;
                self.register(options);
            }
            DecodeInput::Tick(now) => {
                self.now = self.now.max(now);
                self.lifecycle.give_up(self.now);
                self.receiver.tick(self.now);
            }
        }
        self.drain(options, out);
    }

    fn pull_failed(&mut self, id: PullId, sent: bool) {
        self.receiver.pull_failed(id, sent, "broken", self.now);
    }

    fn load(&mut self, loads: &[u8], restarts: u8, options: &Options) {
        for load in loads {
            let taken = |slot: &u8| {
                let first = slot * options.blocks;
                self.loads
                    .iter()
                    .any(|it| matches!(it, Load::Running { first: f, .. } if *f == first))
            };
            let slot = (0..options.loads).find(|slot| !taken(slot)).expect("one slot per load");
            let first = slot * options.blocks;
            let spec = LoadSpec {
                request: decode_request(*load),
                transfer: transfer(*load),
                engine: engine(restarts),
                bootstrap: "bootstrap".into(),
                blocks: vec![BlockList::run(first.into(), options.blocks.into())],
                end_token: None,
                grant: grant(*load),
                kind: LoadKind::Load,
            };
            self.receiver.load(spec, self.now).expect("a load that can be");
            self.loads[usize::from(*load)] = Load::Running { first, engine: restarts };
        }
        self.receiver.flush(self.now);
    }

    /// Restarts of the P engine that a request's load names.
    pub fn engine_of(&self, request: &str) -> u8 {
        match self.loads[usize::from(number(request))] {
            Load::New => 0,
            Load::Running { engine, .. } | Load::Ended { engine } => engine,
        }
    }

    fn reply(&mut self, rank: u8, id: PullId, reply: Reply, out: &mut Output) {
        let current = self.lifecycle.names().map(|names| names.layout_id);
        if current != Some(reply.layout_id) && !reply.layout_id.is_none() {
            out.saw(Seen::LateEcho);
        } else if self.receiver.is_open(id) && !reply.layout_id.is_none() {
            self.heard |= 1 << rank;
        }
        self.receiver.reply(id, reply, self.now);
    }

    /// Whether a drain is over.
    pub fn may_leave(&self, options: &Options) -> bool {
        let impatient = options.broken == Some(Broken::ImpatientDrain);
        matches!(self.lifecycle.state(), State::Draining { .. })
            && (impatient || self.receiver.in_use().next().is_none())
    }

    fn leave(&mut self, out: &mut Output) {
        let used = self.loads.iter().any(|it| matches!(it, Load::Running { .. }));
        self.receiver.unregister(self.now);
        let released = self.lifecycle.drained(self.now);
        out.require(Rule::S01, released.is_some() && !used && self.open.is_empty());
        self.lifecycle.released();
    }

    /// The next deadline of its machines.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let machines = [self.receiver.next_deadline(), self.lifecycle.next_deadline()];
        machines.into_iter().flatten().min()
    }

    /// Takes one piece of a write, or not, as its data plane checks it `[G01]`.
    fn land(&mut self, write: &Write, piece: Piece, options: &Options, out: &mut Output) -> bool {
        let (registration, block, rank) = piece.target;
        let there = self.generation() == Some(generation(registration))
            && self.generation() == write.generation;
        let open = |grant: &Grant| self.open.get(grant).is_some_and(|rows| rows.contains(&block));
        let checked = options.broken != Some(Broken::UncheckedGrants);
        if !there || (checked && !write.grant.as_ref().is_some_and(open)) {
            return false;
        }
        match self.loads[usize::from(write.transfer)] {
            Load::Running { first, .. } => {
                let rows = first..first + options.blocks;
                out.require(Rule::G01, rows.contains(&block) && rank == write.rank);
            }
            Load::New | Load::Ended { .. } => out.require(Rule::G02, false),
        }
        self.memory.insert((rank, block), piece.source.1);
        true
    }
}

fn directory(restarts: u8, processes: &[Incarnation]) -> Vec<(EngineId, EngineRanks)> {
    let rank = |rank: u8, incarnation: Incarnation| Rank {
        address: address(rank),
        ours: Some(OurRank { revision: 1, features: 0, incarnation, sizes: (0, 0) }),
    };
    let ranks = (0u8..).zip(processes);
    let ranks = ranks.map(|(at, run)| (u32::from(at), BTreeMap::from([(0, rank(at, *run))])));
    vec![(engine(restarts), ranks.collect())]
}
