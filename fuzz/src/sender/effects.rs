//! What must come out of an input, compared with what does.

use crate::campaign::Check;
use crate::ensure;
use kvbaton_core::ids::{RequestId, TransferId};
use kvbaton_core::sender::{Ended, PullId, Reader};
use kvbaton_core::wire::FailureReason;

/// One thing that the sender must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    Write(TransferId, Reader),
    Cancel(TransferId, Reader),
    Finished(RequestId, TransferId, Ended),
    Ok(PullId, RequestId),
    Failed(PullId, RequestId, FailureReason, bool),
    /// The pull's last answer.
    Over(PullId),
}

impl Effect {
    /// The rule that an unexpected effect breaks.
    fn rule(&self) -> &'static str {
        match self {
            Self::Write(..) => "P03",
            Self::Cancel(..) => "P09",
            Self::Finished(..) => "P01",
            Self::Ok(..) | Self::Over(..) => "P02",
            Self::Failed(_, _, why, _) => rule_of(*why),
        }
    }
}

/// The rule that says when this reason is given.
pub(super) const fn rule_of(why: FailureReason) -> &'static str {
    match why {
        FailureReason::Aborted | FailureReason::Released => "P05",
        FailureReason::Expired => "P06",
        FailureReason::TimedOut => "P04",
        FailureReason::UnknownIncarnation => "P12",
        FailureReason::WriteFailed => "P07",
        FailureReason::BlocksDiffer => "A06",
        FailureReason::Dropped => "P09",
        FailureReason::AlreadyUsed => "P11",
        FailureReason::Unavailable => "S01",
        FailureReason::Overloaded => "Z01",
        FailureReason::Reset => "R03",
        FailureReason::OtherWeights => "R07",
        FailureReason::Other => "P02",
    }
}

/// Effects that are due, each with the rule that asks for it.
#[derive(Debug, Clone, Default)]
pub(super) struct Due {
    due: Vec<(&'static str, Effect)>,
}

impl Due {
    pub fn push(&mut self, rule: &'static str, effect: Effect) {
        self.due.push((rule, effect));
    }

    /// The effect has happened.
    pub fn happened(&mut self, effect: &Effect) -> Check {
        let Some(at) = self.due.iter().position(|(_, due)| due == effect) else {
            return self.unexpected(effect);
        };
        self.due.swap_remove(at);
        Ok(())
    }

    /// Takes a failure of which only the request is told, as towards a stock D.
    pub fn failed_somehow(&mut self, pull: PullId, name: &RequestId) -> Check {
        let found = self.due.iter().position(|(_, due)| {
            matches!(due, Effect::Failed(to, request, ..) if *to == pull && request == name)
        });
        ensure!(found.is_some(), "P02", "{name} of pull {} fails out of turn", pull.0);
        self.due.swap_remove(found.unwrap_or_default());
        Ok(())
    }

    fn unexpected(&self, effect: &Effect) -> Check {
        let due = self.due.first();
        let rule = due.map_or(effect.rule(), |(rule, _)| rule);
        ensure!(false, rule, "out of turn: {effect:?}; due instead: {:?}", self.due);
        Ok(())
    }

    /// Nothing may be left once an input has been dealt with.
    pub fn nothing_left(&self) -> Check {
        let Some((rule, effect)) = self.due.first() else { return Ok(()) };
        ensure!(false, rule, "due and not done: {effect:?}");
        Ok(())
    }
}
