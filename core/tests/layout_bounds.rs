//! A peer's layout, and our own, at each bound and one step beyond it `[Z01, A09]`.

mod two_sides;

use kvbaton_core::ids::{Address, Bytes};
use kvbaton_core::layout::{
    Layout, LayoutError, MAX_GROUPS, MAX_NAME_LEN, MAX_REGIONS, Tensor, TensorKind, TensorSpec,
    regions_from_columns,
};
use kvbaton_core::plan::LocalLayout;
use kvbaton_core::region::{MemoryRange, RegionGroup};
use kvbaton_core::topology::Topology;
use kvbaton_core::wire::{LayoutColumns, LayoutExtension};
use two_sides::*;

fn range(start: u64, len: u64) -> MemoryRange {
    MemoryRange { start: Address(start), len: Bytes(len) }
}

/// Reads one region of 64 bytes a row after `change`.
fn read(change: impl FnOnce(&mut LayoutColumns)) -> Result<(), LayoutError> {
    let mut columns = plain(D, 0..1, 64);
    change(&mut columns);
    regions_from_columns(&columns, &[]).map(drop)
}

fn with_memory(memory: &[MemoryRange]) -> impl FnOnce(&mut LayoutColumns) {
    let extension = LayoutExtension { memory: memory.to_vec(), ..LayoutExtension::default() };
    move |columns| columns.extension = Some(extension)
}

#[test]
fn z01_as_many_regions_names_and_groups_as_allowed_and_no_more() {
    let regions = |count: usize| {
        let columns = plain(D, (0..count).map(|_| 0), 64);
        regions_from_columns(&columns, &[]).map(|regions| regions.len())
    };
    assert_eq!(regions(MAX_REGIONS), Ok(MAX_REGIONS));
    let (len, limit) = (MAX_REGIONS + 1, MAX_REGIONS);
    assert_eq!(regions(len), Err(LayoutError::TooLarge { what: "regions", len, limit }));

    let named = |len: usize| read(|it| it.layer_names[0] = "x".repeat(len));
    assert_eq!(named(MAX_NAME_LEN), Ok(()));
    let (len, limit) = (MAX_NAME_LEN + 1, MAX_NAME_LEN);
    let what = "bytes in a layer name";
    assert_eq!(named(len), Err(LayoutError::TooLarge { what, len, limit }));

    let of_group = |group: i64| read(|it| it.group_indices[0] = group);
    let last = MAX_GROUPS as i64 - 1;
    assert_eq!((of_group(0), of_group(last)), (Ok(()), Ok(())));
    for group in [last + 1, -2, 1 << 32] {
        let (column, value) = ("registered_group_indices", group.to_string());
        let error = LayoutError::ColumnValue { column, region: 0, value };
        assert_eq!(of_group(group), Err(error));
    }
    let shared = |ids: Vec<i64>| read(|it| it.shared_group_ids[0] = ids);
    assert_eq!(shared((0..MAX_GROUPS as i64).collect()), Ok(()));
    assert!(shared(vec![last + 1]).is_err() && shared(vec![-1]).is_err());
    let (len, limit) = (MAX_GROUPS + 1, MAX_GROUPS);
    let error = LayoutError::TooLarge { what: "shared groups", len, limit };
    assert_eq!(shared(vec![0; len]), Err(error));
}

#[test]
fn z01_every_column_has_one_entry_per_region_or_is_left_out() {
    type Cut = fn(&mut LayoutColumns);
    let mandatory: [(&str, Cut); 4] = [
        ("block_lens", |it| it.block_lens.clear()),
        ("kv_block_lens", |it| it.kv_block_lens.clear()),
        ("registered_layer_names", |it| it.layer_names.clear()),
        ("registered_layer_indices", |it| it.layer_indices.clear()),
    ];
    for (column, cut) in mandatory {
        let error = LayoutError::ColumnLength { column, len: 0, expected: 1 };
        assert_eq!(read(cut), Err(error));
    }
    let optional: [(&str, Cut, Cut); 3] = [
        ("registered_group_indices", |it| it.group_indices.clear(), |it| it.group_indices.push(0)),
        (
            "registered_shared_group_ids",
            |it| it.shared_group_ids.clear(),
            |it| it.shared_group_ids.push(vec![]),
        ),
        ("registered_row_offsets", |it| it.row_offsets.clear(), |it| it.row_offsets.push(0)),
    ];
    for (column, cut, grow) in optional {
        assert_eq!(read(cut), Ok(()), "{column}");
        let error = LayoutError::ColumnLength { column, len: 2, expected: 1 };
        assert_eq!(read(grow), Err(error));
    }
}

