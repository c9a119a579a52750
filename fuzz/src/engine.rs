//! A whole engine's lifecycle: operations, ends of orders, failures and time in any order.

use crate::campaign::{Campaign, Check, Trace};
use crate::choices::Choices;
use crate::ensure;
use kvbaton_core::ids::WeightVersion;
use kvbaton_core::lifecycle::engine::{
    Bounds, Compute, EngineAction, EngineLifecycle, EngineOrder, Operation, OperationId, OrderId,
    Part, Parts, PauseMode, RankOrder, SleepLevel, WeightsAt, Which,
};
use kvbaton_core::time::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// The campaign.
pub const CAMPAIGN: Campaign = Campaign {
    name: "engine",
    about: "an engine's lifecycle: operations, failures and timeouts in any order",
    bytes: 8..600,
    step_bytes: 4,
    run,
};

const RANKS: usize = 2;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Order {
    Engine(EngineOrder),
    Rank(usize, RankOrder),
}

#[derive(Debug, Clone, Copy)]
struct Rank {
    registered: bool,
    prepared: bool,
    weights: WeightVersion,
}

struct World {
    machine: EngineLifecycle,
    now: Timestamp,
    /// Orders that have not ended; the first may have taken effect already.
    out: BTreeMap<OrderId, Order>,
    explain: bool,
    asked: u64,
    answers: BTreeMap<OperationId, u32>,
    computes: bool,
    kv: bool,
    weights: WeightsAt,
    version: WeightVersion,
    ranks: [Rank; RANKS],
    /// Nothing has a block.
    clear: bool,
}

fn run(choices: &mut Choices<'_>, trace: &mut Trace) -> Check {
    let version = WeightVersion(1);
    let rank = Rank { registered: true, prepared: false, weights: version };
    let mut world = World {
        machine: EngineLifecycle::new(RANKS, Bounds::default(), version),
        now: Timestamp(0),
        out: BTreeMap::new(),
        explain: false,
        asked: 0,
        answers: BTreeMap::new(),
        computes: true,
        kv: true,
        weights: WeightsAt::Mapped,
        version,
        ranks: [rank; RANKS],
        clear: false,
    };
    while let Some([what, which, more, _]) = choices.step() {
        world.step(what, which, more, trace)?;
        world.drain(trace)?;
    }
    world.settle(trace)
}

fn operation(which: u8, more: u8) -> Operation {
    let mode = PauseMode::ALL[usize::from(more) % 3];
    let level = SleepLevel::ALL[usize::from(more / 3) % 3];
    match which % 12 {
        0 | 1 => Operation::Pause { mode, clear: which >= 128 },
        2 | 3 => Operation::Sleep { level, mode },
        4 => Operation::Wake(Parts::ALL),
        5 => Operation::Wake(if more >= 128 { Parts::WEIGHTS } else { Parts::KV }),
        6 => Operation::ReleaseKv(mode),
        7 => Operation::UpdateWeights { version: WeightVersion(u64::from(more / 9) % 3 + 1), mode },
        8 => Operation::AbortTransfers,
        9 => Operation::AbortRequests(Which::All),
        10 => Operation::ResetPrefixCache { running: more >= 128 },
        _ => Operation::Resume,
    }
}

impl World {
    fn step(&mut self, what: u8, which: u8, more: u8, trace: &mut Trace) -> Check {
        match what % 8 {
            0 | 1 => {
                let (id, operation) = (OperationId(self.asked), operation(which, more));
                trace.step(|| format!("asks {id:?}: {operation:?}"));
                self.asked += 1;
                self.answers.insert(id, 0);
                self.machine.ask(id, operation, self.now);
                Ok(())
            }
            2..=5 => self.end_one(usize::from(which), more >= 235, trace),
            6 if self.explain => {
                trace.step(|| "explains".into());
                self.explain = false;
                self.machine.explained(vec!["request r".into()], self.now);
                Ok(())
            }
            _ => {
                self.pass(Duration::from_millis(u64::from(which) * u64::from(more)), trace);
                Ok(())
            }
        }
    }

