//! What waiting costs: a prefill that holds many requests which nobody pulls.

use super::cpu;
use anyhow::{Result, ensure};
use clap::Args;
use kvbaton_actors::node::registration::Memory;
use kvbaton_actors::node::{Node, NodeConfig, Role};
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{Address, Bytes};
use kvbaton_core::layout::{Layout, Tensor, TensorKind, TensorSpec};
use kvbaton_core::plan::{GroupSpec, Heads, LocalLayout};
use kvbaton_core::region::{GroupKind, MemoryRange};
use kvbaton_transport_tcp::TcpTransport;
use serde_json::json;
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;

/// Processor time of an idle prefill node that holds many requests.
///
/// Nothing is pulled and nothing is stepped: what is measured is the node's own threads.
#[derive(Debug, Args)]
pub struct IdleArgs {
    /// Requests held.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    held: u32,
    /// Seconds to watch.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &IdleArgs) -> Result<()> {
    let blocks = u64::from(args.held) + 1;
    let mut kv = vec![0u8; (blocks * BLOCK) as usize];
    let range = MemoryRange {
        start: Address(kv.as_mut_ptr().expose_provenance() as u64),
        len: Bytes(blocks * BLOCK),
    };
    let config = NodeConfig::new("idle".into(), Role::Prefill);
    let topology = config.topology;
    let node = Node::start(config, TcpTransport::default())?;
    let tensor = Tensor {
        layer_name: "model.layers.0.self_attn.attn".into(),
        group: 0,
        storage: range,
        offset: Bytes(0),
        shape: vec![blocks, 1, 1, BLOCK],
        strides: vec![BLOCK, BLOCK, BLOCK, 1],
        element_size: Bytes(1),
        spec: TensorSpec { kind: TensorKind::Attention, page_size: Bytes(BLOCK) },
    };
    let layout = Layout::build(&[tensor], blocks, 1)?;
    let group = GroupSpec { kind: GroupKind::Attention, heads: Heads::Split(1), block_tokens: 16 };
    // SAFETY: `kv` outlives the node, which is dropped first, and nothing else uses it.
    unsafe { node.register(Memory::new(LocalLayout::new(topology, layout, vec![group], 1))?) }?;
    let begin = Instant::now();
    for index in 0..args.held {
        let (request, transfer) = (format!("p-{index}"), format!("t-{index}"));
        node.hold(request.into(), transfer.into(), vec![BlockList::run(index + 1, 1)], None)?;
    }
    let each = begin.elapsed().as_secs_f64() / f64::from(args.held);
    let (before, begin) = (cpu::seconds(), Instant::now());
    std::thread::sleep(Duration::try_from_secs_f64(args.seconds)?);
    let share = (cpu::seconds() - before) / begin.elapsed().as_secs_f64();
    let held = node.status().map_or(0, |status| status.sender.held);
    ensure!(held == args.held as usize, "{held} of {} requests are still held", args.held);
    drop(node);
    drop(kv);
    if args.json {
        let object = json!({"held": held, "hold_us": each * 1e6, "idle_cpu_share": share});
        println!("{object}");
    } else {
        println!("{held} requests held, {:.1} µs each to hold", each * 1e6);
        println!("idle for {} s: {:.3} % of one core", args.seconds, share * 100.0);
    }
    Ok(())
}
