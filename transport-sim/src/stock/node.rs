//! A stock rank's process, whichever side it plays.

use super::decode::Decode;
use super::prefill::Prefill;
use crate::bootstrap::SimBootstrap;
use crate::control::SimControl;
use crate::data::{Checks, SimData};
use crate::history::{NodeId, Tables};
use crate::memory::SimMemory;
use crate::plan::{Bounds, Kind, Side};
use crate::sim::{Sim, names};
use kvbaton_actors::events::{Event, EventQueue};
use kvbaton_actors::node::Load;
use kvbaton_actors::runtime;
use kvbaton_actors::transport::{Bootstrap, DataPlane, RankExtension, RankRegistration};
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{EngineId, RequestId, SessionAddress, TransferId};
use kvbaton_core::layout::Layout;
use kvbaton_core::plan::LocalLayout;
use kvbaton_core::wire::LayoutColumns;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long it waits before it tries to register again.
const AGAIN: Duration = Duration::from_millis(300);

/// What a stock rank is made of.
#[derive(Clone)]
pub struct Setup {
    /// The run.
    pub sim: Arc<Sim>,
    /// Who it is.
    pub node: NodeId,
    /// Which release.
    pub kind: Kind,
    /// Its registration as the planner sees it.
    pub local: Arc<LocalLayout>,
    /// Its data plane.
    pub data: Arc<SimData>,
}

impl Setup {
    /// A rank at `home` over this memory, which takes whatever lies inside.
    #[must_use]
    pub fn new(
        sim: Arc<Sim>,
        node: NodeId,
        (kind, home): (Kind, u16),
        memory: SimMemory,
        local: LocalLayout,
    ) -> Self {
        let session = names::session(node.engine, node.rank, home);
        let data = SimData::new(sim.clone(), node, session, memory, Checks::Memory);
        Self { sim, node, kind, local: Arc::new(local), data }
    }

    pub(super) fn bounds(&self) -> &Bounds {
        &self.sim.plan.bounds
    }

    pub(super) fn session(&self) -> SessionAddress {
        self.data.session()
    }

    /// P: how long a pull waits for a prefill. It is as far below `load_ms` as its 480 s are
    /// below our 540 s: by what a write takes and may be held up.
    pub(super) fn patience(&self) -> Duration {
        let Bounds { load_ms, write_ms, quarantine_ms, .. } = *self.bounds();
        Duration::from_millis(load_ms.saturating_sub(write_ms + quarantine_ms).max(500))
    }

    /// D: how long it waits for each answer. Above `load_ms`, which bounds our P's pulls of
    /// a D that does not say, as its 540 s are above our 480 s.
    pub(super) fn load_patience(&self) -> Duration {
        Duration::from_millis(self.bounds().load_ms * 9 / 8)
    }
}

/// The layout as it goes into a pull.
pub(super) fn columns(local: &LocalLayout) -> LayoutColumns {
    let layout = Layout {
        regions: local.regions.clone(),
        rows: local.rows.clone(),
        opaque: local.opaque.clone(),
        storages: local.memory.clone(),
    };
    layout.to_columns()
}

#[derive(Clone)]
enum Half {
    Prefill(Rc<Prefill>),
    Decode(Rc<Decode>),
}

/// A stock rank.
#[derive(Clone)]
pub struct StockNode {
    setup: Setup,
    address: Option<Arc<str>>,
    events: EventQueue,
    half: Half,
}

impl StockNode {
    /// Starts a rank; P's listens.
    pub async fn start(setup: Setup, side: Side, home: u16) -> Self {
        let (sim, node) = (setup.sim.clone(), setup.node);
        let events = EventQueue::default();
        let at = names::control(node.engine, node.rank, home);
        let control = SimControl::new(sim.clone(), node, at);
        let (half, address) = match side {
            Side::Prefill => {
                let prefill = Rc::new(Prefill::new(setup.clone(), events.clone()));
                let address = prefill.listen(&control).await;
                (Half::Prefill(prefill), Some(address.into()))
            }
            Side::Both => panic!("a stock engine plays one side: no plan may say otherwise"),
            Side::Decode => {
                let bootstrap = SimBootstrap::new(sim, node, true);
                let decode = Decode::new(setup.clone(), events.clone(), control, bootstrap);
                (Half::Decode(Rc::new(decode)), None)
            }
        };
        Self { setup, address, events, half }
    }

    /// Registers the memory and, on P, announces the rank, trying until it works: before
    /// that an engine takes no requests.
    pub async fn register(&self, engine_id: &EngineId, bootstrap: &str) {
        while self.setup.data.pin(&self.setup.local.memory).is_err() {
            runtime::sleep(AGAIN).await;
        }
        let Some(address) = &self.address else { return };
        let topology = self.setup.local.topology;
        let client = SimBootstrap::new(self.setup.sim.clone(), self.setup.node, true);
        let rank = RankRegistration {
            engine_id: engine_id.clone(),
            dp_rank: 0,
            tp_rank: topology.tp_rank,
            pp_rank: topology.pp_rank,
            address: address.to_string(),
            extension: RankExtension::default(),
        };
        while client.register(bootstrap, rank.clone()).await.is_err() {
            runtime::sleep(AGAIN).await;
        }
    }

    /// Its session.
    #[must_use]
    pub fn session(&self) -> SessionAddress {
        self.setup.session()
    }

    /// Where it listens, if it does.
    #[must_use]
    pub fn address(&self) -> Option<Arc<str>> {
        self.address.clone()
    }

    /// The events that are next.
    pub async fn events(&self) -> Vec<Event> {
        self.events.next().await
    }

    /// P: a request was taken.
    pub fn started(&self, transfer: &TransferId) {
        if let Half::Prefill(prefill) = &self.half {
            prefill.started(transfer);
        }
    }

    /// P: a request is finished.
    pub fn hold(&self, request: RequestId, transfer: TransferId, blocks: Vec<BlockList>) {
        if let Half::Prefill(prefill) = &self.half {
            prefill.hold(request, transfer, blocks);
        }
    }

    /// P: a request was aborted before it was finished.
    pub fn abort(&self, transfer: &TransferId) {
        if let Half::Prefill(prefill) = &self.half {
            prefill.abort(transfer);
        }
    }

    /// D: starts loads.
    pub fn load(&self, loads: Vec<Load>) {
        if let Half::Decode(decode) = &self.half {
            decode.load(loads);
        }
    }

    /// D: tells P that it needs nothing.
    pub fn release_remote(&self, load: Load) {
        if let Half::Decode(decode) = &self.half {
            decode.release(load);
        }
    }

    /// How full its tables are.
    #[must_use]
    pub fn tables(&self) -> Tables {
        let (node, bound) = (self.setup.node, self.setup.bounds().peer_layouts as u64);
        let [held, pulls, writes, transfers, layouts] = match &self.half {
            Half::Prefill(prefill) => prefill.counts(),
            Half::Decode(_) => [0; 5],
        };
        let [loads, open_pulls] = match &self.half {
            Half::Decode(decode) => decode.counts(),
            Half::Prefill(_) => [0; 2],
        };
        Tables {
            held,
            pulls,
            writes,
            loads,
            open_pulls,
            transfers,
            layouts,
            layouts_bound: bound,
            grants: 0,
            connections: self.setup.sim.open_connections(node),
        }
    }
}
