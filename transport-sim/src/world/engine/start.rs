//! Starting an engine's process, and its life.

use super::host::Host;
use super::order::Input;
use super::ports::Port;
use super::ranks::ObservedRank;
use crate::data::SimData;
use crate::history::{Lane, What};
use crate::memory::SimMemory;
use crate::plan::{Kind, Side};
use crate::stock::{Setup, StockNode};
use crate::world::model;
use crate::world::process::{self, Process};
use crate::world::witness::Witness;
use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::select;
use kvbaton_actors::engine::{
    Asked, EngineConfig as LifecycleConfig, EngineHandle, RankPort, mailbox,
};
use kvbaton_actors::node::registration::Memory;
use kvbaton_actors::runtime;
use kvbaton_core::ids::{Address, EngineId, WeightVersion};
use kvbaton_model_engine::{
    EngineConfig, ModelEngine, OnLoadFailure, RankLayout, RankPlace, Role as ModelRole,
};
use std::sync::Arc;

/// Where every rank's memory begins: the same in all processes, so that an address that is
/// taken for another's shows.
const BASE: Address = Address(0x7000_0000);

/// One rank of a process.
pub struct Rank {
    /// How to speak to it.
    pub port: Port,
    /// Its data plane.
    pub data: Arc<SimData>,
    /// Who notes what is asked of it; knows its layout.
    pub witness: Witness,
    /// Its memory.
    pub memory: SimMemory,
}

/// Runs an engine's process until it is killed.
pub async fn run(process: Process) {
    let sim = process.sim().clone();
    let plan = process.plan().clone();
    let shape = model::shape(sim.plan.fleet.model);
    let mut ranks = Vec::new();
    for (index, place) in RankPlace::all(plan.tp, plan.pp).enumerate() {
        let index = index as u16;
        let node = process.node_id(index);
        let layout = RankLayout::new(&shape, place, plan.blocks, BASE).expect("a plan fits");
        let local = layout.register(&shape, place, plan.blocks).expect("a plan fits");
        let memory = SimMemory::new(layout.range());
        let (port, data) = match plan.kind {
            Kind::Ours => {
                let (handle, data) = process.start_node(index, memory.clone()).await;
                (Port::Ours(handle), data)
            }
            Kind::Stock33 | Kind::Stock32 => {
                let home = process.home();
                let like = (plan.kind, home);
                let setup = Setup::new(sim.clone(), node, like, memory.clone(), local.clone());
                let data = setup.data.clone();
                (Port::Stock(StockNode::start(setup, plan.side, home).await), data)
            }
        };
        let witness = Witness::new(sim.clone(), node, local);
        sim.note(Lane::Node(node), port.started_as());
        ranks.push(Rank { port, data, witness, memory });
    }
    let (inbox, inputs) = unbounded();
    register(&ranks, process.engine_id(), process.bootstrap()).await;
    // From here to the open door nothing is awaited: whoever updates weights finds the door,
    // or these are the new ones.
    let bases = vec![BASE; ranks.len()];
    let mut memories = ranks.iter().map(|rank| rank.memory.clone());
    let config = EngineConfig {
        shape: shape.clone(),
        tp_size: plan.tp,
        pp_size: plan.pp,
        blocks: plan.blocks,
        weights: model::weights(process.weights()),
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
    listen(&ranks, &inbox);
    let version = WeightVersion(process.weights());
    let (lifecycle, asked) = start_lifecycle(&process, &ranks, version);
    process.open_with(inbox.clone(), lifecycle);
    for rank in &ranks {
        rank.port.set_weights(version).await;
        rank.witness.note(What::WeightsSet { version: version.0 });
    }
    let mut host = Host::new(sim, process.engine(), ranks, model.expect("a plan fits"), inbox);
    let mut inputs = select(inputs, asked.map(Input::Asked));
    while let Some(input) = inputs.next().await {
        host.take(input).await;
    }
}

/// The lifecycle of this process, and what it asks of it.
fn start_lifecycle(
    process: &Process,
    ranks: &[Rank],
    weights: WeightVersion,
) -> (EngineHandle, UnboundedReceiver<Asked>) {
    let (port, asked) = mailbox();
    let bounds = process.sim().plan.bounds.lifecycle();
    let sleep = !process.plan().kind.is_stock();
    let config = LifecycleConfig { bounds, sleep, weights };
    let ranks = ranks.iter().map(|rank| -> Arc<dyn RankPort> {
        Arc::new(ObservedRank::new(&rank.port, rank.witness.clone()))
    });
    let handle = EngineHandle::start(config, Arc::new(port), ranks.collect());
    (handle.expect("a plan fits"), asked)
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
        let memory = Memory::new(rank.witness.local().clone()).expect("a plan fits");
        runtime::spawn_local(process::register(node, memory));
    }
    join_all(stock).await;
}

/// Passes the events of every rank on.
fn listen(ranks: &[Rank], inbox: &UnboundedSender<Input>) {
    for (index, rank) in ranks.iter().enumerate() {
        let (port, inbox, witness) = (rank.port.clone(), inbox.clone(), rank.witness.clone());
        runtime::spawn_local(async move {
            loop {
                let events = port.events().await;
                if events.is_empty() {
                    return;
                }
                witness.dawdle().await;
                for event in events {
                    let _ = inbox.unbounded_send(Input::Event(index, event));
                }
            }
        });
    }
}
