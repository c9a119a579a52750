//! One timer per actor, at its machine's next deadline.

use crate::runtime::Timers;
use actix::prelude::*;
use kvbaton_core::time::Timestamp;

/// Set again after each input; moves only when the deadline does.
#[derive(Default)]
pub(crate) struct Alarm {
    set: Option<(Timestamp, SpawnHandle)>,
}

impl Alarm {
    /// Makes `ring` run once `due` has come, in the place of what was set before. `ring`
    /// must call [`Self::rang`] first.
    pub fn set<A: Actor<Context = Context<A>>>(
        &mut self,
        due: Option<Timestamp>,
        now: Timestamp,
        context: &mut Context<A>,
        ring: fn(&mut A, &mut Context<A>),
    ) {
        if self.set.map(|(at, _)| at) == due {
            return;
        }
        if let Some((_, handle)) = self.set.take() {
            context.cancel_future(handle);
        }
        let Some(due) = due else { return };
        self.set = Some((due, context.after(due.since(now), ring)));
    }

    /// What was set has run.
    pub fn rang(&mut self) {
        self.set = None;
    }
}
