//! P's front actor: reads control messages, finds their layout, and hands them over.
//!
//! Owns core's layout table. Whatever cannot be served is answered from here at once.

use crate::clock::Clock;
use crate::metric;
use crate::node::registration::Memory;
use crate::prefill_sender::{Dropped, PrefillSender, Pulled};
use crate::transport::Inbound;
use actix::prelude::*;
use bytes::Bytes;
use kvbaton_core::ids::{Incarnation, LayoutId, RequestId};
use kvbaton_core::peer_layouts::{LayoutTable, Resolution};
use kvbaton_core::plan::PreparedLayout;
use kvbaton_core::region::Copy;
use kvbaton_core::sender::{BlocksUntil, PlanCopies, PullId, Reader, ResolvedPull};
use kvbaton_core::wire::{
    FailureReason, Limits, Pull, REVISION, Reply, ReplyExtension, Status, ToPrefill,
};
use std::sync::Arc;

/// A peer's layout, aligned with ours and ready to plan with.
#[derive(Clone)]
pub struct PeerPlan {
    /// Aligned regions.
    pub layout: Arc<PreparedLayout>,
    /// The peer's remote keys.
    pub keys: Arc<[u8]>,
}

impl PlanCopies for PeerPlan {
    fn plan(
        &self,
        held: BlocksUntil<'_>,
        wanted: BlocksUntil<'_>,
        out: &mut Vec<Copy>,
    ) -> Result<(), String> {
        let planned = self.layout.plan(held, wanted, out);
        planned.map(|_| ()).map_err(|error| error.to_string())
    }
}

/// The actor.
pub struct LayoutCache {
    table: LayoutTable,
    clock: Clock,
    incarnation: Incarnation,
    limits: Limits,
    sender: Addr<PrefillSender>,
    registered: bool,
}

impl LayoutCache {
    /// An actor that hands pulls to `sender`.
    pub fn new(
        table: LayoutTable,
        clock: Clock,
        incarnation: Incarnation,
        limits: Limits,
        sender: Addr<PrefillSender>,
    ) -> Self {
        Self { table, clock, incarnation, limits, sender, registered: false }
    }

    fn take(&mut self, inbound: Inbound) {
        let since = self.clock.now();
        match ToPrefill::decode(&inbound.payload, &self.limits) {
            Err(error) => {
                metric::malformed();
                let from = inbound.peer.map_or_else(|| "a peer".into(), |peer| peer.to_string());
                tracing::warn!(%from, %error, "a control message cannot be read");
                answer(&inbound, &refusal(format!("the message cannot be read: {error}"), None));
            }
            Ok(ToPrefill::Drop(drop)) => {
                if drop.incarnation == self.incarnation {
                    self.sender.do_send(Dropped(drop));
                }
                answer(&inbound, &finished(self.incarnation));
            }
            Ok(ToPrefill::Pull(pull)) => self.pull(pull, inbound, since),
        }
    }

    fn pull(&mut self, pull: Pull, inbound: Inbound, since: kvbaton_core::time::Timestamp) {
        let meant = pull.extension.as_ref().map(|it| it.incarnation).unwrap_or_default();
        if meant != Incarnation::default() && meant != self.incarnation {
            metric::resolved("unknown_incarnation", self.clock.now().since(since));
            let why = FailureReason::UnknownIncarnation;
            return answer(&inbound, &self.failed(&pull, why, "this prefill process has restarted"));
        }
        if !self.registered {
            metric::resolved("unavailable", self.clock.now().since(since));
            let why = FailureReason::Unavailable;
            return answer(&inbound, &self.failed(&pull, why, "the prefill's memory is not registered"));
        }
        let (how, reply) = match self.table.resolve(&pull) {
            Resolution::Miss => ("miss", self.miss(&pull)),
            Resolution::Incompatible(why) => {
                tracing::warn!(session = %pull.session, reason = why.name(), "{why}");
                let text = format!("{} ({})", why, why.name());
                let mut reply = refusal(text, self.extension(&pull));
                reply.layout_id = LayoutId::NONE;
                ("incompatible", reply)
            }
            Resolution::Ready(ready) => {
                let how = if pull.layout.is_some() { "sent" } else { "cached" };
                let resolved = ResolvedPull {
                    id: PullId(0),
                    reader: Reader { session: pull.session, tp_rank: pull.tp_rank },
                    expected_readers: ready.expected_readers,
                    layout: PeerPlan { layout: ready.layout, keys: ready.keys },
                    echo: ready.echo,
                    generation: pull.extension.as_ref().map(|it| it.generation),
                    timeout: pull.extension.as_ref().map(|it| it.timeout).unwrap_or_default(),
                    requests: pull.requests,
                };
                self.sender.do_send(Pulled { pull: resolved, answer: inbound.answer, since });
                metric::resolved(how, self.clock.now().since(since));
                return;
            }
        };
        metric::resolved(how, self.clock.now().since(since));
        metric::answered(&reply);
        answer(&inbound, &reply);
    }

