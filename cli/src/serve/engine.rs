//! The engine of a stand-alone node, as its lifecycle sees it: it computes nothing; its
//! requests are the loads that it was told of, and its blocks in use are the node's.

use crate::mapping::Mapping;
use anyhow::{Result, bail, ensure};
use futures_util::future::BoxFuture;
use kvbaton_actors::engine::{EnginePort, Told};
use kvbaton_actors::node::NodeHandle;
use kvbaton_actors::runtime;
use kvbaton_core::ids::RequestId;
use kvbaton_core::lifecycle::State;
use kvbaton_core::lifecycle::engine::{EngineOrder, Part, Which};
use kvbaton_model_engine::Gate;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often it is looked whether loads have ended or blocks are back.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The engine.
pub(super) struct ServeEngine {
    node: NodeHandle,
    mapping: Arc<Mapping>,
    requests: Mutex<Requests>,
    /// Held while memory is unmapped or mapped, or registered again by hand.
    memory: tokio::sync::Mutex<()>,
}

struct Requests {
    gate: Gate,
    loads: BTreeSet<RequestId>,
}

impl ServeEngine {
    pub fn new(node: NodeHandle, mapping: Arc<Mapping>) -> Self {
        let requests = Mutex::new(Requests { gate: Gate::Open, loads: BTreeSet::new() });
        Self { node, mapping, requests, memory: tokio::sync::Mutex::default() }
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads are about to start.
    ///
    /// # Errors
    /// While the engine is paused.
    pub fn admit(&self, loads: impl Iterator<Item = RequestId>) -> Result<()> {
        let mut requests = self.requests();
        ensure!(requests.gate == Gate::Open, "the engine is paused: resume it first");
        requests.loads.extend(loads);
        Ok(())
    }

    /// A load has ended, or was not taken.
    pub fn ended(&self, load: &RequestId) {
        self.requests().loads.remove(load);
    }

    /// A request is about to be held.
    ///
    /// # Errors
    /// While the engine stands still: nothing can have been computed.
    pub fn may_hold(&self) -> Result<()> {
        let frozen = self.requests().gate == Gate::Frozen;
        if frozen { bail!("the engine stands still: resume it first") } else { Ok(()) }
    }

    /// Registers memory again, by hand.
    ///
    /// # Errors
    /// While it is asleep, and when the node refuses.
    pub async fn restore(&self) -> Result<()> {
        let _memory = self.memory.lock().await;
        ensure!(self.mapping.is_mapped(), "the KV memory is asleep: POST /wake");
        // SAFETY: it is mapped, and stays so until it is found unregistered, under the lock
        // that is held here, or until the node has been dropped, see `super::run`.
        Ok(unsafe { self.node.restore() }.await?)
    }

    fn set(&self, gate: Gate) {
        self.requests().gate = gate;
    }

    async fn drop_loads(&self, which: &Which) {
        let loads = match which {
            Which::All => std::mem::take(&mut self.requests().loads).into_iter().collect(),
            Which::These(ids) => ids.clone(),
        };
        self.node.drop_loads(loads).await;
    }

    async fn carry_out(&self, order: EngineOrder) -> Result<()> {
        match order {
            EngineOrder::Run => self.set(Gate::Open),
            EngineOrder::Freeze => self.set(Gate::Frozen),
            EngineOrder::Finish => {
                self.set(Gate::Closed);
                while self.node.status().await.is_some_and(|it| it.receiver.loads > 0) {
                    runtime::sleep(LOOK_AGAIN).await;
                }
            }
            EngineOrder::Abort(which) => self.drop_loads(&which).await,
            EngineOrder::Preempt => self.drop_loads(&Which::All).await,
            EngineOrder::AwaitBlocks => {
                while !self.node.in_use().await.is_empty() {
                    runtime::sleep(LOOK_AGAIN).await;
                }
            }
            EngineOrder::ResetCache => {
                let users = self.node.in_use().await;
                ensure!(users.is_empty(), "{}", users.join("; "));
            }
            EngineOrder::Unmap { part: Part::Kv, .. } => {
                let _memory = self.memory.lock().await;
                let stands = self.node.status().await.map(|it| it.registration);
                ensure!(
                    matches!(stands, Some(State::Unregistered)),
                    "memory was registered again meanwhile; ask again"
                );
                self.mapping.unmap()?;
            }
            EngineOrder::Map(Part::Kv) => {
                let _memory = self.memory.lock().await;
                self.mapping.map()?;
            }
            // It has no weights: only their version counts.
            EngineOrder::Unmap { part: Part::Weights, .. }
            | EngineOrder::Map(Part::Weights)
            | EngineOrder::LoadWeights(_) => {}
        }
        Ok(())
    }
}

/// The port: the engine is shared with the HTTP interface.
pub(super) struct ServePort(pub Arc<ServeEngine>);

impl EnginePort for ServePort {
    fn order(&self, order: EngineOrder) -> Told {
        let engine = self.0.clone();
        Box::pin(async move { engine.carry_out(order).await.map_err(|error| format!("{error:#}")) })
    }

    fn in_use(&self) -> BoxFuture<'static, Vec<String>> {
        // The node says what it uses itself.
        Box::pin(async { Vec::new() })
    }
}
