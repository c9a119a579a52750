//! P's front actor: reads control messages, finds their layout, and hands them over.
//!
//! Owns core's layout table. Whatever cannot be served is answered from here at once.

use crate::clock::Clock;
use crate::metric;
use crate::node::registration::Memory;
use crate::planted::hash_of;
use crate::prefill_sender::{Dropped, PrefillSender, Pulled, Refused};
use crate::transport::Inbound;
use actix::prelude::*;
use bytes::Bytes;
use kvbaton_core::ids::{Generation, Incarnation, LayoutId};
use kvbaton_core::peer_layouts::{DEFAULT_MAX_BYTES, LayoutTable, Resolution};
use kvbaton_core::plan::{BlockRequest, PlanScratch, PreparedLayout, TokenEnds};
use kvbaton_core::planted::{self, Bug};
use kvbaton_core::region::Copy;
use kvbaton_core::sender::{BlocksUntil, PlanCopies, PullId, Reader, ResolvedPull};
use kvbaton_core::time::Timestamp;
use kvbaton_core::topology::expected_pulls;
use kvbaton_core::wire::{
    FailureReason, Limits, Pull, REVISION, Reply, ReplyExtension, Status, ToPrefill,
};
use lru::LruCache;
use std::cell::RefCell;
use std::num::NonZeroUsize;
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
        let request = BlockRequest {
            local: held.groups,
            remote: wanted.groups,
            ends: TokenEnds { producer: held.end_token, consumer: wanted.end_token },
        };
        // Plans run on the node's thread only, one at a time.
        thread_local!(static SCRATCH: RefCell<PlanScratch> = RefCell::default());
        let planned = SCRATCH.with_borrow_mut(|scratch| self.layout.plan(request, scratch, out));
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
    keys: LruCache<Generation, Arc<[u8]>>,
}

impl LayoutCache {
    /// An actor that hands pulls to `sender`.
    pub fn new(
        capacity: NonZeroUsize,
        clock: Clock,
        incarnation: Incarnation,
        limits: Limits,
        sender: Addr<PrefillSender>,
    ) -> Self {
        let mut keys = LruCache::unbounded();
        keys.resize(capacity);
        let table = LayoutTable::new(capacity, DEFAULT_MAX_BYTES);
        Self { table, clock, incarnation, limits, sender, keys }
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
                self.sender.do_send(Dropped(drop));
                answer(&inbound, &finished(self.incarnation));
            }
            Ok(ToPrefill::Pull(pull)) => self.pull(pull, inbound, since),
        }
    }

    fn pull(&mut self, pull: Pull, inbound: Inbound, since: Timestamp) {
        let meant = pull.extension.as_ref().map(|it| it.incarnation).unwrap_or_default();
        if !self.incarnation.is_meant(meant) && !planted::is(Bug::OldRunServed) {
            let why = FailureReason::UnknownIncarnation;
            let text = "this prefill process has restarted; ask the bootstrap server again";
            return self.refuse(pull, inbound, since, why, text);
        }
        if self.table.local().is_none() {
            let why = FailureReason::Unavailable;
            return self.refuse(
                pull,
                inbound,
                since,
                why,
                "the prefill's memory is not registered",
            );
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
            Resolution::Ready { layout, echo } => {
                let how = if pull.layout.is_some() { "sent" } else { "cached" };
                let keys = self.keys_of(&pull);
                let expected_readers = self.expected_readers(&pull);
                let resolved = ResolvedPull {
                    id: PullId(0),
                    reader: Reader { session: pull.session, tp_rank: pull.tp_rank },
                    expected_readers,
                    layout: PeerPlan { layout, keys },
                    echo,
                    generation: pull.extension.as_ref().map(|it| it.generation),
                    timeout: pull.extension.as_ref().map(|it| it.timeout).unwrap_or_default(),
                    weights: pull.extension.as_ref().map(|it| it.weights).unwrap_or_default(),
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

    /// The peer's remote keys: they travel with its layout and belong to its generation.
    fn keys_of(&mut self, pull: &Pull) -> Arc<[u8]> {
        let Some(generation) = pull.extension.as_ref().map(|it| it.generation) else {
            return Arc::default();
        };
        let stale = planted::is(Bug::KeysNotRefreshed);
        let generation = if stale { Generation(hash_of(&pull.session)) } else { generation };
        if stale && let Some(first) = self.keys.get(&generation) {
            return first.clone();
        }
        if let Some(sent) = pull.layout.as_ref().and_then(|it| it.extension.as_ref()) {
            let keys: Arc<[u8]> = sent.keys.as_slice().into();
            if !keys.is_empty() {
                self.keys.push(generation, keys.clone());
            }
            return keys;
        }
        self.keys.get(&generation).cloned().unwrap_or_default()
    }

    /// D ranks that read a transfer of this rank `[A02]`.
    fn expected_readers(&self, pull: &Pull) -> u32 {
        let topology = self.table.local().expect("resolved").topology;
        expected_pulls(topology, pull.tp_size, pull.pp_size).expect("resolved, so they pair")
    }

    fn miss(&self, pull: &Pull) -> Reply {
        let allowed = !pull.layout_id.is_none() && pull.layout.is_none();
        assert!(allowed || planted::is(Bug::MissToOldPeer), "[L06]");
        Reply {
            status: Status::LayoutMiss,
            ok: None,
            failed: None,
            message: Some(format!("layout {} of {} is not cached", pull.layout_id, pull.session)),
            layout_id: LayoutId::NONE,
            extension: self.extension(pull),
        }
    }

    /// Hands over a pull that fails whole `[P02]`.
    fn refuse(
        &self,
        pull: Pull,
        inbound: Inbound,
        since: Timestamp,
        why: FailureReason,
        text: &'static str,
    ) {
        metric::resolved("refused", self.clock.now().since(since));
        self.sender.do_send(Refused {
            requests: pull.requests.into_iter().map(|it| it.request_id).collect(),
            why,
            text,
            extended: pull.extension.is_some(),
            answer: inbound.answer,
            since,
        });
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
        match memory {
            None => self.table.unregister(),
            Some(memory) => {
                let taken = self.table.register((*memory.local).clone());
                taken.expect("`Memory::new` has checked the layout");
            }
        }
    }
}

/// Asks how many layouts of D ranks are stored.
#[derive(Message)]
#[rtype(result = "usize")]
pub struct AskLayouts;

impl Handler<AskLayouts> for LayoutCache {
    type Result = usize;
    fn handle(&mut self, _: AskLayouts, _: &mut Self::Context) -> usize {
        self.table.len().0
    }
}
