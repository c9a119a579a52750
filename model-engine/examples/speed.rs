//! How fast one core writes and reads back KV: `cargo run --release -p kvbaton-model-engine --example speed`.

use kvbaton_core::ids::{Address, BlockId, RequestId};
use kvbaton_model_engine::{
    BlockTable, Dense, KvMemory, PrefixChain, Rank, RankPlace, Shape, Step, VecMemory, Weights,
    deepseek146,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() {
    let dense = |head_bytes| {
        Dense { layers: 16, kv_heads: 4, head_bytes, block_size: 128, kernel_blocks_per_block: 1 }
            .shape()
    };
    for (name, shape, tokens) in [
        ("dense, 512 bytes a head and token", dense(512), 4096),
        ("dense, 64 bytes a head and token", dense(64), 16_384),
        ("deepseek146", deepseek146(), 2048),
    ] {
        measure(name, shape, tokens);
    }
}

fn measure(name: &str, shape: Shape, tokens: usize) {
    let mut next = 1;
    let groups = shape.groups.iter().map(|group| {
        let first = group.kept(tokens).start;
        let blocks = (0..group.blocks(tokens)).map(|index| {
            let block = if index < first { 0 } else { next };
            next += u32::from(index >= first);
            BlockId(block)
        });
        blocks.collect()
    });
    let table = BlockTable { groups: groups.collect() };
    let prompt: Vec<u32> = (0..tokens as u32).collect();
    let step = Step {
        request: RequestId::from("speed"),
        from: 0,
        to: tokens,
        prefix: PrefixChain::new(Weights::default(), &prompt).hashes().to_vec(),
        table,
    };
    let rank =
        Rank::new(Arc::new(shape), RankPlace::SINGLE, next, Address(1 << 32)).expect("one rank");
    let range = rank.layout().range();
    let mut memory = VecMemory::new(range.start, range.len.0 as usize);
    let bytes = bytes_of(&rank, &step);
    rank.write(&mut memory, &step);
    let write = best_of(15, || rank.write(&mut memory, &step));
    let read = best_of(15, || {
        std::hint::black_box(rank.read_back(&memory, &step));
    });
    let mut copied = vec![0; range.len.0 as usize];
    let copy = best_of(15, || memory.read(range.start, &mut copied));
    let copy_rate = range.len.0 as f64 / copy.as_secs_f64() / 1e9;
    let rate = |time: Duration| bytes as f64 / time.as_secs_f64() / 1e9;
    println!(
        "{name}: {} MiB, write {:.2} GB/s, read back {:.2} GB/s (memcpy {copy_rate:.2} GB/s)",
        bytes >> 20,
        rate(write),
        rate(read)
    );
}

/// Bytes of the blocks in use.
fn bytes_of(rank: &Rank, step: &Step) -> u64 {
    let used =
        |group: usize| step.table.groups[group].iter().filter(|block| block.0 != 0).count() as u64;
    rank.layout().tensors.iter().map(|tensor| tensor.page_size * used(tensor.group)).sum()
}

fn best_of(times: usize, mut work: impl FnMut()) -> Duration {
    let run = |_| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    (0..times).map(run).min().expect("at least once")
}
