//! Both sides over a network that loses, repeats and reorders: a P and a D of one or two
//! ranks each, restarts, sleeps, evictions, drops, aborts, releases, expiry.

mod decode;
mod layouts;
mod network;
mod prefill;
mod reset;

use crate::campaign::{Campaign, Check, Trace};
use crate::choices::Choices;
use crate::ensure;
use crate::names::Names;
use decode::D;
use kvbaton_core::directory::{EngineRanks, OurRank, Rank};
use kvbaton_core::ids::EngineId;
use kvbaton_core::receiver::{LoadKind, ReceiverConfig};
use kvbaton_core::sender::SenderConfig;
use kvbaton_core::time::Timestamp;
use network::{InFlight, Packet};
use prefill::P;
use std::sync::Arc;
use std::time::Duration;

/// The campaign.
pub const CAMPAIGN: Campaign = Campaign {
    name: "pair",
    about: "P and D over a lossy network, with restarts, sleeps, evictions and expiry",
    bytes: 16..1_600,
    step_bytes: 4,
    run,
};

/// What one byte of KV holds: which weights, which transfer, which block of it, which head.
type Byte = u8;
/// Blocks that went back to P's engine hold this.
const REUSED: Byte = 0xff;
/// Blocks of each transfer.
const BLOCKS: usize = 2;
const TRANSFERS: usize = 3;

/// Weights in play: 1, 2, 3.
const WEIGHTS: u64 = 3;

/// The only byte that belongs there; never 0.
fn content(weights: u64, transfer: usize, place: usize, head: usize) -> Byte {
    (weights as usize * 64 - 64 + transfer * 16 + place * 4 + head + 1) as Byte
}

struct World<'t> {
    trace: &'t mut Trace,
    names: Names,
    now: Timestamp,
    /// Ranks of P and of D.
    ps: usize,
    ds: usize,
    p: Vec<P>,
    d: Vec<D>,
    /// P's engine id changes with each restart.
    engine: u64,
    engine_id: EngineId,
    bootstrap: Arc<str>,
    /// P's ranks are stock ones: no grants, no drops, no run of their own.
    stock: bool,
    encodes: bool,
    most_layouts: usize,
    net: Vec<Packet>,
    writes: Vec<InFlight>,
    sender_config: SenderConfig,
    receiver_config: ReceiverConfig,
}

fn run(choices: &mut Choices<'_>, trace: &mut Trace) -> Check {
    let off = u32::from_le_bytes([choices.byte(), choices.byte(), choices.byte(), 0]) << 8;
    let shape = choices.byte();
    let (ps, ds) = [(1, 1), (1, 1), (2, 1), (1, 2), (2, 2)][usize::from(shape % 5)];
    let stock = shape / 5 % 4 == 3;
    let sender_config = SenderConfig {
        senders: 1 + choices.below(3),
        max_transfers: 4,
        max_remembered: choices.one_of(&[2, 4, 16]),
        ..SenderConfig::default()
    };
    let revoke_settles = stock || choices.below(4) != 0;
    let max_peers = choices.one_of(&[1, 8]);
    let receiver_config =
        ReceiverConfig { revoke_settles, max_loads: 6, max_peers, ..ReceiverConfig::default() };
    let mut world = World {
        trace,
        names: Names::of_thread(),
        now: Timestamp(0),
        ps,
        ds,
        p: Vec::new(),
        d: Vec::new(),
        engine: 0,
        engine_id: EngineId::from("engine 0"),
        bootstrap: "bootstrap".into(),
        stock,
        encodes: shape / 20 % 8 == 7,
        most_layouts: 1 + choices.below(3),
        net: Vec::new(),
        writes: Vec::new(),
        sender_config,
        receiver_config,
    };
    world.trace.note(|| format!("{ps} ranks of P, {ds} of D, stock P: {stock}"));
    for at in 0..ps {
        let p = world.new_p(at)?;
        world.p.push(p);
    }
    for at in 0..ds {
        let d = world.new_d(at, 0);
        world.d.push(d);
    }
    while let Some(step) = choices.step() {
        // Swarm: each run leaves some faults out.
        if off >> (step[0] % 32) & 1 == 0 || step[3] % 8 == 0 {
            world.apply(step)?;
        }
    }
    world.heal()
}

