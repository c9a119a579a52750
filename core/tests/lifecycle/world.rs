//! A made-up engine with ranks: it does what it is told, and checks what it is told.

use kvbaton_core::ids::WeightVersion;
use kvbaton_core::lifecycle::engine::{
    Bounds, Compute, EngineAction, EngineLifecycle, EngineOrder, Operation, OperationError,
    OperationId, OrderId, Outcome, Part, RankOrder, WeightsAt,
};
use kvbaton_core::time::Timestamp;
use std::collections::BTreeMap;

pub type Answer = Result<Outcome, OperationError>;

/// What happens to one order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails.
    Fail,
    /// It is never answered.
    Hang,
    /// The engine is resumed before it ends.
    ResumeBefore,
    /// The engine is resumed when it has ended, but nobody has heard of it.
    ResumeAfter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rank {
    pub registered: bool,
    pub prepared: bool,
    pub weights: WeightVersion,
}

/// What is so, as opposed to what the machine believes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub admits: bool,
    pub computes: bool,
    pub kv_mapped: bool,
    pub weights: WeightsAt,
    pub version: WeightVersion,
    pub ranks: Vec<Rank>,
}

#[derive(Debug, Clone)]
pub struct World {
    pub machine: EngineLifecycle,
    pub facts: Facts,
    /// Requests and transfers have given their blocks up since requests last ran.
    blocks_back: bool,
    released: bool,
    cache_empty: bool,
    pub now: Timestamp,
    pub answers: BTreeMap<OperationId, Vec<Answer>>,
    next_id: u64,
    /// Orders given, in words.
    pub log: Vec<String>,
    /// By the order's number.
    pub faults: BTreeMap<usize, Fault>,
    pub resumes: Vec<OperationId>,
}

impl World {
    pub fn new(ranks: usize) -> Self {
        let version = WeightVersion(1);
        let rank = Rank { registered: true, prepared: false, weights: version };
        Self {
            machine: EngineLifecycle::new(ranks, Bounds::default(), version),
            facts: Facts {
                admits: true,
                computes: true,
                kv_mapped: true,
                weights: WeightsAt::Mapped,
                version,
                ranks: vec![rank; ranks],
            },
            blocks_back: false,
            released: false,
            cache_empty: false,
            now: Timestamp::from_millis(1),
            answers: BTreeMap::new(),
            next_id: 0,
            log: Vec::new(),
            faults: BTreeMap::new(),
            resumes: Vec::new(),
        }
    }

    /// Asks, without carrying anything out.
    pub fn ask(&mut self, operation: Operation) -> OperationId {
        let id = OperationId(self.next_id);
        self.next_id += 1;
        self.answers.insert(id, Vec::new());
        self.machine.ask(id, operation, self.now);
        id
    }

    /// Asks, and carries everything out until nothing runs; says how it ended.
    pub fn run(&mut self, operation: Operation) -> Answer {
        let id = self.ask(operation);
        self.settle();
        self.answer(id)
    }

    /// The one answer.
    pub fn answer(&self, id: OperationId) -> Answer {
        let [answer] = &self.answers[&id][..] else {
            panic!("{id:?} has {} answers after {:?}", self.answers[&id].len(), self.log)
        };
        answer.clone()
    }

    /// Carries out what the machine wants until nothing runs.
    pub fn settle(&mut self) {
        for _ in 0..1_000 {
            while let Some(action) = self.machine.next_action() {
                self.carry_out(action);
            }
            match self.machine.next_deadline() {
                None => break,
                Some(due) => {
                    self.now = due.max(self.now);
                    self.machine.tick(self.now);
                }
            }
        }
        assert_eq!(self.machine.doing(), None, "it never ends: {:?}", self.log);
        assert_eq!(self.machine.next_deadline(), None);
        self.assert_known();
    }

    fn carry_out(&mut self, action: EngineAction) {
        match action {
            EngineAction::Engine(id, order) => {
                self.order(id, format!("{order:?}"), |world| world.engine(&order));
            }
            EngineAction::Rank(id, rank, order) => {
                let words = format!("rank {rank} {order:?}");
                self.order(id, words, |world| world.rank(rank, order));
            }
            EngineAction::Explain => {
                self.machine.explained(vec!["request r waits".into()], self.now);
            }
            EngineAction::Answer(id, answer) => {
                self.answers.get_mut(&id).expect("it was asked").push(answer);
            }
            EngineAction::Forget(_) | EngineAction::Changed => {}
        }
    }

