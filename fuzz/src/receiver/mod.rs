//! A receiver alone, between an engine, a data plane, bootstrap servers and P ranks of
//! both kinds that answer as they like.

mod book;
mod compare;
mod replies;
mod watched;

pub use watched::WatchedReceiver;

use crate::campaign::{Campaign, Check, Trace};
use crate::choices::Choices;
use crate::names::Names;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::directory::{EngineRanks, OurRank, Rank};
use kvbaton_core::ids::{EngineId, Generation, Grant, Incarnation, LayoutId, WeightVersion};
use kvbaton_core::receiver::{LoadKind, LoadSpec, ReceiverAction, ReceiverConfig, Registered};
use kvbaton_core::sender::PullId;
use kvbaton_core::time::Timestamp;
use kvbaton_core::topology::Topology;
use kvbaton_core::wire::LayoutColumns;
use std::sync::Arc;
use std::time::Duration;

/// The campaign.
pub const CAMPAIGN: Campaign = Campaign {
    name: "receiver",
    about: "D's loads: engine calls, discovery, answers, broken connections and time",
    bytes: 16..1_200,
    step_bytes: 4,
    run,
};

const REQUESTS: usize = 5;
const ENGINES: usize = 2;

/// One P: up to two ranks, each one of ours or stock.
#[derive(Debug, Clone)]
struct Prefill {
    id: EngineId,
    bootstrap: Arc<str>,
    ranks: EngineRanks,
}

struct World {
    names: Names,
    receiver: WatchedReceiver,
    engines: Vec<Prefill>,
    columns: Arc<LayoutColumns>,
    now: Timestamp,
    registrations: u64,
    runs: u64,
    next_grant: u64,
    /// Pulls that are closed: answers to them are late.
    closed: Vec<PullId>,
    asked: Vec<Arc<str>>,
    revoking: Vec<Grant>,
}

fn run(choices: &mut Choices<'_>, trace: &mut Trace) -> Check {
    let off = u16::from_le_bytes([choices.byte(), choices.byte()]) & 0xeffe;
    let config = ReceiverConfig {
        load_timeout: Duration::from_secs(30),
        max_loads: choices.one_of(&[3, 64]),
        max_peers: choices.one_of(&[1, 64, 64]),
        revoke_settles: !choices.below(4).is_multiple_of(4),
        features: 0,
        stock_quarantine: Duration::from_secs(5),
    };
    trace.note(|| format!("{config:?}"));
    let mut world = World {
        names: Names::of_thread(),
        receiver: WatchedReceiver::new(config, Topology::SINGLE),
        engines: Vec::new(),
        columns: Arc::new(LayoutColumns::default()),
        now: Timestamp(0),
        registrations: 0,
        runs: 0,
        next_grant: 0,
        closed: Vec::new(),
        asked: Vec::new(),
        revoking: Vec::new(),
    };
    for number in 0..ENGINES {
        let ranks = world.new_ranks(number, choices.byte());
        let id = EngineId::from(format!("engine {number}"));
        let bootstrap = format!("http://bootstrap{number}").into();
        world.engines.push(Prefill { id, bootstrap, ranks });
    }
    world.register(trace);
    while let Some(step) = choices.step() {
        if off >> (step[0] % 16) & 1 == 0 || step[3] % 8 == 0 {
            world.apply(step, trace)?;
        }
    }
    world.heal(trace)
}

impl World {
    /// Fresh processes for an engine's ranks; the low bits of `kinds` say how many and
    /// which are stock.
    fn new_ranks(&mut self, number: usize, kinds: u8) -> EngineRanks {
        let count = 1 + u32::from(kinds % 2);
        let rank = |at: u32| {
            let stock = kinds >> (1 + at) & 3 == 3;
            let incarnation = Incarnation(100 + self.runs * 4 + u64::from(at));
            Rank {
                address: self.names.addresses[number * 2 + at as usize].clone(),
                ours: (!stock).then_some(OurRank {
                    revision: 1,
                    features: 0,
                    incarnation,
                    sizes: (0, 0),
                }),
            }
        };
        let ranks = (0..count).map(|at| (at, [(0, rank(at))].into())).collect();
        self.runs += 1;
        ranks
    }

