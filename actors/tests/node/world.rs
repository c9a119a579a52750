//! One prefill and one decode, each with a small memory of its own.

use crate::transport::Network;
use kvbaton_actors::events::Event;
use kvbaton_actors::node::registration::Memory;
use kvbaton_actors::node::{Load, NodeConfig, NodeHandle, Role, start_actors};
use kvbaton_actors::runtime;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{Address, Bytes};
use kvbaton_core::layout::{Layout, Tensor, TensorKind, TensorSpec};
use kvbaton_core::plan::{GroupSpec, Heads, LocalLayout};
use kvbaton_core::region::{GroupKind, MemoryRange};
use kvbaton_core::wire::{Limits, Pull, ToPrefill};
use std::time::Duration;

pub const BLOCKS: u64 = 16;
pub const BLOCK: u64 = 64;
pub const PREFILL_AT: u64 = 0x1_0000;
pub const DECODE_AT: u64 = 0x2_0000;
pub const ENGINE: &str = "prefill-1";
/// Longer than anything takes that is not stuck.
const BOUND: Duration = Duration::from_secs(30);

pub struct World {
    pub network: Network,
    pub prefill: NodeHandle,
    pub decode: NodeHandle,
}

/// One layer of 16 blocks of 64 bytes at `base`.
pub fn memory(base: u64) -> Memory {
    let storage = MemoryRange { start: Address(base), len: Bytes(BLOCKS * BLOCK) };
    let tensor = Tensor {
        layer_name: "model.layers.0.self_attn.attn".into(),
        group: 0,
        storage,
        offset: Bytes(0),
        shape: vec![BLOCKS, 1, 4, 16],
        strides: vec![64, 64, 16, 1],
        element_size: Bytes(1),
        spec: TensorSpec { kind: TensorKind::Attention, page_size: Bytes(BLOCK) },
    };
    let layout = Layout::build(&[tensor], BLOCKS, 1).unwrap();
    let group = GroupSpec { kind: GroupKind::Attention, heads: Heads::Split(1), block_tokens: 4 };
    let topology = NodeConfig::new("any".into(), Role::Both).topology;
    Memory::new(LocalLayout::new(topology, layout, vec![group], 1)).unwrap()
}

/// The prefill's configuration; tests change what they are about.
pub fn prefill_config() -> NodeConfig {
    let mut config = NodeConfig::new(ENGINE.into(), Role::Prefill);
    config.bootstrap = Some("mem://bootstrap".into());
    config
}

pub async fn start(prefill: NodeConfig, decode: NodeConfig) -> World {
    let network = Network::default();
    let prefill = start_actors(prefill, network.factory()).await.unwrap();
    let decode = start_actors(decode, network.factory()).await.unwrap();
    {
        let mut memory = network.memory.lock().unwrap();
        for offset in 0..BLOCKS * BLOCK {
            memory.bytes.insert(PREFILL_AT + offset, (offset / 3) as u8 | 1);
        }
    }
    // SAFETY: the transport's memory is a map; no address is touched.
    unsafe {
        prefill.register(memory(PREFILL_AT)).await.unwrap();
        decode.register(memory(DECODE_AT)).await.unwrap();
    }
    World { network, prefill, decode }
}

pub async fn plain() -> World {
    start(prefill_config(), NodeConfig::new("decode-1".into(), Role::Decode)).await
}

pub fn load(request: &str, transfer: &str, first: u32, blocks: u32) -> Load {
    Load {
        request: request.into(),
        transfer: transfer.into(),
        engine: ENGINE.into(),
        bootstrap: "mem://bootstrap".into(),
        blocks: vec![BlockList::run(first, blocks)],
        end_token: None,
    }
}

impl World {
    pub async fn hold(&self, request: &str, transfer: &str, first: u32, blocks: u32) {
        let list = vec![BlockList::run(first, blocks)];
        self.prefill.hold(request.into(), transfer.into(), list, None).await.unwrap();
    }

    /// Of each pull sent to P so far, whether it carried the layout.
    pub fn layouts_sent(&self) -> Vec<bool> {
        self.pulls().iter().map(|pull| pull.layout.is_some()).collect()
    }

    /// The pulls sent to P so far.
    pub fn pulls(&self) -> Vec<Pull> {
        let sent = self.network.messages(self.prefill.address().unwrap());
        let pull = |bytes: &bytes::Bytes| match ToPrefill::decode(bytes, &Limits::default()) {
            Ok(ToPrefill::Pull(pull)) => pull,
            other => panic!("expected a pull, got {other:?}"),
        };
        sent.iter().map(pull).collect()
    }

    /// Whether D's blocks hold what P's do.
    pub fn moved(&self, source: u32, destination: u32, blocks: u32) -> bool {
        let memory = self.network.memory.lock().unwrap();
        let len = Bytes(u64::from(blocks) * BLOCK);
        memory.read(PREFILL_AT + u64::from(source) * BLOCK, len)
            == memory.read(DECODE_AT + u64::from(destination) * BLOCK, len)
    }
}

/// The next events of a node; fails the test when none comes.
pub async fn next(node: &NodeHandle) -> Vec<Event> {
    runtime::timeout(BOUND, node.events()).await.expect("an event within the bound")
}

/// Waits until `holds`, looking again whenever the network changes; fails the test when it
/// does not within the bound.
pub async fn within_bound(network: &Network, what: &str, holds: impl Fn() -> bool) {
    let changed = network.memory.lock().unwrap().changed.clone();
    let looking = async {
        loop {
            let change = changed.notified();
            if holds() {
                return;
            }
            change.await;
        }
    };
    assert!(runtime::timeout(BOUND, looking).await.is_ok(), "waited in vain for {what}");
}
