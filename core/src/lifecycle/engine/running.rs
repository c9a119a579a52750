//! The operation that runs: its steps, its failure, its way back.

use super::operation::{Operation, OperationError, Outcome, PauseMode, Who};
use super::order::{EngineAction, OperationId, OrderId, Step};
use super::plan::undo;
use super::standing::{Standing, WeightsAt};
use super::{Bounds, EngineLifecycle};
use crate::time::Timestamp;
use std::collections::{BTreeMap, VecDeque};

/// A step whose orders are out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Waiting {
    pub step: Step,
    pub since: Timestamp,
    pub until: Timestamp,
    pub outstanding: BTreeMap<OrderId, Who>,
    /// The first who failed.
    pub failed: Option<(Who, String)>,
    /// It is over: who is in the way is being asked.
    pub explaining: bool,
}

impl Waiting {
    pub fn new(step: Step, now: Timestamp, bounds: &Bounds) -> Self {
        Self {
            until: now + bounds.of(&step),
            step,
            since: now,
            outstanding: BTreeMap::new(),
            failed: None,
            explaining: false,
        }
    }
}

/// An operation that runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Running {
    pub operation: Operation,
    pub askers: Vec<OperationId>,
    pub since: Timestamp,
    pub before: Standing,
    pub steps: VecDeque<Step>,
    pub mode: PauseMode,
    pub asleep: Option<bool>,
    pub waiting: Option<Waiting>,
    /// Ranks may hold a prepared release.
    pub prepared: bool,
    /// The KV cache's pages may be there although it is not usable.
    pub mapped: bool,
    /// A paused engine was let go on, for its requests to finish.
    pub opened: bool,
    /// The weights before they were given up.
    pub weights: WeightsAt,
    /// The step that failed was not answered: what it has changed is not known.
    pub ran_out: bool,
    /// Too late for a resume to end it.
    pub past_return: bool,
    /// It was ended while a step ran that must end first.
    pub resumed_in_step: bool,
    pub undoing: bool,
    /// Why it is taken back.
    pub failure: Option<OperationError>,
    /// Why it could not be taken back.
    pub stuck: Option<String>,
    /// Of a reset: what was in the way.
    pub in_the_way: Option<Vec<String>>,
}

impl Running {
    pub fn new(operation: Operation, id: OperationId, before: Standing, now: Timestamp) -> Self {
        Self {
            operation,
            askers: vec![id],
            since: now,
            before,
            steps: VecDeque::new(),
            mode: PauseMode::Keep,
            asleep: None,
            waiting: None,
            prepared: false,
            mapped: false,
            opened: false,
            weights: before.weights,
            ran_out: false,
            past_return: false,
            resumed_in_step: false,
            undoing: false,
            failure: None,
            stuck: None,
            in_the_way: None,
        }
    }

    pub fn step_name(&self) -> &'static str {
        self.waiting.as_ref().map_or("ending", |it| it.step.name())
    }

    pub const fn is_reset(&self) -> bool {
        matches!(self.operation, Operation::ResetPrefixCache { .. })
    }

    /// What the askers of an operation that was taken back are told.
    pub fn answer_undone(&self, now: Standing) -> Result<Outcome, OperationError> {
        if let Some(users) = self.in_the_way.clone() {
            return Ok(Outcome::Reset { done: false, users });
        }
        let cause = self.failure.clone().unwrap_or(OperationError::Stopped);
        let why = if let Some(why) = &self.stuck {
            why.clone()
        } else if now.weights != self.before.weights {
            "the weights are gone; update them again".into()
        } else if now.version != self.before.version {
            "the weights are the new ones".into()
        } else {
            return Err(cause);
        };
        Err(OperationError::NotUndone { cause: cause.to_string(), why })
    }
}

impl EngineLifecycle {
    /// Does what is due: steps that ran out of time.
    pub fn tick(&mut self, now: Timestamp) {
        self.tick_quick(now);
        let Some(running) = &mut self.running else { return };
        let Some(waiting) = running.waiting.as_ref().filter(|it| it.until <= now) else { return };
        if waiting.explaining {
            return self.explained(Vec::new(), now);
        }
        let (step, since) = (waiting.step.clone(), waiting.since);
        if Bounds::may_run_out(&step) || running.resumed_in_step {
            return self.step_ended(now);
        }
        if running.undoing || step.must_end() {
            running.ran_out = true;
            let why = format!("it did not end within {:?}", now.since(since));
            let first = waiting.outstanding.values().next().copied().unwrap_or(Who::Engine);
            if let Some(waiting) = &mut running.waiting {
                waiting.failed.get_or_insert((first, why));
            }
            return self.step_ended(now);
        }
        self.explain(&step, Some(since), now);
    }

    /// Asks what is in the way of a step.
    pub(super) fn explain(&mut self, step: &Step, since: Option<Timestamp>, now: Timestamp) {
        let Some(running) = &mut self.running else { return };
        if let Some(waiting) = running.waiting.take() {
            self.actions.extend(waiting.outstanding.into_keys().map(EngineAction::Forget));
        }
        running.waiting = Some(Waiting {
            step: step.clone(),
            since: since.unwrap_or(now),
            until: now + self.bounds.order,
            outstanding: BTreeMap::new(),
            failed: None,
            explaining: true,
        });
        self.actions.push_back(EngineAction::Explain);
    }

    /// What has blocks or runs, in words: which request, which peer, since when. Fine when
    /// nobody asked.
    pub fn explained(&mut self, users: Vec<String>, now: Timestamp) {
        let Some(running) = &mut self.running else { return };
        let Some(waiting) = running.waiting.take_if(|it| it.explaining) else { return };
        if running.is_reset() {
            running.in_the_way = Some(users.clone());
        }
        let failure = OperationError::TimedOut {
            operation: running.operation.name(),
            step: waiting.step.name(),
            waited: now.since(waiting.since),
            users,
        };
        self.fail(failure, now);
    }

    /// The operation is over, and is taken back; a step that changes memory ends first.
    pub(super) fn fail(&mut self, why: OperationError, now: Timestamp) {
        let Some(running) = &mut self.running else { return };
        if running.undoing {
            running.stuck.get_or_insert(why.to_string());
            return self.advance(now); // The rest may still work.
        }
        running.failure.get_or_insert(why);
        if running.waiting.as_ref().is_some_and(|it| it.step.must_end()) {
            running.resumed_in_step = true;
            return;
        }
        if let Some(waiting) = running.waiting.take() {
            self.actions.extend(waiting.outstanding.into_keys().map(EngineAction::Forget));
        }
        self.undo(now);
    }

    /// Begins the way back.
    pub(super) fn undo(&mut self, now: Timestamp) {
        let Some(running) = &mut self.running else { return };
        running.resumed_in_step = false;
        running.undoing = true;
        let steps = undo(running, self.standing);
        running.steps = steps.into();
        self.advance(now);
    }
}
