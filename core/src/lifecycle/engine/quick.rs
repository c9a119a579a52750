//! Operations that only send orders, beside whatever runs.

use super::EngineLifecycle;
use super::operation::{Operation, OperationError, Outcome, Who};
use super::order::{EngineAction, OperationId, OrderId};
use super::plan::plan;
use super::running::Waiting;
use crate::time::Timestamp;

/// One of them, while its orders are out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Quick {
    name: &'static str,
    pub waiting: Waiting,
}

impl EngineLifecycle {
    pub(super) fn ask_quick(&mut self, id: OperationId, operation: &Operation, now: Timestamp) {
        let step = match plan(operation, self.standing) {
            Ok(mut plan) => plan.steps.remove(0),
            Err(answer) => return self.answer(id, answer),
        };
        let waiting = self.issue(step, now);
        self.quick.insert(id, Quick { name: operation.name(), waiting });
    }

    /// Whether the order was one of theirs.
    pub(super) fn quick_done(&mut self, order: OrderId, result: &Result<(), String>) -> bool {
        let ours = |quick: &&mut Quick| quick.waiting.outstanding.contains_key(&order);
        let Some(quick) = self.quick.values_mut().find(ours) else { return false };
        let who = quick.waiting.outstanding.remove(&order).unwrap_or(Who::Engine);
        if let Err(why) = result {
            quick.waiting.failed.get_or_insert((who, why.clone()));
        }
        self.end_quick(|quick| quick.waiting.outstanding.is_empty());
        true
    }

    pub(super) fn tick_quick(&mut self, now: Timestamp) {
        self.end_quick(|quick| quick.waiting.until <= now);
    }

    fn end_quick(&mut self, is_over: impl Fn(&Quick) -> bool) {
        let over: Vec<OperationId> =
            self.quick.iter().filter(|(_, quick)| is_over(quick)).map(|(id, _)| *id).collect();
        for id in over {
            let Some(Quick { name: operation, waiting }) = self.quick.remove(&id) else { continue };
            let step = waiting.step.name();
            let answer = match (waiting.failed, waiting.outstanding.first_key_value()) {
                (Some((who, why)), _) => Err(OperationError::Failed { operation, step, who, why }),
                (None, Some((_, &who))) => {
                    let why = format!("no answer within {:?}", waiting.until.since(waiting.since));
                    Err(OperationError::Failed { operation, step, who, why })
                }
                (None, None) => Ok(Outcome::Done),
            };
            self.actions.extend(waiting.outstanding.into_keys().map(EngineAction::Forget));
            self.answer(id, answer);
        }
    }
}