    fn register(&mut self, trace: &mut Trace) {
        self.registrations += 1;
        let number = self.registrations;
        trace.step(|| format!("D registers generation {number}"));
        self.receiver.register(Registered {
            layout_id: LayoutId::from_random(number * 2),
            generation: Generation(number),
            columns: self.columns.clone(),
            session: self.names.readers[0].session.clone(),
        });
    }

    fn apply(&mut self, [what, which, whose, how]: [u8; 4], trace: &mut Trace) -> Check {
        let (pick, number) = (usize::from(whose), usize::from(which));
        let now = self.now;
        match what % 16 {
            0..=2 => self.load(number, pick, how, trace)?,
            3 => {
                trace.step(|| "flush".into());
                self.receiver.flush(now)?;
            }
            4 => {
                let request = self.names.requests[number % REQUESTS].clone();
                trace.step(|| format!("engine: drops {request}"));
                self.receiver.drop_load(&request, now)?;
            }
            5 | 6 => self.discovered(pick, how, trace)?,
            7..=9 => self.reply(number, pick, how, trace)?,
            10 => self.break_pull(pick, how, trace)?,
            11 | 12 => self.revoked(pick, trace)?,
            13 => {
                let by = Duration::from_millis(u64::from(how) * 25);
                self.advance(now + by, which % 4 != 0, trace)?;
            }
            14 if how % 8 == 0 => {
                self.advance(now + Duration::from_secs(70), which % 4 != 0, trace)?;
            }
            14 if how % 8 == 1 => self.grant_refused(pick, trace)?,
            14 if how % 8 == 2 => {
                let number = pick % ENGINES;
                self.engines[number].ranks = self.new_ranks(number, which);
                trace.note(|| format!("{} restarts", self.engines[number].id));
            }
            15 if how % 8 == 0 => {
                trace.step(|| "D unregisters".into());
                self.receiver.unregister(now)?;
            }
            15 if how % 8 < 3 => self.register(trace),
            15 if how % 8 == 3 => {
                trace.step(|| "engine: aborts transfers".into());
                self.receiver.abort_transfers(now)?;
            }
            15 if how % 8 == 4 => {
                let version = WeightVersion(u64::from(which) % 3);
                trace.step(|| format!("engine: runs weights {version}"));
                self.receiver.set_weights(version, now)?;
            }
            _ => {}
        }
        self.take_actions();
        Ok(())
    }

    fn load(&mut self, number: usize, pick: usize, how: u8, trace: &mut Trace) -> Check {
        let request = self.names.requests[number % REQUESTS].clone();
        let engine = &self.engines[pick % ENGINES];
        let kind = if how % 8 == 7 { LoadKind::Release } else { LoadKind::Load };
        let len = if how % 16 == 5 { 0 } else { 1 + u32::from(how / 64) };
        self.next_grant += 1;
        let spec = LoadSpec {
            request,
            transfer: self.names.transfers[(number + pick / 64) % REQUESTS].clone(),
            engine: engine.id.clone(),
            bootstrap: engine.bootstrap.clone(),
            blocks: vec![BlockList::run(self.free_blocks(how / 8), len)],
            end_token: None,
            grant: Grant(self.next_grant),
            kind,
        };
        let flush = !(pick / 8).is_multiple_of(4);
        trace.step(|| {
            format!(
                "engine: {:?} {} as {} from {}, blocks {:?}{}",
                spec.kind,
                spec.request,
                spec.transfer,
                spec.engine,
                spec.blocks,
                if flush { ", flush" } else { "" }
            )
        });
        self.receiver.load(spec, self.now)?;
        if flush { self.receiver.flush(self.now) } else { Ok(()) }
    }

    /// The first of four blocks that no load uses: an engine gives a block to one at a time.
    fn free_blocks(&self, from: u8) -> u32 {
        let places = (0..8).map(|at| (u32::from(from) + at) % 8 * 4);
        let mut free = places.filter(|start| !self.receiver.uses(&BlockList::run(*start, 4)));
        free.next().unwrap_or(0)
    }

