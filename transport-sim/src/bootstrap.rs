//! The simulated bootstrap servers: one in each prefill engine's process.

use crate::history::NodeId;
use crate::sim::{Sim, names};
use crate::sites;
use futures_util::future::LocalBoxFuture;
use kvbaton_actors::runtime;
use kvbaton_actors::transport::{
    Bootstrap, Directory, EngineEntry, RankEntry, RankRegistration, TransportError,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often a registration is tried.
const TRIES: u32 = 5;
/// How long one try may take.
const BOUND: Duration = Duration::from_secs(1);

/// A node's client of bootstrap servers.
pub struct SimBootstrap {
    sim: Arc<Sim>,
    node: NodeId,
    /// Whether the node is a stock one: it says nothing of itself.
    stock: bool,
}

impl SimBootstrap {
    /// A client of this node.
    #[must_use]
    pub const fn new(sim: Arc<Sim>, node: NodeId, stock: bool) -> Self {
        Self { sim, node, stock }
    }
}

fn unreachable(url: &str, reason: &str) -> TransportError {
    TransportError::Unreachable { peer: url.into(), reason: reason.into() }
}

/// One exchange with a server: what it takes, and whether it comes to anything.
async fn exchange(sim: &Sim, from: u16, url: &str) -> Result<(), TransportError> {
    let to = names::engine_of(url).ok_or_else(|| unreachable(url, "no such host"))?;
    if sim.fires(sites::BOOTSTRAP_REFUSES, to) {
        return Err(unreachable(url, "503"));
    }
    let slow = sim.fires(sites::BOOTSTRAP_SLOW, to);
    let more = if slow { sim.some_ms("bootstrap", to, 1, 2_000) } else { 0 };
    let there = sim.links().latency(from, to);
    let back = sim.links().latency(to, from);
    runtime::sleep(Duration::from_nanos(there + more + back)).await;
    let cut = sim.links().is_cut(from, to) || sim.links().is_cut(to, from);
    if cut || sim.is_stopped(to) {
        runtime::sleep(BOUND).await;
        return Err(unreachable(url, "no answer within a second"));
    }
    if !sim.people().directories.contains_key(url) {
        return Err(unreachable(url, "connection refused"));
    }
    Ok(())
}

impl Bootstrap for SimBootstrap {
    fn register(
        &self,
        url: &str,
        rank: RankRegistration,
    ) -> LocalBoxFuture<'static, Result<(), TransportError>> {
        let (sim, from, url) = (self.sim.clone(), self.node.engine, url.to_owned());
        let extension = (!self.stock).then(|| rank.extension.clone());
        Box::pin(async move {
            let mut tried = Ok(());
            for _ in 0..TRIES {
                tried = exchange(&sim, from, &url).await;
                if tried.is_ok() {
                    break;
                }
                runtime::sleep(BOUND / 2).await;
            }
            tried?;
            let mut people = sim.people();
            let directory = people.directories.entry(url.as_str().into()).or_default();
            let empty =
                || EngineEntry { engine_id: rank.engine_id.clone(), ranks: BTreeMap::new() };
            let engine = directory.entry(rank.dp_rank).or_insert_with(empty);
            if engine.engine_id != rank.engine_id {
                *engine = empty();
            }
            let entry = RankEntry { address: rank.address, extension };
            engine.ranks.entry(rank.tp_rank).or_default().insert(rank.pp_rank, entry);
            Ok(())
        })
    }

    fn query(&self, url: &str) -> LocalBoxFuture<'static, Result<Directory, TransportError>> {
        let (sim, from, url) = (self.sim.clone(), self.node.engine, url.to_owned());
        Box::pin(async move {
            exchange(&sim, from, &url).await?;
            let people = sim.people();
            people.directories.get(url.as_str()).cloned().ok_or_else(|| unreachable(&url, "gone"))
        })
    }
}