    fn miss(&self, pull: &Pull) -> Reply {
        assert!(!pull.layout_id.is_none() && pull.layout.is_none(), "[L06]");
        Reply {
            status: Status::LayoutMiss,
            ok: None,
            failed: None,
            message: Some(format!("layout {} of {} is not cached", pull.layout_id, pull.session)),
            layout_id: LayoutId::NONE,
            extension: self.extension(pull),
        }
    }

    /// Fails every request of a pull, and says why of each.
    fn failed(&self, pull: &Pull, why: FailureReason, text: &str) -> Reply {
        let requests: Vec<RequestId> = pull.requests.iter().map(|it| it.request_id.clone()).collect();
        let mut extension = self.extension(pull);
        if let Some(extension) = &mut extension {
            extension.outcomes = requests.iter().map(|id| (id.clone(), why, true)).collect();
        }
        Reply {
            status: Status::Finish,
            ok: None,
            failed: (!requests.is_empty()).then_some(requests),
            message: Some(text.into()),
            layout_id: LayoutId::NONE,
            extension,
        }
    }

    fn extension(&self, pull: &Pull) -> Option<ReplyExtension> {
        pull.extension.as_ref().map(|_| ReplyExtension {
            revision: REVISION,
            features: 0,
            incarnation: self.incarnation,
            outcomes: Vec::new(),
        })
    }
}

fn refusal(text: String, extension: Option<ReplyExtension>) -> Reply {
    Reply {
        status: Status::Error,
        ok: None,
        failed: None,
        message: Some(text),
        layout_id: LayoutId::NONE,
        extension,
    }
}

/// The answer to a drop: it was read.
fn finished(incarnation: Incarnation) -> Reply {
    Reply {
        status: Status::Finish,
        ok: None,
        failed: None,
        message: None,
        layout_id: LayoutId::NONE,
        extension: Some(ReplyExtension { revision: REVISION, incarnation, ..Default::default() }),
    }
}

fn answer(inbound: &Inbound, reply: &Reply) {
    let mut bytes = Vec::with_capacity(256);
    reply.encode(&mut bytes);
    (inbound.answer)(Bytes::from(bytes));
}

impl Actor for LayoutCache {
    type Context = Context<Self>;
}

/// A control message came.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Arrived(
    /// The message.
    pub Inbound,
);

impl Handler<Arrived> for LayoutCache {
    type Result = ();
    fn handle(&mut self, Arrived(inbound): Arrived, _: &mut Self::Context) {
        self.take(inbound);
    }
}

/// Memory was registered, or went away: all layouts are forgotten `[L09]`.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SetLocal(
    /// The memory, if any.
    pub Option<Arc<Memory>>,
);

impl Handler<SetLocal> for LayoutCache {
    type Result = ();
    fn handle(&mut self, SetLocal(memory): SetLocal, _: &mut Self::Context) {
        self.registered = memory.is_some();
        if let Some(memory) = memory {
            self.table.register((*memory.local).clone());
        }
    }
}
