//! Notes what an engine asks of one node and is told by it: the events that oracles rely on.

use super::engine::payload;
use crate::data::SimData;
use crate::history::{Failure, LoadFact, NodeId, SendFact, Tables, What};
use crate::sim::{Sim, Strike};
use crate::sites;
use kvbaton_actors::events::Event;
use kvbaton_actors::node::{Load, NodeHandle};
use kvbaton_actors::runtime;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{RequestId, TransferId};
use kvbaton_core::plan::LocalLayout;
use kvbaton_core::receiver::LoadEnd;
use kvbaton_core::sender::Ended;
use std::sync::Arc;
use std::time::Duration;

/// Watches one node of one life. What was asked is noted *before* the call into the node,
/// since the node may act before the call returns.
#[derive(Clone)]
pub struct Witness {
    sim: Arc<Sim>,
    node: NodeId,
    local: Arc<LocalLayout>,
}

impl Witness {
    /// Watches this node, whose blocks lie as `local` says.
    #[must_use]
    pub fn new(sim: Arc<Sim>, node: NodeId, local: LocalLayout) -> Self {
        Self { sim, node, local: Arc::new(local) }
    }

    /// The node.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Its layout.
    #[must_use]
    pub fn local(&self) -> &LocalLayout {
        &self.local
    }

    /// Its engine's lifecycle gives an order now: its number, and what becomes of it.
    pub fn ordered(&self) -> (u32, Option<Strike>) {
        self.sim.orders().given(self.node.engine)
    }

    /// Whether its engine's lifecycle has given no order yet.
    pub fn is_fresh(&self) -> bool {
        self.sim.orders().none_given(self.node.engine)
    }

    /// Notes anything else.
    pub fn note(&self, what: What) {
        self.sim.note_at(self.node, what);
    }

    /// P's engine has taken a request.
    pub fn prefill_started(&self, request: &RequestId, transfer: &TransferId) {
        let (request, transfer) = (request.clone(), transfer.clone());
        self.note(What::PrefillStarted { request, transfer });
    }

    /// P's engine hands over blocks computed with these weights.
    pub fn held(
        &self,
        request: &RequestId,
        transfer: &TransferId,
        blocks: &[BlockList],
        weights: u64,
    ) {
        let (request, transfer) = (request.clone(), transfer.clone());
        let rows = payload(&self.local, blocks);
        self.note(What::Held { request, transfer, rows, weights });
    }

    /// The node did not take them.
    pub fn hold_refused(&self, request: &RequestId, transfer: &TransferId, why: &str) {
        let (request, transfer) = (request.clone(), transfer.clone());
        self.note(What::HoldRefused { request, transfer, why: why.into() });
    }

    /// P's engine wants a transfer's blocks back.
    pub fn release_asked(&self, transfer: &TransferId) {
        self.note(What::ReleaseAsked { transfer: transfer.clone() });
    }

    /// D's engine, which runs these weights, starts a load.
    pub fn load_asked(&self, load: &Load, weights: u64) {
        let rows = payload(&self.local, &load.blocks);
        let (request, transfer) = (load.request.clone(), load.transfer.clone());
        self.note(What::LoadAsked { request, transfer, rows, weights });
    }

    /// The node did not take it.
    pub fn load_refused(&self, load: &Load, why: &str) {
        let (request, transfer) = (load.request.clone(), load.transfer.clone());
        self.note(What::LoadRefused { request, transfer, why: why.into() });
    }

    /// D's engine gives a load up.
    pub fn load_dropped(&self, request: &RequestId) {
        self.note(What::LoadDropped { request: request.clone() });
    }

    /// D's engine needs nothing of this one.
    pub fn remote_release_asked(&self, load: &Load) {
        let (request, transfer) = (load.request.clone(), load.transfer.clone());
        self.note(What::RemoteReleaseAsked { request, transfer });
    }

    /// The engine learns of an end.
    pub fn told(&self, event: &Event) {
        self.note(match event.clone() {
            Event::SendEnded { request, transfer, ended } => {
                let ended = match ended {
                    Ended::Sent => SendFact::Sent,
                    Ended::Failed(why) => SendFact::Failed(format!("{why:?}").into()),
                };
                What::SendEnded { request, transfer, ended }
            }
            Event::LoadEnded { request, transfer, end } => {
                let end = match end {
                    LoadEnd::Loaded => LoadFact::Loaded,
                    LoadEnd::Dropped => LoadFact::Dropped,
                    LoadEnd::Failed(failure) => LoadFact::Failed(Failure {
                        reason: format!("{:?}", failure.reason).into(),
                        message: failure.message.into(),
                    }),
                };
                What::LoadEnded { request, transfer, end }
            }
        });
    }

    /// Takes a while before the engine looks at its events, if that site fires.
    pub async fn dawdle(&self) {
        if self.sim.fires(sites::EVENTS_LATE, self.node.engine) {
            let late = self.sim.some_ms("events late", self.node.engine, 1, 400);
            runtime::sleep(Duration::from_nanos(late)).await;
        }
    }

    /// How full the tables of a node of ours are; `None` once it is gone.
    pub async fn tables(&self, handle: &NodeHandle, data: &SimData) -> Option<Tables> {
        let status = handle.status().await?;
        Some(Tables {
            held: status.sender.held as u64,
            pulls: status.sender.open_pulls as u64,
            writes: status.sender.writes as u64,
            loads: status.receiver.loads as u64,
            open_pulls: status.receiver.open_pulls as u64,
            transfers: status.sender.transfers as u64,
            layouts: status.layouts as u64,
            layouts_bound: self.sim.plan.bounds.peer_layouts as u64,
            grants: data.live_grants(),
            connections: self.sim.open_connections(self.node),
        })
    }

    /// Notes how full they are, and says what has not come back.
    #[must_use]
    pub fn left_over(&self, tables: Tables) -> Vec<Arc<str>> {
        self.note(What::Tables(tables));
        let open = [
            ("held requests", tables.held),
            ("pulls", tables.pulls),
            ("writes", tables.writes),
            ("loads", tables.loads),
            ("open pulls", tables.open_pulls),
            ("grants", tables.grants),
        ];
        let left = open.into_iter().filter(|(_, count)| *count > 0);
        left.map(|(what, count)| format!("{}: {count} {what}", self.node).into()).collect()
    }
}
