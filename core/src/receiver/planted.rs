//! Planted bugs of echoes and ends.

use super::load::{Load, LoadId, Phase};
use super::{Receiver, Wait};
use crate::ids::LayoutId;
use crate::planted::{self, Bug};
use crate::wire::{Reply, Status};

impl Receiver {
    /// The id of a registration: `right`, or under a bug a count of loads.
    pub(super) fn layout_id(&self, right: LayoutId) -> LayoutId {
        let count = LayoutId(2 * self.next_load + 1);
        if planted::is(Bug::CounterLayoutId) { count } else { right }
    }

    /// Reports a load that goes on: its grant stays live.
    pub(super) fn report_early(&mut self, id: LoadId) {
        let Some(grant) = self.loads.get(&id).map(|load| load.spec.grant) else { return };
        self.report(id);
        self.by_grant.insert(grant, id);
    }

    /// Whether the load is reported now although P ranks still write for it.
    pub(super) fn frees_at_failure(&self, id: LoadId, wait: Wait) -> bool {
        let writing = |it: &Load| it.phase == Phase::Pulling && !it.outstanding.is_empty();
        planted::is(Bug::FreedAtFirstFailure)
            && wait == Wait::IfRevokingDoesNotSettle
            && self.loads.get(&id).is_some_and(|it| !it.dropped && writing(it))
    }

    /// Whether the load was reported early, so that its end is not.
    pub(super) fn was_reported(&self, id: LoadId) -> bool {
        planted::is(Bug::FreedAtFirstFailure)
            && self
                .loads
                .get(&id)
                .is_some_and(|it| self.by_request.get(&it.spec.request) != Some(&id))
    }
}

/// Whether a planted bug takes the reply for an echo of the current id.
pub(super) fn is_echo(reply: &Reply) -> bool {
    planted::is(Bug::FinishTakenAsEcho) && reply.status == Status::Finish
        || planted::is(Bug::StaleEchoAccepted) && !reply.layout_id.is_none()
}
