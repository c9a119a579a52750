//! KV memory of one rank: pages of its own, which the rank's compute and the node's data
//! plane both reach by address.

use crate::mapping::Mapping;
use crate::transport::AnyTransport;
use anyhow::Result;
use futures_executor::block_on;
use kvbaton_actors::node::registration::Memory;
use kvbaton_actors::node::{Node, NodeConfig};
use kvbaton_core::ids::WeightVersion;

/// A node and the memory that it has registered. The node goes first.
pub struct RankNode {
    node: Node,
    memory: Mapping,
}

impl RankNode {
    /// Starts a node of these weights and registers `local`, which must lie in `memory`.
    ///
    /// # Errors
    /// When the node does not start, or memory or bootstrap server refuse.
    pub fn start(
        config: NodeConfig,
        transport: AnyTransport,
        weights: WeightVersion,
        local: Memory,
        memory: Mapping,
    ) -> Result<Self> {
        let rank = Self { node: Node::start(config, transport)?, memory };
        block_on(rank.node.handle().set_weights(weights));
        // SAFETY: `memory` stays mapped until the node is dropped, since it is a later field,
        // but for times in which the engine's lifecycle has unregistered it;
        // it is reached through raw pointers only, and what a load may write is not relied on.
        unsafe { rank.node.register(local)? };
        Ok(rank)
    }

    /// The node.
    #[must_use]
    pub const fn node(&self) -> &Node {
        &self.node
    }

    /// The memory.
    #[must_use]
    pub const fn memory(&self) -> &Mapping {
        &self.memory
    }

    /// The memory, to write blocks that the engine owns.
    pub const fn memory_mut(&mut self) -> &mut Mapping {
        &mut self.memory
    }
}