    /// Time passes; memory's own orders always end within their bounds.
    fn pass(&mut self, time: Duration, trace: &mut Trace) {
        let memory = self.out.values().any(changes_memory);
        let latest = self.machine.next_deadline().filter(|_| memory);
        let then = self.now + time;
        self.now = latest.map_or(then, |due| then.min(due - Duration::from_nanos(1))).max(self.now);
        trace.step(|| format!("it is {}", self.now));
        self.machine.tick(self.now);
    }

    /// One of the orders ends.
    fn end_one(&mut self, which: usize, fails: bool, trace: &mut Trace) -> Check {
        let count = self.out.len();
        let Some(id) = self.out.keys().nth(which % count.max(1)).copied() else { return Ok(()) };
        let Some(order) = self.out.remove(&id) else { return Ok(()) };
        trace.step(|| format!("{id:?} {order:?} ends{}", if fails { " badly" } else { "" }));
        let result = if fails { Err("no".to_owned()) } else { self.carry_out(&order)? };
        self.machine.done(id, result, self.now);
        Ok(())
    }

    fn drain(&mut self, trace: &mut Trace) -> Check {
        while let Some(action) = self.machine.next_action() {
            match action {
                EngineAction::Engine(id, order) => self.begin(id, Order::Engine(order), trace)?,
                EngineAction::Rank(id, rank, order) => {
                    self.begin(id, Order::Rank(rank, order), trace)?;
                }
                EngineAction::Forget(id) => {
                    let memory = self.out.remove(&id).is_some_and(|it| changes_memory(&it));
                    ensure!(!memory, "S05", "{id:?} changes memory and nobody waits for its end");
                }
                EngineAction::Explain => self.explain = true,
                EngineAction::Answer(id, answer) => {
                    trace.note(|| format!("{id:?}: {answer:?}"));
                    let count = self.answers.entry(id).or_default();
                    *count += 1;
                    ensure!(*count == 1, "R05", "{id:?} was answered {count} times");
                }
                EngineAction::Changed => {}
            }
        }
        Ok(())
    }

    /// What must hold when an order is given.
    fn begin(&mut self, id: OrderId, order: Order, trace: &mut Trace) -> Check {
        trace.note(|| format!("{id:?}: {order:?}"));
        match &order {
            Order::Engine(EngineOrder::Run) => {
                let there = self.kv && self.weights == WeightsAt::Mapped;
                ensure!(there, "S05", "it runs without memory");
                let all = self.ranks.iter().all(|it| it.registered && !it.prepared);
                ensure!(all, "S06", "it runs while a rank is not registered");
                let same = self.ranks.iter().all(|it| it.weights == self.version);
                ensure!(same, "R07", "it runs while a rank holds KV for other weights");
                let waits = self.out.values().any(changes_memory);
                ensure!(!waits, "S05", "it runs while memory changes");
            }
            Order::Engine(EngineOrder::Unmap { part: Part::Kv, .. }) => {
                let none = self.ranks.iter().all(|it| !it.registered);
                ensure!(none, "S05", "it unmaps what a rank has registered");
                ensure!(!self.computes && self.clear, "R02", "it unmaps blocks in use");
            }
            Order::Engine(EngineOrder::LoadWeights(_)) => {
                ensure!(!self.computes, "R07", "weights change under a step");
                ensure!(self.clear || !self.kv, "R07", "KV of the old weights stays");
            }
            Order::Rank(rank, RankOrder::Commit) => {
                let all = self.ranks.iter().all(|it| it.prepared || !it.registered);
                ensure!(all, "S06", "rank {rank} is released before all are prepared");
            }
            Order::Rank(_, RankOrder::Restore) => {
                ensure!(self.kv, "S05", "it registers what is not mapped");
            }
            // It also ends a preparation that has not ended.
            Order::Rank(rank, RankOrder::Cancel) => {
                let theirs = Order::Rank(*rank, RankOrder::Prepare);
                self.out.retain(|_, order| *order != theirs);
            }
            _ => {}
        }
        self.out.insert(id, order);
        Ok(())
    }

