//! The lifecycle of a whole engine: pause, sleep, wake, weight updates, over all its ranks.
//!
//! An operation is a list of steps (`plan.rs`); a step is one order to the engine, or the same
//! order to every rank's node. A step that fails, or does not end in its bound, is followed by
//! the steps that bring the engine back to where it was: all or nothing `[S06]`. One operation
//! runs at a time; a resume ends the one that runs, at once `[R05]`, unless memory already
//! changes hands: then it waits for that.

mod bounds;
mod operation;
mod order;
mod plan;
mod quick;
mod running;
mod standing;

pub use bounds::Bounds;
pub use operation::{
    Operation, OperationError, Outcome, Part, Parts, PauseMode, SleepLevel, Which, Who,
};
pub use order::{EngineAction, EngineOrder, OperationId, OrderId, RankOrder};
pub use standing::{Compute, Standing, WeightsAt};

use crate::ids::WeightVersion;
use crate::planted::{self, Bug};
use crate::time::Timestamp;
use order::Step;
use plan::{Plan, plan};
use quick::Quick;
use running::{Running, Waiting};
use std::collections::{BTreeMap, VecDeque};

/// What an engine is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Doing {
    /// The operation's name.
    pub operation: &'static str,
    /// The step's name.
    pub step: &'static str,
    /// Since when the operation runs.
    pub since: Timestamp,
    /// Whether it is being taken back.
    pub undoing: bool,
}

/// The lifecycle of one engine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EngineLifecycle {
    ranks: usize,
    bounds: Bounds,
    standing: Standing,
    running: Option<Running>,
    quick: BTreeMap<OperationId, Quick>,
    /// Resumes that wait for what runs to end.
    resumes: Vec<OperationId>,
    next_order: u64,
    actions: VecDeque<EngineAction>,
}

impl EngineLifecycle {
    /// Of an engine that runs, with `ranks` nodes, under weights `version`.
    #[must_use]
    pub fn new(ranks: usize, bounds: Bounds, version: WeightVersion) -> Self {
        Self {
            ranks,
            bounds,
            standing: Standing::new(version),
            running: None,
            quick: BTreeMap::new(),
            resumes: Vec::new(),
            next_order: 0,
            actions: VecDeque::new(),
        }
    }

    /// The next thing to do; call until `None` after each input.
    pub fn next_action(&mut self) -> Option<EngineAction> {
        self.actions.pop_front()
    }

    /// How the engine stands; what runs has changed as much of it as it has done.
    #[must_use]
    pub const fn standing(&self) -> Standing {
        self.standing
    }

    /// What runs, if anything.
    #[must_use]
    pub fn doing(&self) -> Option<Doing> {
        self.running.as_ref().map(|running| Doing {
            operation: running.operation.name(),
            step: running.step_name(),
            since: running.since,
            undoing: running.undoing,
        })
    }