impl World<'_> {
    fn apply(&mut self, [what, which, whose, how]: [u8; 4]) -> Check {
        let number = usize::from(which) % TRANSFERS;
        let (pick, whose) = (usize::from(which), usize::from(whose));
        let (p, d) = (whose % self.ps, whose % self.ds);
        let id = self.names.transfers[number].clone();
        let owner = self.names.owners[number + TRANSFERS * (whose / 128)].clone();
        let request = self.names.requests[number].clone();
        let packet = (!self.net.is_empty()).then(|| pick % self.net.len());
        let write = (!self.writes.is_empty()).then(|| pick % self.writes.len());
        match (what % 32, packet, write) {
            (0, ..) => self.on_every_p(how, whose, |it, p| it.start(p, &owner, &id)),
            (1 | 2, ..) => self.on_every_p(how, whose, |it, p| it.hold(p, &owner, number)),
            (3..=5, ..) => {
                for d in 0..self.ds {
                    self.load(d, &request, number, LoadKind::Load, true)?;
                }
                Ok(())
            }
            (6 | 7 | 17 | 18 | 19, Some(at), _) => self.deliver(at),
            (20..=23, _, Some(at)) => self.step_write(at),
            (8, ..) => self.on_every_p(how, whose, |it, p| it.abort(p, &id)),
            (9, ..) => self.release(p, &id),
            (10, ..) if how % 4 == 0 => self.release_all(p),
            (10, ..) => self.load(d, &request, number, LoadKind::Load, false),
            (11, ..) => self.load(d, &request, number, LoadKind::Release, true),
            (12, ..) => self.flush(d),
            (13, ..) => self.drop_load(d, &request),
            (14, Some(at), _) => self.duplicate(at),
            (15, Some(at), _) => self.lose(at, how % 2 == 0),
            (16, _, Some(at)) => self.fail_write(at, how % 2 == 0),
            (24, ..) => self.advance(Duration::from_secs(u64::from(how))),
            (25, ..) if how % 4 == 0 => self.advance(Duration::from_secs(1_000)),
            (26, ..) if how % 4 == 0 => self.restart_p(),
            (27, ..) if how % 4 == 0 => {
                self.restart_d(d);
                Ok(())
            }
            (28, ..) if how % 4 == 0 => self.register_again(d),
            (26, ..) if how % 4 == 1 => self.abort_transfers_of_p(p),
            (26, ..) if how % 4 == 2 => self.abort_transfers_of_d(d),
            (29, ..) if how % 2 == 0 => self.forget_layouts(p),
            (29, ..) if how % 4 == 1 => self.on_every_p(how / 4, whose, Self::update_p),
            (29, ..) => self.update_d(d, how >= 192),
            (30, ..) => self.sleep_or_wake(p),
            (31, ..) if how % 4 == 0 => self.settle(),
            _ => Ok(()),
        }
    }

    /// An engine's ranks do the same, but for one time in eight.
    fn on_every_p(
        &mut self,
        how: u8,
        whose: usize,
        mut act: impl FnMut(&mut Self, usize) -> Check,
    ) -> Check {
        if how % 8 == 1 {
            return act(self, whose % self.ps);
        }
        (0..self.ps).try_for_each(|p| act(self, p))
    }

    fn send(&mut self, packet: Packet) -> Check {
        let packet = self.through_wire(packet)?;
        self.net.push(packet);
        Ok(())
    }

    fn rank_at(&self, address: &str) -> usize {
        address.parse().unwrap_or(0)
    }

    /// What the bootstrap server says now.
    fn directory(&self) -> Vec<(EngineId, EngineRanks)> {
        let rank = |at: usize| Rank {
            address: self.names.addresses[at].clone(),
            ours: (!self.stock).then_some(OurRank {
                revision: 1,
                features: 0,
                incarnation: self.p[at].run,
                sizes: (0, 0),
            }),
        };
        let ranks = (0..self.ps).map(|at| (at as u32, [(0, rank(at))].into())).collect();
        vec![(self.engine_id.clone(), ranks)]
    }

    /// P's process ends and comes back; what is on its way may still arrive `[P12]`.
    fn restart_p(&mut self) -> Check {
        self.engine += 1;
        self.engine_id = EngineId::from(format!("engine {}", self.engine));
        self.trace.note(|| "P restarts".into());
        for at in 0..self.ps {
            self.p[at] = self.new_p(at)?;
        }
        self.writes.iter_mut().for_each(|write| write.orphaned = true);
        Ok(())
    }

    /// Lets time pass. Writes end within their time, as P's data plane promises.
    fn advance(&mut self, by: Duration) -> Check {
        let until = self.now + by;
        for round in 0.. {
            ensure!(round < 1_000, "P06", "ticks at {} without an end", self.now);
            let senders = self.p.iter().filter_map(|p| p.sender.machine().next_deadline());
            let receivers = self.d.iter().filter_map(|d| d.receiver.machine().next_deadline());
            let writes = self.writes.iter().map(|write| write.until);
            let next = senders.chain(receivers).chain(writes).min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            let now = self.now;
            while let Some(at) = self.writes.iter().position(|write| write.until <= now) {
                self.fail_write(at, false)?;
            }
            for at in 0..self.ps {
                if self.p[at].sender.machine().next_deadline().is_some_and(|due| due <= now) {
                    self.trace.step(|| format!("time: {now}, P {at} ticks"));
                    self.p[at].sender.tick(now)?;
                    self.drain_p(at)?;
                }
            }
            for at in 0..self.ds {
                if self.d[at].receiver.machine().next_deadline().is_some_and(|due| due <= now) {
                    self.trace.step(|| format!("time: {now}, D {at} ticks"));
                    self.d[at].receiver.tick(now)?;
                    self.drain_d(at)?;
                }
            }
        }
        self.now = until;
        Ok(())
    }

    /// Everything on its way arrives, again and again, until nothing is.
    fn settle(&mut self) -> Check {
        for round in 0.. {
            ensure!(round < 10_000, "P02", "messages go on without an end");
            if !self.net.is_empty() {
                self.deliver(0)?;
            } else if !self.writes.is_empty() {
                self.step_write(0)?;
            } else {
                break;
            }
        }
        Ok(())
    }

    /// The network heals, P's engine ends what it announced, time passes: nothing may be
    /// left of anything `[P06, P08, F13, F25]`.
    fn heal(&mut self) -> Check {
        self.trace.note(|| "everything heals".into());
        self.settle()?;
        for at in 0..self.ps {
            for number in 0..TRANSFERS {
                let id = self.names.transfers[number].clone();
                let sender = &self.p[at].sender;
                if sender.is_owned(&id) && !sender.is_held(&id) {
                    self.abort(at, &id)?;
                }
            }
        }
        for _ in 0..4 {
            self.advance(Duration::from_secs(2_000))?;
            self.settle()?;
        }
        for p in &self.p {
            p.sender.is_at_rest()?;
            ensure!(p.held.is_empty(), "P01", "P's blocks are lost: {:?}", p.held);
        }
        self.d.iter().try_for_each(|d| d.receiver.is_at_rest())
    }
}
