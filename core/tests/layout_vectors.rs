//! The reference's registrations, region by region.

mod vector_files;

use kvbaton_core::ids::{Address, Bytes};
use kvbaton_core::layout::{Layout, Tensor, TensorKind, TensorSpec, regions_from_columns};
use kvbaton_core::region::{MemoryRange, Region, RegionGroup};
use serde::Deserialize;
use vector_files::{Cases, contents};

#[derive(Deserialize)]
struct Case {
    name: String,
    blocks: u64,
    kernel_blocks_per_block: u32,
    storages: Vec<u64>,
    tensors: Vec<CaseTensor>,
    expect: Expect,
}

#[derive(Deserialize)]
struct CaseTensor {
    layer_name: String,
    group: u32,
    storage: usize,
    offset: u64,
    shape: Vec<u64>,
    strides: Vec<u64>,
    element_size: u64,
    spec: CaseSpec,
}

#[derive(Deserialize)]
struct CaseSpec {
    kind: String,
    page_size: u64,
}

#[derive(Deserialize)]
struct Expect {
    regions: Vec<CaseRegion>,
    registered: Vec<usize>,
    opaque_storages: Vec<usize>,
}

#[derive(Deserialize)]
struct CaseRegion {
    layer_name: String,
    layer_index: i64,
    storage: usize,
    offset: u64,
    block_len: u64,
    kv_block_len: u64,
    group: i64,
    shared_groups: Vec<u32>,
    row_offset: i64,
}

/// Storage `index`, at an address of its own.
fn storage(case: &Case, index: usize) -> MemoryRange {
    let start = Address((index as u64 + 1) << 32);
    MemoryRange { start, len: Bytes(case.storages[index]) }
}

fn tensors(case: &Case) -> Vec<Tensor> {
    let tensor = |tensor: &CaseTensor| Tensor {
        layer_name: tensor.layer_name.clone(),
        group: tensor.group,
        storage: storage(case, tensor.storage),
        offset: Bytes(tensor.offset),
        shape: tensor.shape.clone(),
        strides: tensor.strides.clone(),
        element_size: Bytes(tensor.element_size),
        spec: TensorSpec {
            kind: match tensor.spec.kind.as_str() {
                "attention" => TensorKind::Attention,
                "latent" => TensorKind::Latent,
                "state" => TensorKind::State,
                other => panic!("kind {other}"),
            },
            page_size: Bytes(tensor.spec.page_size),
        },
    };
    case.tensors.iter().map(tensor).collect()
}

fn expected(case: &Case) -> Vec<Region> {
    let region = |region: &CaseRegion| Region {
        layer_name: region.layer_name.as_str().into(),
        layer_index: region.layer_index,
        base: Address(storage(case, region.storage).start.0 + region.offset),
        stride: Bytes(region.block_len),
        payload: Bytes(region.kv_block_len),
        group: match u32::try_from(region.group) {
            Ok(group) => RegionGroup::One(group),
            Err(_) => RegionGroup::Shared(region.shared_groups.as_slice().into()),
        },
        shared_groups: region.shared_groups.as_slice().into(),
        row_offset: u64::try_from(region.row_offset).ok(),
    };
    case.expect.regions.iter().map(region).collect()
}

fn check(case: &Case) {
    let name = &case.name;
    let layout = Layout::build(&tensors(case), case.blocks, case.kernel_blocks_per_block)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(layout.regions, expected(case), "{name}");
    let registered: Vec<MemoryRange> =
        case.expect.registered.iter().map(|&index| storage(case, index)).collect();
    assert_eq!(layout.storages, registered, "{name}");
    for (index, region) in layout.regions.iter().enumerate() {
        let opaque = |&storage_index: &usize| {
            let range = storage(case, storage_index);
            range.contains(region.base, Bytes(1)) && layout.opaque[index]
        };
        let is_opaque = case.expect.opaque_storages.iter().any(opaque);
        assert_eq!(layout.opaque[index], is_opaque, "{name}: {}", region.layer_name);
        // Every row that the engine may name lies whole in its storage.
        let rows = layout.rows[index];
        let kernel_rows = case.blocks * u64::from(case.kernel_blocks_per_block);
        assert!(rows == kernel_rows || rows == case.blocks, "{name}: {rows} rows");
        let last = Address(region.base.0 + (rows - 1) * region.stride.0);
        assert!(layout.storages.iter().any(|range| range.contains(last, region.payload)), "{name}");
    }
    let opaque = case.expect.opaque_storages.len();
    assert_eq!(layout.has_opaque_rows(), opaque > 0, "{name}");
    // What a peer reads of it is what was registered.
    let read = regions_from_columns(&layout.to_columns(), &[]).expect("our own columns");
    assert_eq!(read, layout.regions, "{name}");
}

#[test]
fn a05_every_registration_of_the_vectors_is_matched() {
    for text in contents("layouts.json") {
        let cases: Cases<Case> = serde_json::from_str(&text).expect("layouts.json");
        assert!(!cases.cases.is_empty(), "a file without cases");
        cases.cases.iter().for_each(check);
    }
}
