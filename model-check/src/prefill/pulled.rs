//! Messages of D, as the layout cache's actor takes them.

use super::{Asked, Prefill};
use crate::coverage::Seen;
use crate::memo::Output;
use crate::memory::Plan;
use crate::network::Packet;
use crate::options::{Broken, Options};
use crate::rules::Rule;
use kvbaton_core::ids::{Grant, LayoutId, RequestId};
use kvbaton_core::peer_layouts::Resolution;
use kvbaton_core::sender::{PullId, Reader, ResolvedPull};
use kvbaton_core::wire::{
    DropTransfers, FailureReason, Pull, REVISION, Reply, ReplyExtension, Status,
};

impl Prefill {
    /// A pull arrives; its loads name P's engine after `engine` restarts.
    pub(super) fn pull(
        &mut self,
        (copy, id, engine): (u8, PullId, u8),
        pull: Pull,
        options: &Options,
        out: &mut Output,
    ) {
        let own = PullId(id.0 * 2 + u64::from(copy));
        let extension = pull.extension.as_ref();
        let meant = extension.map(|it| it.incarnation).unwrap_or_default();
        let names: Vec<RequestId> = pull.requests.iter().map(|it| it.request_id.clone()).collect();
        let asked = Asked {
            id,
            engine,
            layout_id: pull.layout_id,
            generation: extension.map(|it| it.generation),
            grants: pull.requests.iter().map(|it| it.grant).collect(),
            unanswered: names.clone(),
        };
        self.pulls.insert(own, asked);
        let refused = if !self.sender.is_meant(meant) {
            out.saw(Seen::OldIncarnation);
            Some(FailureReason::UnknownIncarnation)
        } else if self.table.local().is_none() {
            out.saw(Seen::Asleep);
            Some(FailureReason::Unavailable)
        } else {
            None
        };
        if let Some(why) = refused {
            return self.sender.refuse_pull(own, &names, why, "", true);
        }
        let mut resolution = self.table.resolve(&pull);
        if options.broken == Some(Broken::MissWithLayout) && pull.layout.is_some() {
            resolution = Resolution::Miss;
        }
        match resolution {
            Resolution::Ready { layout, echo } => {
                if pull.layout.is_none() {
                    out.saw(Seen::LayoutLess);
                }
                out.require(Rule::L03, echo == pull.layout_id);
                let resolved = ResolvedPull {
                    id: own,
                    reader: Reader { session: pull.session, tp_rank: pull.tp_rank },
                    expected_readers: 1,
                    layout: Plan(layout),
                    echo,
                    generation: pull.extension.as_ref().map(|it| it.generation),
                    timeout: pull.extension.as_ref().map(|it| it.timeout).unwrap_or_default(),
                    weights: pull.extension.as_ref().map(|it| it.weights).unwrap_or_default(),
                    requests: pull.requests,
                };
                self.sender.pull(resolved, self.now);
                if self.frozen {
                    self.sender.refuse_open_pulls(self.now);
                }
            }
            Resolution::Miss => {
                out.saw(Seen::LayoutMiss);
                out.require(Rule::L06, pull.layout.is_none() && !pull.layout_id.is_none());
                self.answer_whole(own, Status::LayoutMiss, out);
            }
            Resolution::Incompatible(_) => self.answer_whole(own, Status::Error, out),
        }
    }

    fn answer_whole(&mut self, own: PullId, status: Status, out: &mut Output) {
        let Some(asked) = self.pulls.remove(&own) else { return };
        let reply = Reply {
            status,
            ok: None,
            failed: None,
            message: None,
            layout_id: LayoutId::NONE,
            extension: Some(ReplyExtension {
                revision: REVISION,
                incarnation: self.run,
                ..ReplyExtension::default()
            }),
        };
        out.send(Packet::Reply { rank: self.rank, id: asked.id, reply });
    }

    pub(super) fn drop_transfers(&mut self, drop: &DropTransfers, out: &mut Output) {
        let pulled =
            |grant: &Grant| self.pulls.values().any(|it| it.grants.contains(&Some(*grant)));
        if drop.transfers.iter().any(|(_, _, grant)| !pulled(grant)) {
            out.saw(Seen::EarlyDrop);
        }
        self.sender.drop_transfers(drop, self.now);
    }
}
