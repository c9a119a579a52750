//! P's side of a steady pull once it is decoded: look up, validate, plan.
//!
//! The first case is the one of the repository's figures: 146 regions in 4 groups, one
//! run of 32 blocks each.

#[path = "../tests/vector_files/mod.rs"]
mod vector_files;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{LayoutId, SessionAddress};
use kvbaton_core::peer_layouts::{LayoutTable, Resolution};
use kvbaton_core::plan::{BlockRequest, GroupSpec, Heads, PlanScratch, TokenEnds};
use kvbaton_core::region::{Copy, GroupKind};
use kvbaton_core::topology::Topology;
use kvbaton_core::wire::{LayoutColumns, Pull};
use std::hint::black_box;

/// The columns of the pull of `wire.json` that has 146 regions.
fn columns() -> LayoutColumns {
    let text = &vector_files::contents("wire.json")[0];
    let wire: serde_json::Value = serde_json::from_str(text).expect("wire.json");
    let pulls = wire["pulls"].as_array().expect("pulls");
    let pull = pulls.iter().find(|pull| pull["name"] == "146 regions with layout").expect("pull");
    let fields = &pull["fields"];
    let numbers = |name: &str| fields[name].as_array().expect("array").iter();
    let unsigned = |name| numbers(name).map(|value| value.as_u64().expect("u64")).collect();
    let signed = |name| numbers(name).map(|value| value.as_i64().expect("i64")).collect();
    let list = |value: &serde_json::Value| serde_json::from_value(value.clone()).expect("list");
    LayoutColumns {
        base_addrs: unsigned("kv_caches_base_addr"),
        block_lens: unsigned("block_lens"),
        kv_block_lens: unsigned("kv_block_lens"),
        layer_names: numbers("registered_layer_names")
            .map(|name| name.as_str().expect("name").to_owned())
            .collect(),
        layer_indices: signed("registered_layer_indices"),
        group_indices: signed("registered_group_indices"),
        shared_group_ids: numbers("registered_shared_group_ids").map(list).collect(),
        row_offsets: signed("registered_row_offsets"),
        extension: None,
    }
}

fn table_and_pull(layers: usize) -> (LayoutTable, Pull) {
    let mut columns = columns();
    columns.base_addrs.truncate(layers);
    columns.block_lens.truncate(layers);
    columns.kv_block_lens.truncate(layers);
    columns.layer_names.truncate(layers);
    columns.layer_indices.truncate(layers);
    columns.group_indices.truncate(layers);
    columns.shared_group_ids.truncate(layers);
    columns.row_offsets.truncate(layers);
    let spec = GroupSpec { kind: GroupKind::Attention, heads: Heads::Replicated, block_tokens: 64 };
    let topology = Topology { tp_rank: 1, tp_size: 4, pp_rank: 0, pp_size: 1 };
    let local = vector_files::local_layout(topology, &columns, vec![spec; 4], 1);
    let mut table = LayoutTable::default();
    table.register(local).expect("layout");
    let pull = Pull {
        session: SessionAddress { host: "10.0.0.2".into(), port: 15_234 },
        tp_size: 4,
        tp_rank: 1,
        pp_size: 1,
        layout_id: LayoutId(6_510_536_229_601_001_199),
        layout: Some(columns),
        requests: Vec::new(),
        extension: None,
    };
    (table, pull)
}

/// `runs` runs of two blocks, none of which continues another.
fn scattered(runs: u32, from: u32) -> BlockList {
    (0..runs).flat_map(|run| [from + 3 * run, from + 3 * run + 1]).collect()
}

fn steady(c: &mut Criterion) {
    let mut group = c.benchmark_group("look up, validate, plan");
    let contiguous = (BlockList::run(100, 32), BlockList::run(640, 32));
    let mut cases = vec![("146 regions, 32 blocks".to_owned(), 146, contiguous.clone())];
    cases.push(("73 regions, 32 blocks".to_owned(), 73, contiguous));
    for runs in [1, 8, 64] {
        let lists = (scattered(runs, 100), scattered(runs, 640));
        cases.push((format!("146 regions, {runs} runs"), 146, lists));
    }
    for (name, layers, (ours, theirs)) in cases {
        let (mut table, mut pull) = table_and_pull(layers);
        assert!(matches!(table.resolve(&pull), Resolution::Ready { .. }));
        let with_layout = pull.clone();
        pull.layout = None;
        let (ours, theirs) = (vec![ours; 4], vec![theirs; 4]);
        let mut scratch = PlanScratch::default();
        let mut out: Vec<Copy> = Vec::new();
        for (kind, pull) in [("layout-less", &pull), ("layout", &with_layout)] {
            group.bench_function(BenchmarkId::new(kind, &name), |b| {
                b.iter(|| {
                    out.clear();
                    let resolution = table.resolve(black_box(pull));
                    let Resolution::Ready { layout, echo } = resolution else {
                        panic!("{resolution:?}")
                    };
                    let request = BlockRequest {
                        local: black_box(&ours),
                        remote: black_box(&theirs),
                        ends: TokenEnds::default(),
                    };
                    let summary = layout.plan(request, &mut scratch, &mut out).expect("plan");
                    black_box((&out, summary, echo));
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, steady);
criterion_main!(benches);
