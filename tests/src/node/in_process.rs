//! A node in the test's own process.

use super::options::NodeOptions;
use crate::PATIENCE;
use crate::memory::KvMemory;
use kvbaton_actors::events::Event;
use kvbaton_actors::node::{Load, Node};
use kvbaton_core::blocks::BlockList;
use kvbaton_core::receiver::LoadEnd;
use kvbaton_core::sender::Ended;
use kvbaton_transport_tcp::TcpTransport;
use std::time::Instant;

/// A node and its registered pool.
pub struct TestNode {
    // Dropped before the memory that it has registered.
    node: Node,
    memory: KvMemory,
    options: NodeOptions,
    unread: Vec<Event>,
}

impl TestNode {
    /// Starts a node and registers its pool.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(options: NodeOptions) -> Self {
        let pool = usize::try_from(options.pool_bytes()).expect("a pool that fits");
        let memory = KvMemory::new(pool);
        let transport = TcpTransport::new(options.transport());
        let node = Node::start(options.config(), transport).expect("the node starts");
        // SAFETY: `memory` stays mapped until after the node was dropped, and is only copied
        // in and out.
        let registered = unsafe { node.register(options.memory(memory.range())) };
        registered.expect("the pool is registered");
        Self { node, memory, options, unread: Vec::new() }
    }

    /// The node itself.
    #[must_use]
    pub const fn node(&self) -> &Node {
        &self.node
    }

    /// How it was started.
    #[must_use]
    pub const fn options(&self) -> &NodeOptions {
        &self.options
    }

    /// Control address of a P.
    ///
    /// # Panics
    /// When it is no P.
    #[must_use]
    pub fn address(&self) -> String {
        self.node.handle().address().expect("a node that sends listens").to_owned()
    }

    /// Address of a block's row of one layer.
    #[must_use]
    pub fn row_address(&self, layer: u32, block: u32) -> u64 {
        self.memory.range().start.0 + self.options.row_offset(layer, block)
    }

    /// A copy of one block, layer after layer.
    #[must_use]
    pub fn block(&self, block: u32) -> Vec<u8> {
        (0..NodeOptions::LAYERS).flat_map(|layer| self.row(layer, block)).collect()
    }

    /// A copy of a block's row of one layer.
    #[must_use]
    pub fn row(&self, layer: u32, block: u32) -> Vec<u8> {
        let row = usize::try_from(self.options.row_bytes()).expect("a row fits");
        self.memory.get(self.offset(layer, block), row)
    }

    /// Overwrites one block, all layers, with one value.
    pub fn fill(&self, block: u32, byte: u8) {
        let row = usize::try_from(self.options.row_bytes()).expect("a row fits");
        for layer in 0..NodeOptions::LAYERS {
            self.memory.fill(self.offset(layer, block), row, byte);
        }
    }

    /// Overwrites one block, all layers, with bytes that differ between blocks, layers and
    /// places in a row.
    pub fn paint(&self, block: u32) {
        for layer in 0..NodeOptions::LAYERS {
            let mark = u64::from(block) * 31 + u64::from(layer) * 7;
            let bytes: Vec<u8> = (0..self.options.row_bytes())
                .map(|at| (at.wrapping_mul(0x9E37_79B9).wrapping_add(at >> 8) + mark) as u8)
                .collect();
            self.memory.put(self.offset(layer, block), &bytes);
        }
    }

    fn offset(&self, layer: u32, block: u32) -> usize {
        usize::try_from(self.options.row_offset(layer, block)).expect("inside the pool")
    }

    /// P: holds blocks for D.
    ///
    /// # Panics
    /// When they are not taken.
    pub fn hold(&self, request: &str, transfer: &str, blocks: impl Into<BlockList>) {
        let held = self.node.hold(request.into(), transfer.into(), vec![blocks.into()], None);
        held.expect("the blocks are held");
    }

    /// D: starts one load.
    ///
    /// # Panics
    /// When it is not taken.
    pub fn load(
        &self,
        request: &str,
        transfer: &str,
        (engine, bootstrap): (&str, &str),
        blocks: impl Into<BlockList>,
    ) {
        let load = Load {
            request: request.into(),
            transfer: transfer.into(),
            engine: engine.into(),
            bootstrap: bootstrap.into(),
            blocks: vec![blocks.into()],
            end_token: None,
        };
        self.node.load(vec![load]).remove(0).expect("the load is taken");
    }

    /// D: waits for the end of a load.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn load_end(&mut self, request: &str) -> LoadEnd {
        self.take(&format!("the load of {request} ends"), |event| match event {
            Event::LoadEnded { request: ended, end, .. } if ended.as_str() == request => {
                Some(end.clone())
            }
            _ => None,
        })
    }

    /// P: waits until a held request's blocks come back.
    ///
    /// # Panics
    /// When they do not in time.
    pub fn send_end(&mut self, request: &str) -> Ended {
        self.take(&format!("the blocks of {request} come back"), |event| match event {
            Event::SendEnded { request: over, ended, .. } if over.as_str() == request => {
                Some(*ended)
            }
            _ => None,
        })
    }

    pub(super) fn take<T>(&mut self, what: &str, pick: impl Fn(&Event) -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.unread.iter().position(|event| pick(event).is_some()) {
                let event = self.unread.remove(at);
                return pick(&event).expect("picked above");
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what}: not within {PATIENCE:?}; seen: {:?}", self.unread);
            self.unread.extend(self.node.wait(left));
        }
    }
}