    fn order(
        &mut self,
        id: OrderId,
        words: String,
        carry_out: impl FnOnce(&mut Self) -> Result<(), String>,
    ) {
        let number = self.log.len();
        self.log.push(words);
        let result = match self.faults.get(&number) {
            None => carry_out(self),
            Some(Fault::Fail) => Err("it does not work".into()),
            Some(Fault::Hang) => return,
            Some(Fault::ResumeBefore) => {
                let resume = self.ask(Operation::Resume);
                self.resumes.push(resume);
                carry_out(self)
            }
            Some(Fault::ResumeAfter) => {
                let result = carry_out(self);
                let resume = self.ask(Operation::Resume);
                self.resumes.push(resume);
                result
            }
        };
        self.machine.done(id, result, self.now);
    }

    fn engine(&mut self, order: &EngineOrder) -> Result<(), String> {
        let facts = &mut self.facts;
        match order {
            EngineOrder::Run => {
                assert!(facts.kv_mapped, "it runs without KV memory");
                assert!(facts.ranks.iter().all(|it| it.registered && !it.prepared));
                assert_eq!(facts.weights, WeightsAt::Mapped, "it runs without weights");
                let version = facts.version;
                assert!(facts.ranks.iter().all(|it| it.weights == version), "[R07]");
                (facts.admits, facts.computes) = (true, true);
                (self.blocks_back, self.released, self.cache_empty) = (false, false, false);
            }
            EngineOrder::Finish => {
                assert!(facts.kv_mapped && facts.weights == WeightsAt::Mapped);
                (facts.admits, facts.computes) = (false, true);
                (self.blocks_back, self.cache_empty) = (false, false);
            }
            EngineOrder::Freeze => (facts.admits, facts.computes) = (false, false),
            EngineOrder::Abort(_) => {}
            EngineOrder::Preempt => {
                assert!(!facts.computes, "a request that runs would take blocks again");
                assert!(self.released, "release comes before wait and reset [R02]");
                self.blocks_back = true;
            }
            EngineOrder::AwaitBlocks => assert!(self.blocks_back, "nobody was told to [R02]"),
            EngineOrder::ResetCache => {
                if !self.blocks_back {
                    return Err("requests have blocks".into());
                }
                self.cache_empty = true;
            }
            EngineOrder::Unmap { part: Part::Kv, .. } => {
                assert!(facts.ranks.iter().all(|it| !it.registered), "still registered [S05]");
                assert!(!facts.computes && self.cache_empty);
                facts.kv_mapped = false;
            }
            EngineOrder::Unmap { part: Part::Weights, keep } => {
                assert!(!facts.computes);
                facts.weights = if *keep { WeightsAt::Offloaded } else { WeightsAt::Discarded };
            }
            EngineOrder::Map(Part::Kv) => facts.kv_mapped = true,
            EngineOrder::Map(Part::Weights) => {
                facts.weights = match facts.weights {
                    WeightsAt::Offloaded => WeightsAt::Mapped,
                    WeightsAt::Discarded => WeightsAt::Blank,
                    there => there,
                };
            }
            EngineOrder::LoadWeights(version) => {
                assert!(!facts.computes);
                assert!(!facts.kv_mapped || self.cache_empty, "KV of old weights stays [R07]");
                assert!(matches!(facts.weights, WeightsAt::Mapped | WeightsAt::Blank));
                (facts.weights, facts.version) = (WeightsAt::Mapped, *version);
            }
        }
        Ok(())
    }

    fn rank(&mut self, index: usize, order: RankOrder) -> Result<(), String> {
        let all_prepared = self.facts.ranks.iter().all(|it| it.prepared || !it.registered);
        let rank = &mut self.facts.ranks[index];
        match order {
            RankOrder::AwaitHolds => {}
            RankOrder::AbortTransfers => self.released = true,
            RankOrder::Prepare => rank.prepared = rank.registered,
            RankOrder::Commit => {
                assert!(all_prepared, "a rank is released before every rank is prepared [S06]");
                (rank.registered, rank.prepared) = (false, false);
            }
            RankOrder::Cancel => rank.prepared = false,
            RankOrder::Restore => {
                assert!(self.facts.kv_mapped, "registered before it is mapped [S05]");
                (rank.registered, rank.prepared) = (true, false);
            }
            RankOrder::SetWeights(version) => rank.weights = version,
        }
        Ok(())
    }

    /// What the machine says of the engine at rest is so.
    fn assert_known(&self) {
        let (says, facts) = (self.machine.standing(), &self.facts);
        if says.kv {
            assert!(facts.kv_mapped && facts.ranks.iter().all(|it| it.registered && !it.prepared));
        }
        if says.compute == Compute::Running {
            assert!(facts.computes && facts.admits, "{says:?}");
        }
        let known = match says.weights {
            WeightsAt::Mapped => facts.weights == WeightsAt::Mapped,
            WeightsAt::Offloaded => facts.weights != WeightsAt::Discarded,
            // After an order that was never answered they may be there.
            WeightsAt::Discarded | WeightsAt::Blank => true,
        };
        assert!(known, "{says:?} {facts:?}");
    }
}