#[test]
fn a09_row_offsets_strides_and_addresses_at_their_bounds() {
    let offset = |offset| {
        let mut columns = plain(D, 0..1, 64);
        columns.row_offsets[0] = offset;
        regions_from_columns(&columns, &[]).map(|regions| regions[0].row_offset)
    };
    assert_eq!((offset(-1), offset(0), offset(7)), (Ok(None), Ok(Some(0)), Ok(Some(7))));
    let (column, value) = ("registered_row_offsets", "-2".to_owned());
    assert_eq!(offset(-2), Err(LayoutError::ColumnValue { column, region: 0, value }));

    assert!(matches!(
        read(|it| it.kv_block_lens[0] = 65),
        Err(LayoutError::PayloadExceedsStride { payload: 65, stride: 64, .. })
    ));
    assert_eq!(read(|it| it.base_addrs[0] = u64::MAX - 64), Ok(()));
    assert!(read(|it| it.base_addrs[0] = u64::MAX - 63).is_err());
}

#[test]
fn a09_memory_ranges_are_sorted_apart_and_not_empty() {
    let first = range(D, 64);
    for memory in [&[][..], &[first], &[range(0, 8), range(8, 8), first], &[range(D - 8, 72)]] {
        assert_eq!(read(with_memory(memory)), Ok(()), "{memory:?}");
    }
    for (bad, memory) in [
        (1, [first, range(D + 63, 64)]),
        (1, [first, range(D - 100, 8)]),
        (0, [range(D, 0), first]),
        (1, [first, range(D + 64, 0)]),
        (1, [first, range(u64::MAX, 1)]),
    ] {
        assert_eq!(read(with_memory(&memory)), Err(LayoutError::MemoryRange(bad)), "{memory:?}");
    }
    // The first row must lie in one of them.
    for outside in [[range(D, 63), range(D + 63, 1)], [range(D + 1, 64), range(D + 100, 1)]] {
        let error = read(with_memory(&outside)).expect_err("outside");
        assert!(matches!(error, LayoutError::OutsideMemory { base: D, len: 64, .. }), "{error}");
    }
}

#[test]
fn columns_say_what_was_registered() {
    let mut columns = columns(&[Row { row_offset: 8, ..row(3, D, 64, 32) }, row(4, D + 8, 64, 16)]);
    columns.group_indices[1] = -1;
    columns.shared_group_ids[1] = vec![0, 2];
    let regions = regions_from_columns(&columns, &[]).expect("columns");
    assert_eq!(regions[1].group, RegionGroup::Shared([0, 2].as_slice().into()));
    assert_eq!((regions[0].row_offset, regions[1].row_offset), (Some(8), None));
    let layout = Layout { regions, ..Layout::default() };
    assert_eq!(layout.to_columns(), columns);
    assert!(!layout.has_opaque_rows());
}

/// 4 blocks of 2 heads of 2 tokens of 8 bytes, dense.
fn tensor() -> Tensor {
    Tensor {
        layer_name: "model.layers.0.attn".to_owned(),
        group: 0,
        storage: range(P, 128),
        offset: Bytes(0),
        shape: vec![4, 2, 2, 8],
        strides: vec![32, 16, 8, 1],
        element_size: Bytes(1),
        spec: TensorSpec { kind: TensorKind::Attention, page_size: Bytes(32) },
    }
}

