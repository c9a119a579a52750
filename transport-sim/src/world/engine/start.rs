//! Starting an engine's process, and its life.

use super::host::Host;
use super::order::Input;
use super::ports::Port;
use crate::data::{Checks, SimData};
use crate::history::{Lane, NodeId};
use crate::memory::SimMemory;
use crate::plan::{Bounds, DataKind, EnginePlan, Kind, Side};
use crate::sim::{Sim, names};
use crate::sites;
use crate::stock::{Setup, StockNode};
use crate::transport::SimTransport;
use crate::world::door::{Door, Doors};
use crate::world::model;
use futures_channel::mpsc::{UnboundedSender, unbounded};
use futures_util::StreamExt;
use futures_util::future::join_all;
use kvbaton_actors::node::registration::Memory;
use kvbaton_actors::node::{NodeConfig, Role, start_actors};
use kvbaton_actors::runtime;
use kvbaton_core::ids::{Address, EngineId};
use kvbaton_core::plan::LocalLayout;
use kvbaton_model_engine::{
    EngineConfig, ModelEngine, OnLoadFailure, RankLayout, RankPlace, Role as ModelRole,
};
use std::sync::Arc;
use std::time::Duration;

/// Where every rank's memory begins: the same in all processes, so that an address that is
/// taken for another's shows.
const BASE: Address = Address(0x7000_0000);

/// One rank of a process.
pub struct Rank {
    /// Its node.
    pub node: NodeId,
    /// How to speak to it.
    pub port: Port,
    /// Its data plane.
    pub data: Arc<SimData>,
    /// Its layout, for what blocks are in bytes.
    pub local: LocalLayout,
    /// Its memory.
    pub memory: SimMemory,
}

/// Runs an engine's process until it is killed.
pub async fn run(sim: Arc<Sim>, doors: Doors, engine: u16) {
    let plan = sim.plan.fleet.engines[usize::from(engine)].clone();
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
    let shape = model::shape(sim.plan.fleet.model);
    let mut ranks = Vec::new();
    for (index, place) in RankPlace::all(plan.tp, plan.pp).enumerate() {
        let node = NodeId { engine, rank: index as u16, life };
        let layout = RankLayout::new(&shape, place, plan.blocks, BASE).expect("a plan fits");
        let local = layout.register(&shape, place, plan.blocks).expect("a plan fits");
        let memory = SimMemory::new(layout.range());
        let rank = match plan.kind {
            Kind::Ours => {
                let checks = match sim.plan.data {
                    DataKind::Grants => Checks::Grants,
                    DataKind::Keys => Checks::Keys,
                };
                let transport = SimTransport::new(sim.clone(), node, home, memory.clone(), checks);
                let data = transport.data();
                let config = config(&sim.plan.bounds, &plan, &engine_id, place, &bootstrap);
                let handle = start_actors(config, Box::new(transport)).await.expect("a plan fits");
                Rank { node, port: Port::Ours(handle), data, local, memory }
            }
            Kind::Stock33 | Kind::Stock32 => {
                let like = (plan.kind, home);
                let setup = Setup::new(sim.clone(), node, like, memory.clone(), local.clone());
                let data = setup.data.clone();
                let stock = StockNode::start(setup, plan.side, home).await;
                Rank { node, port: Port::Stock(stock), data, local, memory }
            }
        };
        sim.note(Lane::Node(node), rank.port.started_as());
        ranks.push(rank);
    }
    let (inbox, mut inputs) = unbounded();
    register(&ranks, &engine_id, &bootstrap).await;
    // From here to the open door nothing is awaited: whoever updates weights finds the door,
    // or these are the new ones.
    let version = doors.weights();
    let bases = vec![BASE; ranks.len()];
    let mut memories = ranks.iter().map(|rank| rank.memory.clone());
    let config = EngineConfig {
        shape: shape.clone(),
        tp_size: plan.tp,
        pp_size: plan.pp,
        blocks: plan.blocks,
        weights: model::weights(version),
        role: match plan.side {
            Side::Prefill => ModelRole::Prefill,
            Side::Decode => ModelRole::Decode,
            Side::Both => ModelRole::Both,
        },
        on_load_failure: match plan.recompute {
            true => OnLoadFailure::Recompute,
            false => OnLoadFailure::Fail,
        },
        poison: true,
    };
    let model = ModelEngine::new(config, &bases, |_| memories.next().expect("one each"));
    listen(&sim, &ranks, &inbox);
    doors.open(engine, Door { engine_id, bootstrap, inbox: inbox.clone() });
    let mut host = Host::new(sim, engine, ranks, model.expect("a plan fits"), inbox);
    while let Some(input) = inputs.next().await {
        host.take(input).await;
    }
}

/// Registers every rank's memory, again and again until it works. Ours take requests
/// before that; a stock engine starts up only then.
async fn register(ranks: &[Rank], engine_id: &EngineId, bootstrap: &str) {
    let mut stock = Vec::new();
    for rank in ranks {
        let node = match rank.port.clone() {
            Port::Ours(node) => node,
            Port::Stock(node) => {
                stock.push(async move { node.register(engine_id, bootstrap).await });
                continue;
            }
        };
        let memory = Memory::new(rank.local.clone()).expect("a plan fits");
        runtime::spawn_local(async move {
            // SAFETY: simulated addresses name no memory of this process.
            while let Err(error) = unsafe { node.register(memory.clone()) }.await {
                use kvbaton_actors::lifecycle_manager::RegistrationError;
                if matches!(error, RegistrationError::State(_)) {
                    break; // It is registered; only the announcement failed.
                }
                runtime::sleep(Duration::from_millis(300)).await;
            }
        });
    }
    join_all(stock).await;
}

/// Passes the events of every rank on.
fn listen(sim: &Arc<Sim>, ranks: &[Rank], inbox: &UnboundedSender<Input>) {
    for (index, rank) in ranks.iter().enumerate() {
        let (port, inbox, sim) = (rank.port.clone(), inbox.clone(), sim.clone());
        let engine = rank.node.engine;
        runtime::spawn_local(async move {
            loop {
                let events = port.events().await;
                if events.is_empty() {
                    return;
                }
                if sim.fires(sites::EVENTS_LATE, engine) {
                    let late = sim.some_ms("events late", engine, 1, 400);
                    runtime::sleep(Duration::from_nanos(late)).await;
                }
                for event in events {
                    let _ = inbox.unbounded_send(Input::Event(index, event));
                }
            }
        });
    }
}

fn config(
    bounds: &Bounds,
    plan: &EnginePlan,
    engine_id: &EngineId,
    place: RankPlace,
    bootstrap: &Arc<str>,
) -> NodeConfig {
    let ms = Duration::from_millis;
    let role = match plan.side {
        Side::Prefill => Role::Prefill,
        Side::Decode => Role::Decode,
        Side::Both => Role::Both,
    };
    let mut config = NodeConfig::new(engine_id.clone(), role);
    config.topology = place.into();
    config.bootstrap = plan.side.sends().then(|| bootstrap.clone());
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
