//! One life of an engine's process: what every engine of ours needs to start its nodes.

use super::door::{Door, Doors};
use super::engine::Input;
use crate::data::{Checks, SimData};
use crate::history::NodeId;
use crate::memory::SimMemory;
use crate::plan::{DataKind, EnginePlan, Side};
use crate::sim::{Sim, names};
use crate::transport::SimTransport;
use futures_channel::mpsc::UnboundedSender;
use kvbaton_actors::engine::EngineHandle;
use kvbaton_actors::lifecycle_manager::RegistrationError;
use kvbaton_actors::node::registration::Memory;
use kvbaton_actors::node::{NodeConfig, NodeHandle, Role, start_actors};
use kvbaton_actors::runtime;
use kvbaton_core::ids::EngineId;
use kvbaton_model_engine::RankPlace;
use std::sync::Arc;
use std::time::Duration;

/// One life of an engine's process. The plan's faults kill and restart it: then everything
/// that it has spawned is gone, and another life begins with the next number.
#[derive(Clone)]
pub struct Process {
    sim: Arc<Sim>,
    doors: Doors,
    engine: u16,
    life: u16,
    home: u16,
    engine_id: EngineId,
    bootstrap: Arc<str>,
}

impl Process {
    /// Begins a life, on the process's simulated node: sets its clock's drift, starts its
    /// bootstrap server if it sends.
    #[must_use]
    pub(super) fn begin(sim: Arc<Sim>, doors: Doors, engine: u16) -> Self {
        let plan = &sim.plan.fleet.engines[usize::from(engine)];
        runtime::drift::set(plan.drift_ppm);
        let (life, home) = doors.begin(engine);
        let engine_id = doors.engine_id(engine);
        let bootstrap = names::bootstrap(engine, home);
        {
            let mut people = sim.people();
            people.lives.insert(engine, life);
            if plan.side.sends() {
                people.directories.insert(bootstrap.clone(), Default::default());
            }
        }
        Self { sim, doors, engine, life, home, engine_id, bootstrap }
    }

    /// The run.
    #[must_use]
    pub const fn sim(&self) -> &Arc<Sim> {
        &self.sim
    }

    /// Its index in the plan's fleet.
    #[must_use]
    pub const fn engine(&self) -> u16 {
        self.engine
    }

    /// What the plan says of it.
    #[must_use]
    pub fn plan(&self) -> &EnginePlan {
        &self.sim.plan.fleet.engines[usize::from(self.engine)]
    }

    /// Its number of restarts at other addresses.
    pub(super) const fn home(&self) -> u16 {
        self.home
    }

    /// Version of the weights that a process runs which opens its door now.
    #[must_use]
    pub fn weights(&self) -> u64 {
        self.doors.weights()
    }

    /// Its engine id: another one in each life, unless the plan moves it.
    #[must_use]
    pub const fn engine_id(&self) -> &EngineId {
        &self.engine_id
    }

    /// The bootstrap server of its engine.
    #[must_use]
    pub const fn bootstrap(&self) -> &Arc<str> {
        &self.bootstrap
    }

    /// A rank's name in the history.
    #[must_use]
    pub const fn node_id(&self, rank: u16) -> NodeId {
        NodeId { engine: self.engine, rank, life: self.life }
    }

    /// A rank's transport over this memory, with the data plane that the plan says.
    #[must_use]
    pub fn transport(&self, rank: u16, memory: SimMemory) -> SimTransport {
        let checks = match self.sim.plan.data {
            DataKind::Grants => Checks::Grants,
            DataKind::Keys => Checks::Keys,
        };
        SimTransport::new(self.sim.clone(), self.node_id(rank), self.home, memory, checks)
    }

    /// A rank's configuration: its place in the engine, and the bounds of the plan, by which
    /// oracles judge.
    ///
    /// # Panics
    /// When the engine has no such rank.
    #[must_use]
    pub fn config(&self, rank: u16) -> NodeConfig {
        let (plan, bounds, ms) = (self.plan(), &self.sim.plan.bounds, Duration::from_millis);
        let role = match plan.side {
            Side::Prefill => Role::Prefill,
            Side::Decode => Role::Decode,
            Side::Both => Role::Both,
        };
        let mut config = NodeConfig::new(self.engine_id.clone(), role);
        let place = RankPlace::all(plan.tp, plan.pp).nth(usize::from(rank));
        config.topology = place.expect("a rank of this engine").into();
        config.bootstrap = plan.side.sends().then(|| self.bootstrap.clone());
        config.announce_every = ms(2_000);
        config.peer_layouts = bounds.peer_layouts;
        let sender = &mut config.sender;
        sender.senders = bounds.senders;
        sender.senders_per_peer = bounds.senders_per_peer;
        sender.hold_timeout = ms(bounds.hold_ms);
        sender.pull_timeout = ms(bounds.load_ms);
        sender.answer_margin = ms(bounds.margin_ms);
        sender.write_timeout = ms(bounds.write_ms);
        sender.max_transfers = bounds.max_transfers;
        sender.max_remembered = bounds.max_remembered;
        let receiver = &mut config.receiver;
        receiver.load_timeout = ms(bounds.load_ms);
        receiver.max_peers = bounds.max_peers;
        receiver.stock_quarantine = ms(bounds.quarantine_ms);
        config
    }

    /// Starts a rank's node over this memory.
    ///
    /// # Panics
    /// When the engine has no such rank.
    pub(super) async fn start_node(
        &self,
        rank: u16,
        memory: SimMemory,
    ) -> (NodeHandle, Arc<SimData>) {
        let transport = self.transport(rank, memory);
        let data = transport.data();
        let handle = start_actors(self.config(rank), Box::new(transport)).await;
        (handle.expect("a plan fits"), data)
    }

    /// From now on others reach this process, through `inbox`.
    pub(super) fn open(&self, inbox: UnboundedSender<Input>) {
        self.open_door(inbox, None);
    }

    /// The same, and operators reach its lifecycle.
    pub(super) fn open_with(&self, inbox: UnboundedSender<Input>, lifecycle: EngineHandle) {
        self.open_door(inbox, Some(lifecycle));
    }

    fn open_door(&self, inbox: UnboundedSender<Input>, lifecycle: Option<EngineHandle>) {
        let (engine_id, bootstrap) = (self.engine_id.clone(), self.bootstrap.clone());
        self.doors.open(self.engine, Door { engine_id, bootstrap, inbox, lifecycle });
    }
}

/// Registers a node's memory, again and again until it works.
pub(super) async fn register(node: NodeHandle, memory: Memory) {
    // SAFETY: simulated addresses name no memory of this process.
    while let Err(error) = unsafe { node.register(memory.clone()) }.await {
        if matches!(error, RegistrationError::State(_)) {
            break; // It is registered; only the announcement failed.
        }
        runtime::sleep(Duration::from_millis(300)).await;
    }
}