fn build(change: impl FnOnce(&mut Tensor)) -> Result<Layout, LayoutError> {
    let mut tensor = tensor();
    change(&mut tensor);
    Layout::build(&[tensor], 4, 1)
}

/// (base, stride, payload, rows) of each region, addresses from the storage's start.
fn shape(layout: &Layout) -> Vec<(u64, u64, u64, u64)> {
    let regions = layout.regions.iter().zip(&layout.rows);
    regions.map(|(it, &rows)| (it.base.0 - P, it.stride.0, it.payload.0, rows)).collect()
}

#[test]
fn a_tensor_that_is_not_what_it_claims_is_refused() {
    assert_eq!(shape(&build(|_| ()).expect("dense")), [(0, 32, 32, 4)]);
    type Break = fn(&mut Tensor);
    let broken: [Break; 12] = [
        |it| it.shape.clear(),
        |it| (it.shape, it.strides) = (vec![], vec![]),
        |it| it.strides.truncate(3),
        |it| it.element_size = Bytes(0),
        |it| it.shape[1] = 0,
        |it| it.storage.len = Bytes(0),
        |it| it.storage = range(u64::MAX - 3, 128),
        |it| it.strides[0] = u64::MAX,
        |it| (it.shape[1], it.strides[1]) = (1 << 63, 0),
        |it| it.element_size = Bytes(u64::MAX),
        |it| (it.shape[1], it.strides[1]) = (1, u64::MAX),
        |it| it.offset = Bytes(u64::MAX),
    ];
    for (index, change) in broken.into_iter().enumerate() {
        let error = build(|tensor| {
            tensor.element_size = Bytes(2);
            change(tensor);
        });
        assert!(matches!(error, Err(LayoutError::Tensor { .. })), "{index}: {error:?}");
    }
    for (change, needed) in [
        ((|it| it.offset = Bytes(1)) as Break, 129),
        (|it| it.storage.len = Bytes(127), 128),
        (|it| it.strides[0] = 33, 131),
        (|it| it.element_size = Bytes(2), 256),
    ] {
        let error = build(change).expect_err("outside");
        assert!(matches!(error, LayoutError::OutsideStorage { needed: n, .. } if n == needed));
    }
}

#[test]
fn a05_rows_are_counted_to_the_end_of_the_storage() {
    // A view from the second block on, of a storage with a part of a row left over.
    let view = |it: &mut Tensor| {
        (it.offset, it.shape[0], it.storage.len) = (Bytes(32), 3, Bytes(130));
    };
    assert_eq!(shape(&build(view).expect("inside")), [(32, 32, 32, 3)]);
    // Scattered heads: one region each, as far apart as the heads.
    let scattered = |it: &mut Tensor| {
        (it.strides, it.spec.kind) = (vec![16, 64, 8, 1], TensorKind::State);
        it.spec.page_size = Bytes(16);
    };
    let layout = build(scattered).expect("heads");
    assert_eq!(shape(&layout), [(0, 16, 16, 4), (64, 16, 16, 4)]);
    // Of two bytes an element, from an offset.
    let wide = |it: &mut Tensor| {
        scattered(it);
        (it.element_size, it.storage, it.offset) = (Bytes(2), range(P, 260), Bytes(4));
    };
    assert_eq!(shape(&build(wide).expect("heads")), [(4, 32, 32, 4), (132, 32, 32, 4)]);
    // Neither blocks nor heads are contiguous.
    let error = build(|it| (it.strides, it.storage.len) = (vec![16, 64, 1, 3], Bytes(999)));
    assert!(matches!(error, Err(LayoutError::Tensor { .. })), "{error:?}");
}

#[test]
fn z01_as_many_heads_as_regions_and_no_more() {
    let heads = |heads: u64| {
        build(|it| {
            (it.shape, it.strides) = (vec![2, heads, 1, 2], vec![2, 4, 2, 1]);
            it.storage.len = Bytes(4 * heads);
        })
        .map(|layout| layout.regions.len())
    };
    assert_eq!(heads(MAX_REGIONS as u64), Ok(MAX_REGIONS));
    assert!(matches!(heads(MAX_REGIONS as u64 + 1), Err(LayoutError::Tensor { .. })));
}

