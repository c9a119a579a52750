//! Moves the KV of one request from a prefill node to a decode node in this process.
//! An engine does the same with its own memory, each side in a process of its own.

use kvbaton_actors::events::Event;
use kvbaton_actors::node::registration::Memory;
use kvbaton_actors::node::{Load, Node, NodeConfig, Role};
use kvbaton_core::blocks::BlockList;
use kvbaton_core::fingerprint::Fingerprint;
use kvbaton_core::ids::{Address, Bytes};
use kvbaton_core::layout::{Layout, Tensor, TensorKind, TensorSpec};
use kvbaton_core::plan::{GroupSpec, Heads, LocalLayout};
use kvbaton_core::receiver::LoadEnd;
use kvbaton_core::region::{GroupKind, MemoryRange};
use kvbaton_core::topology::Topology;
use kvbaton_transport_tcp::TcpTransport;
use kvbaton_transport_tcp::bootstrap::{BootstrapConfig, BootstrapServer};
use std::time::Duration;

const BLOCKS: u64 = 64;
const BLOCK_BYTES: u64 = 4096;

/// One layer: 64 blocks of 1 head × 16 tokens × 128 two-byte values.
fn memory(kv: &mut [u8], topology: Topology) -> Memory {
    let storage =
        MemoryRange { start: Address(kv.as_mut_ptr() as u64), len: Bytes(kv.len() as u64) };
    let tensor = Tensor {
        layer_name: "model.layers.0.self_attn.attn".into(),
        group: 0,
        storage,
        offset: Bytes(0),
        shape: vec![BLOCKS, 1, 16, 128],
        strides: vec![2048, 2048, 128, 1],
        element_size: Bytes(2),
        spec: TensorSpec { kind: TensorKind::Attention, page_size: Bytes(BLOCK_BYTES) },
    };
    let layout = Layout::build(&[tensor], BLOCKS, 1).expect("the tensor fits its storage");
    let group = GroupSpec { kind: GroupKind::Attention, heads: Heads::Split(1), block_tokens: 16 };
    let mut local = LocalLayout::new(topology, layout, vec![group], 1);
    local.fingerprint = Some(Fingerprint {
        model: "example".into(),
        dtype: "bfloat16".into(),
        block_size: vec![16],
        total_kv_heads: 1,
        groups: vec![GroupKind::Attention],
    });
    Memory::new(local).expect("the layout is whole")
}

fn main() {
    let bootstrap = BootstrapServer::start(BootstrapConfig::default()).expect("a free port");
    let mut prefill_kv: Vec<u8> = (0..BLOCKS * BLOCK_BYTES).map(|i| (i / 7) as u8).collect();
    let mut decode_kv = vec![0u8; (BLOCKS * BLOCK_BYTES) as usize];

    let mut config = NodeConfig::new("prefill-1".into(), Role::Prefill);
    config.bootstrap = Some(bootstrap.url().into());
    let topology = config.topology;
    let prefill = Node::start(config, TcpTransport::default()).expect("prefill starts");
    let config = NodeConfig::new("decode-1".into(), Role::Decode);
    let decode = Node::start(config, TcpTransport::default()).expect("decode starts");
    // SAFETY: both buffers outlive their nodes and are not touched while these may write.
    unsafe {
        prefill.register(memory(&mut prefill_kv, topology)).expect("prefill registers");
        decode.register(memory(&mut decode_kv, topology)).expect("decode registers");
    }

    let held = vec![BlockList::run(3, 8)];
    prefill.hold("p-1".into(), "transfer-1".into(), held, Some(128)).expect("held");
    let load = Load {
        request: "d-1".into(),
        transfer: "transfer-1".into(),
        engine: "prefill-1".into(),
        bootstrap: bootstrap.url().into(),
        blocks: vec![BlockList::run(40, 8)],
        end_token: Some(128),
    };
    decode.load(vec![load]).remove(0).expect("taken");
    let events = decode.wait(Duration::from_secs(10));
    assert!(
        matches!(&events[..], [Event::LoadEnded { end: LoadEnd::Loaded, .. }]),
        "expected one finished load, got {events:?}"
    );
    println!("P gives back: {:?}", prefill.wait(Duration::from_secs(10)));
    drop((prefill, decode));

    let (source, target) = (3 * BLOCK_BYTES as usize, 40 * BLOCK_BYTES as usize);
    let bytes = 8 * BLOCK_BYTES as usize;
    assert_eq!(decode_kv[target..target + bytes], prefill_kv[source..source + bytes]);
    println!("{bytes} bytes moved and compared");
}
