//! Cost of reading and writing a pull, towards stock peers and between our own nodes.

use criterion::{Criterion, criterion_group, criterion_main};
use kvbaton_core::wire::{Limits, Pull, ToPrefill};
use std::hint::black_box;

#[path = "../tests/support/mod.rs"]
mod support;

fn pull(name: &str) -> Pull {
    match ToPrefill::decode(&support::pull_vector(name), &Limits::default()) {
        Ok(ToPrefill::Pull(pull)) => pull,
        other => panic!("the vector {name} is a pull, not {other:?}"),
    }
}

fn ours(name: &str) -> Pull {
    let mut pull = pull(name);
    pull.extension = Some(support::extension());
    for request in &mut pull.requests {
        request.grant = Some(kvbaton_core::ids::Grant(0x0123_4567_89ab_cdef));
        request.end_token = Some(8_190);
    }
    if let Some(layout) = &mut pull.layout {
        layout.extension = Some(support::layout_extension(layout));
    }
    pull
}

fn measure(criterion: &mut Criterion, name: &str, bytes: &[u8]) {
    let limits = Limits::default();
    let mut group = criterion.benchmark_group("decode");
    group.bench_function(format!("{name}, {} bytes", bytes.len()), |bencher| {
        bencher.iter(|| ToPrefill::decode(black_box(bytes), &limits));
    });
    group.finish();
}

fn wire(criterion: &mut Criterion) {
    for (name, vector) in
        [("layout-less", "146 regions layout-less"), ("with layout", "146 regions with layout")]
    {
        let (stock, ours) = (pull(vector), ours(vector));
        let mut bytes = Vec::new();
        stock.encode_stock(&mut bytes);
        measure(criterion, &format!("stock {name}"), &bytes);
        bytes.clear();
        ours.encode_compact(&mut bytes);
        measure(criterion, &format!("compact {name}"), &bytes);

        let mut group = criterion.benchmark_group("encode");
        group.bench_function(format!("stock {name}"), |bencher| {
            bencher.iter(|| {
                bytes.clear();
                black_box(&stock).encode_stock(&mut bytes);
            });
        });
        group.bench_function(format!("compact {name}"), |bencher| {
            bencher.iter(|| {
                bytes.clear();
                black_box(&ours).encode_compact(&mut bytes);
            });
        });
        group.finish();
    }
}

criterion_group!(benches, wire);
criterion_main!(benches);