#[test]
fn tensors_of_one_storage_agree_on_its_length() {
    let (first, mut second) = (tensor(), tensor());
    second.layer_name = "model.layers.1.attn".to_owned();
    let both = Layout::build(&[first.clone(), second.clone()], 4, 1).expect("one storage");
    assert_eq!((both.storages.len(), both.regions.len()), (1, 2));
    second.storage.len = Bytes(160);
    let error = Layout::build(&[first.clone(), second.clone()], 4, 1).expect_err("two lengths");
    assert!(error.to_string().contains("160 bytes here and 128"), "{error}");
    second.storage = range(P + 4096, 128);
    let two = Layout::build(&[first, second], 4, 1).expect("two storages");
    assert_eq!(two.storages.len(), 2);
}

/// A flat buffer of `len` bytes, in pages of 32.
fn flat(kind: TensorKind, len: u64) -> Result<Layout, LayoutError> {
    build(|it| {
        (it.shape, it.strides, it.storage.len) = (vec![len], vec![1], Bytes(len));
        it.spec.kind = kind;
    })
}

#[test]
fn a05_a_flat_buffer_is_a_run_of_pages_when_no_whole_page_is_left() {
    for (len, rows) in [(128, 4), (159, 4)] {
        let layout = flat(TensorKind::Attention, len).expect("pages");
        assert_eq!(shape(&layout), [(0, 32, 32, rows)]);
        assert!(layout.has_opaque_rows());
    }
    // Too short, or a page more: rows of one byte, which no page fits.
    for (kind, len) in
        [(TensorKind::Attention, 127), (TensorKind::Attention, 160), (TensorKind::State, 128)]
    {
        let error = flat(kind, len).expect_err("no pages");
        assert!(matches!(error, LayoutError::PayloadExceedsStride { payload: 32, stride: 1, .. }));
    }
    let circular = flat(TensorKind::CircularBuffer, 128).expect("as it is");
    assert_eq!(shape(&circular), [(0, 1, 1, 128)]);
}

#[test]
fn a05_rows_without_room_for_their_page_are_not_counted() {
    // Rows of 40 bytes carry 36, and the last one has 32.
    let layout = build(|it| {
        (it.strides[0], it.storage.len) = (40, Bytes(152));
        it.spec = TensorSpec { kind: TensorKind::State, page_size: Bytes(36) };
    });
    assert_eq!(shape(&layout.expect("rows")), [(0, 40, 36, 3)]);
    // Rows that all lie at one address are none.
    let layout = build(|it| (it.strides[0], it.spec.kind) = (0, TensorKind::CircularBuffer));
    assert_eq!(shape(&layout.expect("one row")), [(0, 0, 0, 0)]);
    // Without a block, a flat buffer has no page.
    let mut empty = tensor();
    (empty.shape, empty.strides, empty.storage.len) = (vec![16], vec![1], Bytes(16));
    assert!(matches!(
        Layout::build(&[empty], 0, 1),
        Err(LayoutError::PayloadExceedsStride { payload: 32, stride: 1, .. })
    ));
    // Of a dimension of one, the stride says nothing.
    let single = |it: &mut Tensor| {
        (it.shape, it.strides) = (vec![4, 4, 8, 1], vec![32, 8, 1, 7]);
        it.spec.kind = TensorKind::State;
    };
    assert_eq!(shape(&build(single).expect("dense")), [(0, 32, 32, 4)]);
}

