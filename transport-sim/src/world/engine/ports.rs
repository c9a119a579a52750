//! A rank's node, whosever code it runs.

use crate::data::SimData;
use crate::history::{Tables, What};
use crate::stock::StockNode;
use crate::world::witness::Witness;
use kvbaton_actors::events::Event;
use kvbaton_actors::node::{Load, NodeHandle};
use kvbaton_actors::runtime;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{RequestId, TransferId, WeightVersion};
use kvbaton_core::lifecycle::State;
use std::time::Duration;

/// How often registering again is tried.
const TRIES: u32 = 20;

/// A rank's node.
#[derive(Clone)]
pub enum Port {
    /// One of ours.
    Ours(NodeHandle),
    /// A stock peer.
    Stock(StockNode),
}

impl Port {
    /// The first event of its life.
    #[must_use]
    pub fn started_as(&self) -> What {
        match self {
            Self::Ours(node) => started(node),
            Self::Stock(node) => {
                What::Started { stock: true, session: node.session(), address: node.address() }
            }
        }
    }

    /// The events that are next.
    pub async fn events(&self) -> Vec<Event> {
        match self {
            Self::Ours(node) => node.events().await,
            Self::Stock(node) => node.events().await,
        }
    }

    /// P: a request was taken; whether the node has noted it.
    pub async fn started(&self, request: RequestId, transfer: TransferId) -> bool {
        match self {
            // When this is refused, and still would be then, so is the hold, which tells it.
            Self::Ours(node) => node.prefill_started(request, transfer).await.is_ok(),
            Self::Stock(node) => {
                node.started(&transfer);
                true
            }
        }
    }

    /// P: holds a finished request.
    ///
    /// # Errors
    /// The node's words.
    pub async fn hold(
        &self,
        request: RequestId,
        transfer: TransferId,
        blocks: Vec<BlockList>,
        end: u32,
    ) -> Result<(), String> {
        match self {
            Self::Ours(node) => {
                node.hold(request, transfer, blocks, Some(end)).await.map_err(|it| it.to_string())
            }
            Self::Stock(node) => {
                node.hold(request, transfer, blocks);
                Ok(())
            }
        }
    }

    /// P: gives a transfer up: `held` tells whether the node has it.
    pub async fn release(&self, transfer: TransferId, held: bool) {
        match self {
            Self::Ours(node) if held => node.release(transfer).await,
            Self::Ours(node) => node.abort(transfer).await,
            // What is held stays so until it is pulled or expires.
            Self::Stock(_) if held => {}
            Self::Stock(node) => node.abort(&transfer),
        }
    }

    /// P: gives all held ones up.
    pub async fn release_all(&self) {
        match self {
            Self::Ours(node) => node.release_all().await,
            Self::Stock(_) => {}
        }
    }

    /// D: starts loads.
    pub async fn load(&self, loads: Vec<Load>) -> Vec<Result<(), String>> {
        match self {
            Self::Ours(node) => {
                let taken = node.load(loads).await;
                taken.into_iter().map(|it| it.map_err(|error| error.to_string())).collect()
            }
            Self::Stock(node) => {
                let taken = vec![Ok(()); loads.len()];
                node.load(loads);
                taken
            }
        }
    }

    /// D: gives loads up.
    pub async fn drop_loads(&self, requests: Vec<RequestId>) {
        match self {
            Self::Ours(node) => node.drop_loads(requests).await,
            // It has no way to; the load ends when P has answered.
            Self::Stock(_) => {}
        }
    }

    /// D: tells P that it needs nothing.
    pub async fn release_remote(&self, load: Load) {
        match self {
            // Nothing is awaited: P's hold ends by itself when this is refused.
            Self::Ours(node) => drop(node.release_remote(vec![load]).await),
            Self::Stock(node) => node.release_remote(load),
        }
    }

    /// Ends the registration.
    ///
    /// # Errors
    /// The node's words.
    pub async fn unregister(&self, drain: Duration) -> Result<(), String> {
        match self {
            Self::Ours(node) => {
                // Whoever still starts would register behind its back.
                let status = node.status().await;
                if status.is_some_and(|it| it.registration == State::New) {
                    return Err("it has not registered yet".into());
                }
                node.unregister(drain).await.map_err(|error| error.to_string())
            }
            Self::Stock(_) => Err("a stock peer's memory stays registered [S03]".into()),
        }
    }

    /// Registers again, a few times if need be.
    pub async fn restore(&self) {
        let Self::Ours(node) = self else { return };
        for _ in 0..TRIES {
            // SAFETY: simulated addresses name no memory of this process.
            if unsafe { node.restore() }.await.is_ok() {
                return;
            }
            runtime::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Its holds, loads and pulls are of these weights from now on.
    pub async fn set_weights(&self, version: WeightVersion) {
        match self {
            Self::Ours(node) => node.set_weights(version).await,
            Self::Stock(_) => {}
        }
    }

    /// How full the node's tables are; `None` once it is gone.
    pub async fn tables(&self, witness: &Witness, data: &SimData) -> Option<Tables> {
        match self {
            Self::Ours(handle) => witness.tables(handle, data).await,
            Self::Stock(node) => Some(node.tables()),
        }
    }
}

/// The first event of a life of a node of ours.
#[must_use]
pub fn started(node: &NodeHandle) -> What {
    let address = node.address().map(Into::into);
    What::Started { stock: false, session: node.session(), address }
}
