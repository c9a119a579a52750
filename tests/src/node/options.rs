//! What a test says of a node, in words that fit on a command line.

use kvbaton_actors::node::registration::Memory;
use kvbaton_actors::node::{NodeConfig, Role};
use kvbaton_core::fingerprint::Fingerprint;
use kvbaton_core::ids::Bytes;
use kvbaton_core::layout::{Layout, Tensor, TensorKind, TensorSpec};
use kvbaton_core::plan::{GroupSpec, Heads, LocalLayout};
use kvbaton_core::region::{GroupKind, MemoryRange};
use kvbaton_core::topology::Topology;
use kvbaton_transport_tcp::TcpConfig;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Which side a node plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// Sends KV.
    Prefill,
    /// Receives KV.
    Decode,
}

/// A node of the model that the captured pulls come from: 4 layers, 4 KV heads of 64 fp32
/// values, blocks of 128 tokens; 262,144 bytes a block and layer without sharding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeOptions {
    /// The engine's id.
    pub engine: String,
    /// Which side it plays.
    pub side: Side,
    /// The bootstrap server to announce to; `None` for nodes that tests reach by address.
    pub bootstrap: Option<String>,
    /// Control port; 0 takes any free one.
    pub control_port: u16,
    /// Data port; 0 takes any free one.
    pub data_port: u16,
    /// Its tensor-parallel rank.
    pub tp_rank: u32,
    /// Ranks of its engine: 1, 2 or 4.
    pub tp_size: u32,
    /// Blocks of its pool.
    pub blocks: u32,
    /// Layouts of peers that it keeps `[L08]`.
    pub peer_layouts: usize,
    /// Bound of a load on D, in milliseconds.
    pub load_timeout_ms: u64,
    /// Bound of a write on P, in milliseconds.
    pub write_timeout_ms: u64,
    /// Bound of a hold on P, in milliseconds.
    pub hold_timeout_ms: u64,
}

impl NodeOptions {
    /// Layers of the model.
    pub const LAYERS: u32 = 4;
    const TOTAL_HEADS: u32 = 4;
    const TOKENS: u64 = 128;
    /// Keys and values of one head.
    const HEAD_VALUES: u64 = 128;
    const VALUE_BYTES: u64 = 4;

    /// An unsharded node with 16 blocks and the usual bounds.
    #[must_use]
    pub fn new(engine: &str, side: Side) -> Self {
        Self {
            engine: engine.into(),
            side,
            bootstrap: None,
            control_port: 0,
            data_port: 0,
            tp_rank: 0,
            tp_size: 1,
            blocks: 16,
            peer_layouts: 1024,
            load_timeout_ms: 60_000,
            write_timeout_ms: 30_000,
            hold_timeout_ms: 60_000,
        }
    }

    /// The same, announced at a bootstrap server.
    #[must_use]
    pub fn at(mut self, bootstrap: &str) -> Self {
        self.bootstrap = Some(bootstrap.into());
        self
    }

    /// Bytes of one block in one layer.
    #[must_use]
    pub fn row_bytes(&self) -> u64 {
        let heads = u64::from(Self::TOTAL_HEADS / self.tp_size);
        heads * Self::TOKENS * Self::HEAD_VALUES * Self::VALUE_BYTES
    }

    /// Bytes of the whole pool.
    #[must_use]
    pub fn pool_bytes(&self) -> u64 {
        u64::from(Self::LAYERS) * u64::from(self.blocks) * self.row_bytes()
    }

    /// Offset of a block's row of one layer in the pool.
    #[must_use]
    pub fn row_offset(&self, layer: u32, block: u32) -> u64 {
        (u64::from(layer) * u64::from(self.blocks) + u64::from(block)) * self.row_bytes()
    }

    pub(super) const fn topology(&self) -> Topology {
        Topology { tp_rank: self.tp_rank, tp_size: self.tp_size, pp_rank: 0, pp_size: 1 }
    }

    pub(super) fn config(&self) -> NodeConfig {
        let role = match self.side {
            Side::Prefill => Role::Prefill,
            Side::Decode => Role::Decode,
        };
        let mut config = NodeConfig::new(self.engine.as_str().into(), role);
        config.topology = self.topology();
        config.bootstrap = self.bootstrap.as_deref().map(Into::into);
        config.peer_layouts = self.peer_layouts;
        config.receiver.load_timeout = Duration::from_millis(self.load_timeout_ms);
        config.sender.write_timeout = Duration::from_millis(self.write_timeout_ms);
        config.sender.hold_timeout = Duration::from_millis(self.hold_timeout_ms);
        config.drain_on_stop = Duration::from_secs(2);
        config
    }

    pub(super) fn transport(&self) -> TcpConfig {
        TcpConfig {
            control_port: self.control_port,
            data_port: self.data_port,
            ..TcpConfig::default()
        }
    }

    /// Describes a pool at `storage`, layer after layer, as vLLM allocates it.
    pub(super) fn memory(&self, storage: MemoryRange) -> Memory {
        let heads = u64::from(Self::TOTAL_HEADS / self.tp_size);
        let head = Self::TOKENS * Self::HEAD_VALUES;
        let tensors: Vec<Tensor> = (0..Self::LAYERS)
            .map(|layer| Tensor {
                layer_name: format!("model.layers.{layer}.self_attn.attn"),
                group: 0,
                storage,
                offset: Bytes(self.row_offset(layer, 0)),
                shape: vec![u64::from(self.blocks), heads, Self::TOKENS, Self::HEAD_VALUES],
                strides: vec![heads * head, head, Self::HEAD_VALUES, 1],
                element_size: Bytes(Self::VALUE_BYTES),
                spec: TensorSpec {
                    kind: TensorKind::Attention,
                    page_size: Bytes(self.row_bytes()),
                },
            })
            .collect();
        let layout =
            Layout::build(&tensors, u64::from(self.blocks), 1).expect("the pool fits its storage");
        let group = GroupSpec {
            kind: GroupKind::Attention,
            heads: Heads::Split(Self::TOTAL_HEADS),
            block_tokens: u32::try_from(Self::TOKENS).expect("128"),
        };
        let mut local = LocalLayout::new(self.topology(), layout, vec![group], 1);
        local.fingerprint = Some(Fingerprint {
            model: "interop".into(),
            dtype: "float32".into(),
            block_size: vec![group.block_tokens],
            total_kv_heads: Self::TOTAL_HEADS,
            groups: vec![group.kind],
        });
        Memory::new(local).expect("the layout is whole")
    }
}