#[test]
fn a05_pages_divide_into_kernel_blocks_and_are_not_empty() {
    let page = |kind, size, ratio| {
        let mut tensor = tensor();
        tensor.spec = TensorSpec { kind, page_size: Bytes(size) };
        let layout = Layout::build(&[tensor], 4, ratio)?;
        Ok(layout.regions[0].payload.0)
    };
    assert_eq!(page(TensorKind::Attention, 64, 2), Ok(32));
    assert_eq!(page(TensorKind::State, 30, 4), Ok(30));
    assert_eq!(page(TensorKind::CircularBuffer, 0, 4), Ok(32));
    for (kind, page_size, ratio, said) in [
        (TensorKind::Attention, 63, 2, 2),
        (TensorKind::Attention, 0, 2, 2),
        (TensorKind::State, 0, 2, 1),
    ] {
        let layer_name = "model.layers.0.attn".to_owned();
        let error = LayoutError::PageDoesNotDivide { layer_name, page_size, ratio: said };
        assert_eq!(page(kind, page_size, ratio), Err(error));
    }
}

#[test]
fn a_registration_that_cannot_be_is_refused() {
    let good = || {
        let mut it = local(tp(0, 1), &plain(P, 0..2, 64), &[attention(1), state()]);
        (it.rows, it.opaque) = (vec![1, 1], vec![false, false]);
        it
    };
    assert_eq!(good().check(), Ok(()));
    type Break = fn(&mut LocalLayout);
    type Says = fn(&LayoutError) -> bool;
    let topology = |change: fn(&mut Topology)| {
        let mut it = good();
        change(&mut it.topology);
        matches!(it.check(), Err(LayoutError::Topology(_)))
    };
    assert!(topology(|it| it.tp_rank = 1) && topology(|it| it.pp_rank = 1));
    let broken: [(Break, Says); 11] = [
        (|it| it.kernel_blocks_per_block = 0, |it| matches!(it, LayoutError::Topology(_))),
        (|it| it.memory = vec![range(8, 0)], |it| *it == LayoutError::MemoryRange(0)),
        (
            |it| it.rows = vec![1],
            |it| *it == LayoutError::ColumnLength { column: "rows", len: 1, expected: 2 },
        ),
        (
            |it| it.opaque = vec![true; 3],
            |it| *it == LayoutError::ColumnLength { column: "opaque", len: 3, expected: 2 },
        ),
        (
            |it| it.regions[1].payload = Bytes(0),
            |it| matches!(it, LayoutError::PayloadExceedsStride { payload: 0, .. }),
        ),
        (
            |it| it.regions[1].payload = Bytes(65),
            |it| matches!(it, LayoutError::PayloadExceedsStride { payload: 65, .. }),
        ),
        (
            |it| it.regions[1].base = Address(u64::MAX - 63),
            |it| matches!(it, LayoutError::PayloadExceedsStride { .. }),
        ),
        (
            |it| it.regions[1].group = RegionGroup::One(2),
            |it| matches!(it, LayoutError::GroupNotDescribed { group: 2, groups: 2, .. }),
        ),
        (
            |it| it.regions[1].group = RegionGroup::Shared([0, 7].as_slice().into()),
            |it| matches!(it, LayoutError::GroupNotDescribed { group: 7, .. }),
        ),
        (
            |it| it.regions[1].group = RegionGroup::Shared([].as_slice().into()),
            |it| matches!(it, LayoutError::GroupNotDescribed { group: u32::MAX, .. }),
        ),
        (
            |it| it.regions[1].group = RegionGroup::Shared([0, 1].as_slice().into()),
            |it| matches!(it, LayoutError::SharedHeadsDiffer { .. }),
        ),
    ];
    for (index, (change, expected)) in broken.into_iter().enumerate() {
        let mut it = good();
        change(&mut it);
        let error = it.check().expect_err("broken");
        assert!(expected(&error), "{index}: {error:?}");
    }
    let mut shared = good();
    shared.groups = vec![attention(1), attention(1), attention(2)];
    shared.regions[1].group = RegionGroup::Shared([0, 1].as_slice().into());
    assert_eq!(shared.check(), Ok(()));
    shared.regions[1].group = RegionGroup::Shared([0, 2].as_slice().into());
    assert!(matches!(shared.check(), Err(LayoutError::SharedHeadsDiffer { .. })));
    let mut edge = good();
    edge.regions[1].base = Address(u64::MAX - 64);
    assert_eq!(edge.check(), Ok(()));
}
