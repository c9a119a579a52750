//! The transport of one simulated node.

use crate::bootstrap::SimBootstrap;
use crate::control::SimControl;
use crate::data::{Checks, SimData};
use crate::history::NodeId;
use crate::memory::SimMemory;
use crate::sim::{Sim, names};
use futures_util::future::LocalBoxFuture;
use kvbaton_actors::transport::{Transport, TransportError, TransportFactory};
use std::rc::Rc;
use std::sync::Arc;

/// Makes the transport of one node's life.
pub struct SimTransport {
    sim: Arc<Sim>,
    node: NodeId,
    home: u16,
    data: Arc<SimData>,
}

impl SimTransport {
    /// A transport at `home` (see [`names`]) over this memory.
    #[must_use]
    pub fn new(sim: Arc<Sim>, node: NodeId, home: u16, memory: SimMemory, checks: Checks) -> Self {
        let session = names::session(node.engine, node.rank, home);
        let data = SimData::new(sim.clone(), node, session, memory, checks);
        Self { sim, node, home, data }
    }

    /// The data plane.
    #[must_use]
    pub fn data(&self) -> Arc<SimData> {
        self.data.clone()
    }
}

impl TransportFactory for SimTransport {
    fn open(self: Box<Self>) -> LocalBoxFuture<'static, Result<Transport, TransportError>> {
        let address = names::control(self.node.engine, self.node.rank, self.home);
        Box::pin(async move {
            Ok(Transport {
                control: Rc::new(SimControl::new(self.sim.clone(), self.node, address)),
                data: self.data.clone(),
                bootstrap: Rc::new(SimBootstrap::new(self.sim, self.node, false)),
            })
        })
    }
}