    fn discovered(&mut self, pick: usize, how: u8, trace: &mut Trace) -> Check {
        if self.asked.is_empty() {
            return Ok(());
        }
        let bootstrap = self.asked.swap_remove(pick % self.asked.len());
        let number = usize::from(bootstrap.ends_with('1'));
        let engine = &self.engines[number];
        let answer = match how % 8 {
            0 => Err("unreachable".to_owned()),
            1 => Ok(Vec::new()),
            2 => {
                let mut ranks = engine.ranks.clone();
                ranks.remove(&0);
                Ok(vec![(engine.id.clone(), ranks)])
            }
            _ => Ok(vec![(engine.id.clone(), engine.ranks.clone())]),
        };
        trace.step(|| format!("{bootstrap} answers {}", words(&answer)));
        self.receiver.discovered(&bootstrap, answer, self.now)
    }

    fn break_pull(&mut self, pick: usize, how: u8, trace: &mut Trace) -> Check {
        let Some(pull) = self.pick_pull(pick) else { return Ok(()) };
        let sent = how.is_multiple_of(2);
        trace.step(|| format!("pull {}: its connection breaks, sent: {sent}", pull.0));
        self.receiver.pull_failed(pull, sent, self.now)
    }

    fn revoked(&mut self, pick: usize, trace: &mut Trace) -> Check {
        if self.revoking.is_empty() {
            return Ok(());
        }
        let grant = self.revoking.swap_remove(pick % self.revoking.len());
        trace.step(|| format!("data plane: grant {} is revoked", grant.0));
        self.receiver.revoked(grant, self.now)
    }

    fn grant_refused(&mut self, pick: usize, trace: &mut Trace) -> Check {
        let grants: Vec<Grant> = self.receiver.grants().map(|(grant, _)| grant).collect();
        if grants.is_empty() {
            return Ok(());
        }
        let grant = grants[pick % grants.len()];
        trace.step(|| format!("data plane: grant {} cannot be opened", grant.0));
        self.receiver.grant_refused(grant, self.now)
    }

    /// An open pull, or now and then one that is over.
    fn pick_pull(&self, pick: usize) -> Option<PullId> {
        let open = self.receiver.open_pulls().len();
        if pick % 16 == 15 && !self.closed.is_empty() {
            return Some(self.closed[pick % self.closed.len()]);
        }
        if open == 0 { None } else { self.receiver.open_pulls().nth(pick % open) }
    }

    fn advance(&mut self, until: Timestamp, punctual: bool, trace: &mut Trace) -> Check {
        if punctual {
            let mut rounds = 0;
            while let Some(due) = self.receiver.machine().next_deadline().filter(|it| *it <= until)
            {
                crate::ensure!(rounds < 1_000, "P08", "ticks at {} without an end", self.now);
                rounds += 1;
                self.now = self.now.max(due);
                trace.step(|| format!("time: {}, tick", self.now));
                self.receiver.tick(self.now)?;
                self.take_actions();
            }
            self.now = until;
        } else {
            self.now = until;
            trace.step(|| format!("time: {until}, tick"));
            self.receiver.tick(until)?;
        }
        Ok(())
    }

    fn take_actions(&mut self) {
        for action in self.receiver.actions.drain(..) {
            match action {
                ReceiverAction::Discover { bootstrap } => self.asked.push(bootstrap),
                ReceiverAction::Revoke(grant) => self.revoking.push(grant),
                ReceiverAction::ClosePull(pull) if self.closed.len() < 4 => self.closed.push(pull),
                _ => {}
            }
        }
    }

    /// Time passes and the data plane revokes: nothing may be left `[P08, F25]`.
    fn heal(&mut self, trace: &mut Trace) -> Check {
        for _ in 0..3 {
            while !self.revoking.is_empty() {
                self.revoked(0, trace)?;
                self.take_actions();
            }
            self.advance(self.now + Duration::from_secs(100), true, trace)?;
        }
        self.receiver.is_at_rest()
    }
}

fn words(answer: &Result<Vec<(EngineId, EngineRanks)>, String>) -> String {
    let Ok(engines) = answer else { return "nothing: it cannot be reached".into() };
    let mut text = String::from("with");
    for (engine, ranks) in engines {
        text.push_str(&format!(" {engine}:"));
        for rank in ranks.values().flat_map(|stages| stages.values()) {
            let kind = rank.ours.map_or("stock".into(), |it| format!("run {}", it.incarnation.0));
            text.push_str(&format!(" rank at {} ({kind})", rank.address));
        }
    }
    if engines.is_empty() { "that it knows no engine".into() } else { text }
}