    /// When [`Self::tick`] is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let running = self.running.as_ref().and_then(|it| it.waiting.as_ref()).map(|it| it.until);
        running.into_iter().chain(self.quick.values().map(|it| it.waiting.until)).min()
    }

    /// Asks for an operation; its one answer comes as [`EngineAction::Answer`].
    pub fn ask(&mut self, id: OperationId, operation: Operation, now: Timestamp) {
        if operation.is_quick() {
            return self.ask_quick(id, &operation, now);
        }
        match &mut self.running {
            None => self.begin(id, operation, now),
            Some(running) if operation == Operation::Resume => {
                if running.operation == operation && !running.undoing {
                    running.askers.push(id);
                } else {
                    self.resumes.push(id);
                    self.end_for_resume(now);
                }
            }
            Some(running) if running.operation == operation && !running.undoing => {
                running.askers.push(id);
            }
            Some(running) => {
                let busy = OperationError::Busy {
                    operation: running.operation.name(),
                    step: running.step_name(),
                    since: now.since(running.since),
                };
                self.answer(id, Err(busy));
            }
        }
    }

    fn begin(&mut self, id: OperationId, operation: Operation, now: Timestamp) {
        let Plan { steps, mode, asleep } = match plan(&operation, self.standing) {
            Ok(plan) => plan,
            Err(answer) => return self.answer(id, answer),
        };
        let running = Running::new(operation, id, self.standing, now);
        self.running = Some(Running { steps: steps.into(), mode, asleep, ..running });
        self.advance(now);
    }

    /// Ends what runs because the engine is resumed, if it can still be taken back `[R05]`.
    fn end_for_resume(&mut self, now: Timestamp) {
        let Some(running) = &mut self.running else { return };
        if running.undoing || running.past_return {
            return;
        }
        let (operation, step) = (running.operation.name(), running.step_name());
        let askers = std::mem::take(&mut running.askers);
        for id in askers {
            self.answer(id, Err(OperationError::Resumed { operation, step }));
        }
        self.fail(OperationError::Resumed { operation, step }, now);
    }

    /// An order has ended, well or with the words of who failed. Unknown and forgotten
    /// ones are fine.
    pub fn done(&mut self, order: OrderId, result: Result<(), String>, now: Timestamp) {
        if self.quick_done(order, &result) {
            return;
        }
        let Some(running) = &mut self.running else { return };
        let Some(waiting) = &mut running.waiting else { return };
        let Some(who) = waiting.outstanding.remove(&order) else { return };
        if let Err(why) = result {
            waiting.failed.get_or_insert((who, why));
        }
        let first_is_all = planted::is(Bug::CommitBeforePrepared)
            && matches!(waiting.step, Step::Ranks(RankOrder::Prepare));
        let all = waiting.outstanding.is_empty() || first_is_all;
        if all || (waiting.failed.is_some() && !waiting.step.must_end()) {
            self.step_ended(now);
        }
    }

    /// The step has ended, one way or the other.
    fn step_ended(&mut self, now: Timestamp) {
        let Some(running) = &mut self.running else { return };
        let Some(Waiting { step, outstanding, failed, .. }) = running.waiting.take() else {
            return;
        };
        self.actions.extend(outstanding.into_keys().map(EngineAction::Forget));
        if running.resumed_in_step {
            if failed.is_none() {
                self.apply(&step);
            }
            return self.undo(now);
        }
        let Some((who, why)) = failed else {
            self.apply(&step);
            return self.advance(now);
        };
        if matches!(step, Step::Engine(EngineOrder::ResetCache)) && running.is_reset() {
            return self.explain(&step, None, now);
        }
        if let Step::Engine(EngineOrder::Unmap { part: Part::Weights, .. }) = step
            && !running.ran_out
        {
            self.standing.weights = running.weights; // It has changed nothing.
        }
        if running.undoing {
            running.steps.retain(|it| !it.needs(&step));
            if let Step::Ranks(RankOrder::Cancel | RankOrder::Prepare) = step {
                self.standing.kv = false; // A rank may take nothing until a wake.
            }
        }
        let (operation, step) = (running.operation.name(), step.name());
        self.fail(OperationError::Failed { operation, step, who, why }, now);
    }

    /// What a step that went well has changed.
    fn apply(&mut self, step: &Step) {
        let Some(running) = &mut self.running else { return };
        let before = self.standing;
        match step {
            Step::Engine(EngineOrder::Run) => self.standing.compute = Compute::Running,
            Step::Engine(EngineOrder::Map(Part::Weights)) => {
                self.standing.weights = match self.standing.weights {
                    WeightsAt::Offloaded => WeightsAt::Mapped,
                    _ => WeightsAt::Blank,
                };
            }
            Step::Engine(EngineOrder::LoadWeights(version)) => self.standing.version = *version,
            // Not before every rank knows: KV of one would be served as the other's.
            Step::Ranks(RankOrder::SetWeights(_)) => self.standing.weights = WeightsAt::Mapped,
            Step::Ranks(RankOrder::Restore) => self.standing.kv = true,
            Step::Ranks(RankOrder::Cancel) => running.prepared = false,
            _ => {}
        }
        if before != self.standing {
            self.actions.push_back(EngineAction::Changed);
        }
    }

    /// What a step changes as soon as it is begun.
    fn commence(&mut self, step: &Step) {
        let Some(running) = &mut self.running else { return };
        let before = self.standing;
        match step {
            Step::Engine(EngineOrder::Finish | EngineOrder::Freeze) => {
                running.opened |= matches!(step, Step::Engine(EngineOrder::Finish));
                self.standing.compute = match (running.undoing, running.before.compute) {
                    (true, Compute::Paused(mode)) => Compute::Paused(mode),
                    _ => Compute::Paused(running.mode),
                };
            }
            Step::Engine(EngineOrder::Unmap { part: Part::Kv, .. }) => running.mapped = false,
            Step::Engine(EngineOrder::Unmap { part: Part::Weights, keep }) => {
                running.weights = self.standing.weights;
                self.standing.weights =
                    if *keep { WeightsAt::Offloaded } else { WeightsAt::Discarded };
            }
            Step::Engine(EngineOrder::Map(Part::Kv)) => running.mapped = true,
            Step::Engine(EngineOrder::LoadWeights(_)) => self.standing.weights = WeightsAt::Blank,
            Step::Ranks(RankOrder::Prepare) => running.prepared = true,
            Step::Ranks(RankOrder::Commit) => {
                self.standing.kv = false;
                running.mapped = true;
            }
            _ => {}
        }
        running.past_return |= !running.undoing && step.is_past_return();
        if before != self.standing {
            self.actions.push_back(EngineAction::Changed);
        }
    }

    /// Begins the next step, or ends the operation.
    fn advance(&mut self, now: Timestamp) {
        let step = loop {
            let Some(running) = &mut self.running else { return };
            let Some(step) = running.steps.pop_front() else { return self.end(now) };
            // What could not be brought back must not run.
            if self.standing.is_whole() || !running.undoing || !step.runs() {
                break step;
            }
        };
        self.commence(&step);
        let waiting = self.issue(step, now);
        if let Some(running) = &mut self.running {
            running.waiting = Some(waiting);
        }
    }

    /// Sends a step's orders.
    fn issue(&mut self, step: Step, now: Timestamp) -> Waiting {
        let mut waiting = Waiting::new(step, now, &self.bounds);
        for who in waiting.step.who(self.ranks) {
            let id = OrderId(self.next_order);
            self.next_order += 1;
            waiting.outstanding.insert(id, who);
            self.actions.push_back(match (&waiting.step, who) {
                (Step::Ranks(order), Who::Rank(rank)) => EngineAction::Rank(id, rank, *order),
                (Step::Engine(order), _) => EngineAction::Engine(id, order.clone()),
                (Step::Ranks(_), Who::Engine) => unreachable!("ranks' steps are ranks'"),
            });
        }
        waiting
    }

    /// Every step is done.
    fn end(&mut self, now: Timestamp) {
        let Some(running) = self.running.take() else { return };
        let answer = if running.undoing {
            self.standing.asleep = running.before.asleep;
            if let (Compute::Paused(_), Compute::Paused(_)) =
                (self.standing.compute, running.before.compute)
            {
                self.standing.compute = running.before.compute;
            }
            running.answer_undone(self.standing)
        } else {
            self.standing.asleep = running.asleep;
            Ok(match running.is_reset() {
                true => Outcome::Reset { done: true, users: Vec::new() },
                false => Outcome::Done,
            })
        };
        if !self.standing.is_whole() {
            // What could not be brought back sleeps, so that a wake brings it back.
            self.standing.asleep.get_or_insert(running.before.compute == Compute::Running);
        }
        for id in running.askers {
            self.answer(id, answer.clone());
        }
        self.actions.push_back(EngineAction::Changed);
        for id in std::mem::take(&mut self.resumes) {
            self.ask(id, Operation::Resume, now);
        }
    }

    fn answer(&mut self, id: OperationId, answer: Result<Outcome, OperationError>) {
        self.actions.push_back(EngineAction::Answer(id, answer));
    }
}