    /// What an order does.
    fn carry_out(&mut self, order: &Order) -> Check<Result<(), String>> {
        match *order {
            Order::Rank(rank, order) => self.rank(rank, order),
            Order::Engine(EngineOrder::Run) => (self.computes, self.clear) = (true, false),
            Order::Engine(EngineOrder::Finish) => {}
            Order::Engine(EngineOrder::Freeze) => self.computes = false,
            Order::Engine(EngineOrder::Preempt) => self.clear = !self.computes,
            Order::Engine(EngineOrder::AwaitBlocks | EngineOrder::ResetCache) => {
                if !self.clear {
                    return Ok(Err("blocks are in use".into()));
                }
            }
            Order::Engine(EngineOrder::Abort(_)) => {}
            Order::Engine(EngineOrder::Unmap { part: Part::Kv, .. }) => self.kv = false,
            Order::Engine(EngineOrder::Unmap { part: Part::Weights, keep }) => {
                self.weights = if keep { WeightsAt::Offloaded } else { WeightsAt::Discarded };
            }
            Order::Engine(EngineOrder::Map(Part::Kv)) => self.kv = true,
            Order::Engine(EngineOrder::Map(Part::Weights)) => {
                self.weights = match self.weights {
                    WeightsAt::Offloaded | WeightsAt::Mapped => WeightsAt::Mapped,
                    _ => WeightsAt::Blank,
                };
            }
            Order::Engine(EngineOrder::LoadWeights(version)) => {
                (self.weights, self.version) = (WeightsAt::Mapped, version);
            }
        }
        Ok(Ok(()))
    }

    fn rank(&mut self, rank: usize, order: RankOrder) {
        let rank = &mut self.ranks[rank];
        match order {
            RankOrder::AwaitHolds | RankOrder::AbortTransfers => {}
            RankOrder::Prepare => rank.prepared = rank.registered,
            RankOrder::Commit => (rank.registered, rank.prepared) = (false, false),
            RankOrder::Cancel => rank.prepared = false,
            RankOrder::Restore => (rank.registered, rank.prepared) = (true, false),
            RankOrder::SetWeights(version) => rank.weights = version,
        }
    }

    /// Everything that is out ends well; then nothing runs and every question has its answer.
    fn settle(&mut self, trace: &mut Trace) -> Check {
        for _ in 0..200 {
            self.drain(trace)?;
            if self.explain {
                self.step(6, 0, 0, trace)?;
            } else if !self.out.is_empty() {
                self.end_one(0, false, trace)?;
            } else if let Some(due) = self.machine.next_deadline() {
                self.pass(due.since(self.now), trace);
            } else {
                break;
            }
        }
        let doing = self.machine.doing();
        ensure!(doing.is_none(), "R05", "it never ends: {doing:?}");
        let open = self.answers.iter().find(|(_, count)| **count != 1);
        ensure!(open.is_none(), "R05", "not answered once: {open:?}");
        let says = self.machine.standing();
        if says.kv {
            let all = self.kv && self.ranks.iter().all(|it| it.registered && !it.prepared);
            ensure!(all, "S06", "it says that the KV cache is usable");
        }
        let runs = says.compute == Compute::Running;
        ensure!(!runs || self.computes, "R01", "it says that it runs");
        let there = says.weights != WeightsAt::Mapped || self.weights == WeightsAt::Mapped;
        ensure!(there, "S05", "it says that the weights are there");
        Ok(())
    }
}

/// Whether an order takes memory away or brings it back: its end must be waited for.
const fn changes_memory(order: &Order) -> bool {
    matches!(
        order,
        Order::Engine(
            EngineOrder::Unmap { .. } | EngineOrder::Map(_) | EngineOrder::LoadWeights(_)
        ) | Order::Rank(_, RankOrder::Commit | RankOrder::Restore | RankOrder::SetWeights(_))
    )
}
