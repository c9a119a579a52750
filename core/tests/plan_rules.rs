//! Planning, rule by rule.

mod two_sides;

use kvbaton_core::fingerprint::Fingerprint;
use kvbaton_core::ids::{Address, Bytes};
use kvbaton_core::incompatible::Incompatible;
use kvbaton_core::layout::{GrantableRows, Layout, LayoutError, Tensor, TensorKind, TensorSpec};
use kvbaton_core::plan::{GroupSpec, Heads, PreparedLayout, TokenEnds};
use kvbaton_core::region::MemoryRange;
use kvbaton_core::wire::LayoutExtension;
use two_sides::*;

fn ends(producer: u32, consumer: u32) -> TokenEnds {
    TokenEnds { producer: Some(producer), consumer: Some(consumer) }
}

/// One layer of `payload` bytes a row on both sides, equal ranks.
fn simple(groups: &[GroupSpec], payload: u64) -> PreparedLayout {
    let rows = |base: u64| {
        let row = |g: usize| Row {
            group: g as i64,
            ..row(g as i64, base + ((g as u64) << 20), payload, payload)
        };
        columns(&(0..groups.len()).map(row).collect::<Vec<_>>())
    };
    let ours = local(tp(0, 1), &rows(P), groups);
    PreparedLayout::prepare(&ours, peer(0, 1), &rows(D)).expect("alike")
}

/// What D's row receives from every P rank that pairs with it: (offset, length), sorted.
fn received(heads: u32, ptp: u32, dtp: u32, drank: u32, head: u64) -> Vec<(u64, u64)> {
    let len = |tp: u32| head * u64::from((heads / tp).max(1));
    let mut out = Vec::new();
    for prank in tp(drank, dtp).paired_tp_ranks(ptp).expect("sizes divide") {
        let ours = local(tp(prank, ptp), &plain(P, 0..1, len(ptp)), &[attention(heads)]);
        let prepared = PreparedLayout::prepare(&ours, peer(drank, dtp), &plain(D, 0..1, len(dtp)))
            .unwrap_or_else(|error| panic!("{heads} heads, {ptp} -> {dtp}: {error}"));
        for copy in plan(&prepared, &[&[0]], &[&[0]], UNKNOWN).expect("plan") {
            assert!(copy.source.0 + copy.len.0 <= P + len(ptp), "F41: past P's row");
            out.push((copy.destination.0 - D, copy.len.0));
        }
    }
    out.sort_unstable();
    out
}

fn covers_once(parts: &[(u64, u64)], len: u64) -> bool {
    let mut at = 0;
    parts.iter().all(|&(offset, len)| offset == std::mem::replace(&mut at, offset + len))
        && at == len
}

#[test]
fn f39_fewer_heads_than_ranks_are_gathered_once_each() {
    for (heads, ptp, dtp) in [(4, 8, 1), (4, 2, 8), (2, 8, 4), (8, 8, 2), (1, 4, 2), (4, 8, 4)] {
        for drank in 0..dtp {
            let parts = received(heads, ptp, dtp, drank, 65_536);
            let len = 65_536 * u64::from((heads / dtp).max(1));
            assert!(covers_once(&parts, len), "{heads} heads {ptp}->{dtp}: {parts:?} of {len}");
        }
    }
}

#[test]
fn f40_lengths_follow_heads_per_rank_not_the_ratio_of_ranks() {
    for (ptp, dtp) in [(8, 16), (2, 4), (4, 8), (16, 8)] {
        let len = 64 * u64::from((8 / dtp).max(1));
        assert!(covers_once(&received(8, ptp, dtp, dtp - 1, 64), len), "{ptp}->{dtp}");
    }
}

#[test]
fn f41_sources_stay_in_the_row_with_two_heads_on_four_ranks() {
    for drank in 0..4 {
        assert_eq!(received(2, 1, 4, drank, 64), [(0, 64)]);
    }
}

#[test]
fn f43_each_group_has_its_own_number_of_heads() {
    // Target: 16 heads, draft: 8 heads; one head a rank on P, so bytes alone do not tell.
    let groups = [attention(16), attention(8)];
    let side = |base: u64, draft: u64, target: u64| {
        columns(&[
            row(0, base, target, target),
            Row { group: 1, ..row(1, base + 4096, draft, draft) },
        ])
    };
    for prank in [0, 1] {
        let ours = local(tp(prank, 16), &side(P, 64, 64), &groups);
        let prepared = PreparedLayout::prepare(&ours, peer(0, 8), &side(D, 64, 128)).expect("fits");
        let copies = plan(&prepared, &[&[0], &[0]], &[&[0], &[0]], UNKNOWN).expect("plan");
        let target = (0, u64::from(prank) * 64, 64);
        let expected = if prank == 0 { vec![target, (4096, 4096, 64)] } else { vec![target] };
        assert_eq!(relative(&copies), expected);
    }
}

#[test]
fn a04_latent_kv_is_sent_by_one_rank_of_the_replicas() {
    let send = |prank| {
        let ours = local(tp(prank, 4), &plain(P, 0..2, 64), &[latent()]);
        PreparedLayout::prepare(&ours, peer(1, 2), &plain(D, 0..2, 64)).expect("fits").sends()
    };
    assert_eq!((send(2), send(3)), (true, false));
    let ours = local(tp(2, 4), &plain(P, 0..1, 64), &[latent()]);
    let error = PreparedLayout::prepare(&ours, peer(1, 2), &plain(D, 0..1, 128));
    assert_eq!(error.expect_err("replicas are equally long").name(), "region_lengths_differ");
}

#[test]
fn f47_state_is_not_cut_by_ranks() {
    let ours = local(tp(0, 1), &plain(P, 0..1, 128), &[state()]);
    let error = PreparedLayout::prepare(&ours, peer(0, 2), &plain(D, 0..1, 64)).expect_err("cut");
    assert_eq!(error.name(), "state_resharding_unsupported");
    assert!(error.to_string().contains("size 1 (prefill) to 2 (decode)"), "{error}");
}

#[test]
fn f48_leading_entries_of_a_state_are_dropped_whole_and_null_never_moves() {
    let prepared = simple(&[attention(1), state()], 10);
    // D's attention ends one block before P's; the state is not cut for it.
    let copies = plan(&prepared, &[&[24, 25], &[0, 17]], &[&[20], &[16]], ends(128, 64));
    assert_eq!(
        relative(&copies.expect("plan")),
        [(240, 200, 10), ((1 << 20) + 170, (1 << 20) + 160, 10)]
    );
    let copies =
        plan(&prepared, &[&[24, 25], &[0, 17]], &[&[20, 21], &[16]], UNKNOWN).expect("plan");
    let state = 1 << 20;
    assert_eq!(relative(&copies), [(240, 200, 20), (state + 170, state + 160, 10)]);
    let copies = plan(&prepared, &[&[24], &[3, 4]], &[&[20], &[0, 0, 9]], UNKNOWN).expect("plan");
    assert_eq!(relative(&copies)[1], (state + 40, state + 90, 10));
}

#[test]
fn f49_an_unknown_group_is_refused_when_layouts_meet() {
    let ours = local(tp(0, 1), &plain(P, 0..1, 64), &[attention(1)]);
    let theirs = columns(&[Row { group: 5, ..row(0, D, 64, 64) }]);
    let error = PreparedLayout::prepare(&ours, peer(0, 1), &theirs).expect_err("unknown");
    assert_eq!(error.name(), "group_unknown");
}

#[test]
fn f51_a05_attention_ids_expand_to_kernel_rows_and_state_ids_do_not() {
    let groups = [attention(1), state()];
    let side = |base| {
        columns(&[row(0, base, 10, 10), Row { group: 1, ..row(1, base + (1 << 20), 10, 10) }])
    };
    let mut ours = local(tp(0, 1), &side(P), &groups);
    ours.kernel_blocks_per_block = 2;
    let prepared = PreparedLayout::prepare(&ours, peer(0, 1), &side(D)).expect("alike");
    let copies = plan(&prepared, &[&[3, 7], &[5]], &[&[1, 4], &[6]], UNKNOWN).expect("plan");
    let state = 1 << 20;
    assert_eq!(relative(&copies), [(60, 20, 20), (140, 80, 20), (state + 50, state + 60, 10)]);
}

fn tensor(page_size: u64, storage: u64) -> Tensor {
    Tensor {
        layer_name: "model.layers.0.attn".to_owned(),
        group: 0,
        storage: MemoryRange { start: Address(P), len: Bytes(storage) },
        offset: Bytes(0),
        shape: vec![24, 2, 4, 8],
        strides: vec![64, 32, 8, 1],
        element_size: Bytes(1),
        spec: TensorSpec { kind: TensorKind::Attention, page_size: Bytes(page_size) },
    }
}

#[test]
fn f52_a_row_longer_than_its_stride_is_refused_on_both_sides() {
    // A logical page of 12 kernel blocks, described as if it were one kernel block.
    let error = Layout::build(&[tensor(768, 1536)], 24, 1).expect_err("overlap");
    assert!(matches!(error, LayoutError::PayloadExceedsStride { payload: 768, stride: 64, .. }));
    let right = Layout::build(&[tensor(768, 1536)], 2, 12).expect("kernel payload");
    assert_eq!(right.regions[0].payload, Bytes(64));
    let ours = local(tp(0, 1), &plain(P, 0..1, 64), &[attention(1)]);
    let theirs = columns(&[row(0, D, 64, 65)]);
    let error = PreparedLayout::prepare(&ours, peer(0, 1), &theirs).expect_err("overlap");
    assert_eq!(error.name(), "layout_malformed");
}

#[test]
fn a_tensor_must_lie_in_its_storage_and_something_must_be_registered() {
    let error = Layout::build(&[tensor(64, 1000)], 24, 1).expect_err("outside");
    assert!(matches!(error, LayoutError::OutsideStorage { needed: 1536, len: 1000, .. }));
    assert_eq!(Layout::build(&[], 24, 1), Err(LayoutError::NothingRegistered));
}

#[test]
fn z01_a_tensor_of_any_number_of_heads_is_refused_before_a_region_is_made() {
    let mut scattered = tensor(64, 2000);
    (scattered.shape, scattered.strides) = (vec![24, 1 << 40, 4, 8], vec![64, 0, 8, 1]);
    let error = Layout::build(&[scattered], 24, 1).expect_err("no end of heads");
    assert!(error.to_string().contains("its 1099511627776 heads"), "{error}");
}

#[test]
fn f53_a06_a_partial_hit_takes_the_tail_by_token_position() {
    let prepared = simple(&[attention(1)], 10);
    let plan = |ours: &[u32], theirs: &[u32], ends| {
        plan(&prepared, &[ours], &[theirs], ends).map(|copies| relative(&copies))
    };
    // D holds all but the last two blocks.
    assert_eq!(plan(&[10, 11, 12, 13], &[5, 6], UNKNOWN), Ok(vec![(120, 50, 20)]));
    // P went one block further than D asks for: by count, D would get the wrong two.
    assert_eq!(plan(&[10, 11, 12, 13], &[5, 6], ends(256, 192)), Ok(vec![(110, 50, 20)]));
    assert_eq!(plan(&[10, 11, 12, 13], &[5, 6], ends(250, 193)), Ok(vec![(120, 50, 20)]));
    // D's prompt has P's first token: 2049 tokens there, 2048 and 32 blocks here.
    let ours: Vec<u32> = (100..132).collect();
    let error = plan(&ours, &[5, 6], ends(2048, 2049)).expect_err("P lacks the last block");
    assert_eq!(error.name(), "producer_has_fewer_blocks");
    // A full hit asks for nothing.
    assert_eq!(plan(&ours[..12], &[], UNKNOWN), Ok(vec![]));
    assert!(plan(&[10], &[5, 6], UNKNOWN).is_err());
}

#[test]
fn f55_a_draft_layer_on_one_side_only_is_refused() {
    let prepare = |p: i64, d: i64| {
        let ours = local(tp(0, 1), &plain(P, 0..p, 64), &[attention(1)]);
        PreparedLayout::prepare(&ours, peer(0, 1), &plain(D, 0..d, 64))
    };
    let error = prepare(78, 79).expect_err("draft on D");
    assert_eq!(error.name(), "layer_missing_on_producer");
    assert!(error.to_string().contains("model.layers.78.attn"), "{error}");
    assert_eq!(prepare(79, 78).expect_err("draft on P").name(), "layer_missing_on_consumer");
}

#[test]
fn f56_every_differing_field_is_named_with_both_values() {
    let mut ours = local(tp(0, 1), &plain(P, 0..1, 64), &[attention(1)]);
    let print = |dtype: &str, model: &str| Fingerprint {
        model: model.to_owned(),
        dtype: dtype.to_owned(),
        ..Fingerprint::default()
    };
    ours.fingerprint = Some(print("bfloat16", "m@a"));
    let mut theirs = plain(D, 0..1, 64);
    assert!(PreparedLayout::prepare(&ours, peer(0, 1), &theirs).is_ok(), "stock peers send none");
    let extension = LayoutExtension { fingerprint: print("fp8_e4m3", "m@b"), ..Default::default() };
    theirs.extension = Some(extension);
    let error = PreparedLayout::prepare(&ours, peer(0, 1), &theirs).expect_err("differs");
    assert_eq!(error.name(), "fingerprint_differs");
    for part in ["m@a", "m@b", "bfloat16", "fp8_e4m3"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a04_padded_or_opaque_rows_are_not_resharded() {
    let prepare = |padded, opaque: bool| {
        let mut ours = local(tp(0, 2), &plain(P, 0..1, 64), &[attention(2)]);
        ours.padded_pages = padded;
        ours.opaque = vec![opaque];
        PreparedLayout::prepare(&ours, peer(0, 1), &plain(D, 0..1, 128))
    };
    for (padded, opaque) in [(true, false), (false, true)] {
        let error = prepare(padded, opaque).expect_err("cannot be cut");
        assert!(matches!(error, Incompatible::HeadReshardingUnsupported { .. }), "{error}");
    }
    assert!(prepare(false, false).is_ok());
}

/// Two groups in one row of 256 bytes, at these offsets.
fn two_in_a_row(base: u64, second: u64) -> kvbaton_core::wire::LayoutColumns {
    columns(&[
        Row { row_offset: 0, ..row(0, base, 256, 128) },
        Row { group: 1, row_offset: second as i64, ..row(1, base + second, 256, 128) },
    ])
}

#[test]
fn a07_padding_moves_only_where_nothing_else_lives() {
    let groups = [latent(), latent()];
    let copies = |second| {
        let ours = local(tp(0, 1), &two_in_a_row(P, second), &groups);
        let prepared = PreparedLayout::prepare(&ours, peer(0, 1), &two_in_a_row(D, second));
        let prepared = prepared.expect("alike");
        relative(&plan(&prepared, &[&[1], &[5]], &[&[2], &[6]], UNKNOWN).expect("plan"))
    };
    // Overlaid groups have exclusive ids, so that a block's whole row is its own.
    assert_eq!(copies(0), [(256, 512, 256), (1280, 1536, 256)]);
    // Side by side, the rest of the row is another block of the other group.
    assert_eq!(copies(128), [(256, 512, 128), (1408, 1664, 128)]);
}

#[test]
fn a07_a_block_may_be_filled_once() {
    let prepared = simple(&[attention(1)], 10);
    let error = plan(&prepared, &[&[1, 2, 3]], &[&[7, 9, 7]], UNKNOWN).expect_err("twice");
    assert_eq!(error.name(), "block_named_twice");
    // Sliding windows repeat the null block; positions stay paired.
    let copies = plan(&prepared, &[&[1, 2, 3]], &[&[0, 0, 8]], UNKNOWN).expect("plan");
    assert_eq!(relative(&copies), [(30, 80, 10)]);
}

#[test]
fn a08_rows_blocks_and_regions_merge_into_the_fewest_copies() {
    let prepared = simple(&[attention(1)], 10);
    // Order does not matter: two halves of one run.
    let copies = plan(&prepared, &[&[5, 6, 3, 4]], &[&[15, 16, 13, 14]], UNKNOWN).expect("plan");
    assert_eq!(relative(&copies), [(30, 130, 40)]);
    // Views of one row, and whole regions that follow each other.
    let views = |base: u64| {
        columns(&[
            Row { row_offset: 0, ..row(0, base, 128, 64) },
            Row { row_offset: 64, ..row(1, base + 64, 128, 64) },
        ])
    };
    let pair = |side: fn(u64) -> kvbaton_core::wire::LayoutColumns| {
        let ours = local(tp(0, 1), &side(P), &[attention(1)]);
        PreparedLayout::prepare(&ours, peer(0, 1), &side(D)).expect("alike")
    };
    let copies = plan(&pair(views), &[&[1, 2]], &[&[3, 4]], UNKNOWN).expect("plan");
    assert_eq!(relative(&copies), [(128, 384, 256)]);
    let stacked = |base: u64| columns(&[row(0, base, 10, 10), row(1, base + 40, 10, 10)]);
    let copies = plan(&pair(stacked), &[&[0, 1, 2, 3]], &[&[0, 1, 2, 3]], UNKNOWN).expect("plan");
    assert_eq!(relative(&copies), [(0, 0, 80)]);
}

#[test]
fn a09_blocks_outside_registered_memory_are_refused_and_nothing_is_planned() {
    let mut ours = local(tp(0, 1), &plain(P, 0..1, 10), &[attention(1)]);
    ours.memory = vec![MemoryRange { start: Address(P), len: Bytes(80) }];
    let mut theirs = plain(D, 0..1, 10);
    let memory = vec![MemoryRange { start: Address(D), len: Bytes(49) }];
    theirs.extension = Some(LayoutExtension { memory, ..LayoutExtension::default() });
    let prepared = PreparedLayout::prepare(&ours, peer(0, 1), &theirs).expect("alike");
    let name = |ours: &[u32], theirs: &[u32]| {
        plan(&prepared, &[ours], &[theirs], UNKNOWN).map_err(|error| error.name())
    };
    assert!(name(&[7], &[3]).is_ok());
    assert_eq!(name(&[8], &[3]), Err("block_out_of_range"));
    assert_eq!(name(&[7], &[4]), Err("block_out_of_range"));
    assert_eq!(name(&[6, 7], &[3, u32::MAX]), Err("block_out_of_range"));
    // Without declared memory, addresses are the limit.
    let mut far = columns(&[row(0, u64::MAX - 100, 10, 10)]);
    far.base_addrs[0] = u64::MAX - 100;
    ours.memory.clear();
    let prepared = PreparedLayout::prepare(&ours, peer(0, 1), &far).expect("alike");
    assert!(plan(&prepared, &[&[1]], &[&[9]], UNKNOWN).is_ok());
    assert!(plan(&prepared, &[&[1]], &[&[10]], UNKNOWN).is_err());
    // A region that lies elsewhere is refused before any request.
    theirs.base_addrs[0] += 4096;
    let error = PreparedLayout::prepare(&ours, peer(0, 1), &theirs).expect_err("outside");
    assert_eq!(error.name(), "layout_malformed");
}

#[test]
fn a09_group_counts_must_be_the_layouts() {
    let prepared = simple(&[attention(1), attention(1)], 10);
    let error = plan(&prepared, &[&[1], &[2]], &[&[1]], UNKNOWN).expect_err("one list");
    assert_eq!(error.name(), "group_count_differs");
    assert_eq!(plan(&prepared, &[&[1], &[2]], &[], UNKNOWN), Ok(vec![]));
}

#[test]
fn g01_grants_are_sorted_merged_and_leave_null_states_out() {
    let groups = [attention(1), state()];
    let side = columns(&[
        row(0, D, 16, 10),
        row(2, D + 1024, 10, 10),
        Row { group: 1, ..row(1, D + 4096, 10, 10) },
    ]);
    let ours = local(tp(0, 1), &side, &groups);
    let mut out = vec![MemoryRange { start: Address(1), len: Bytes(1) }];
    GrantableRows::prepare(&ours).granted_rows(&lists(&[&[3, 4, 2], &[0, 7]]), &mut out);
    let ranges: Vec<_> = out.iter().map(|range| (range.start.0 - D, range.len.0)).collect();
    assert_eq!(ranges, [(32, 10), (48, 10), (64, 10), (1044, 30), (4166, 10)]);
}

#[test]
fn heads_that_do_not_spread_evenly_are_refused() {
    let ours = local(
        tp(0, 4),
        &plain(P, 0..1, 64),
        &[GroupSpec { heads: Heads::Split(6), ..attention(6) }],
    );
    let error = PreparedLayout::prepare(&ours, peer(0, 2), &plain(D, 0..1, 192)).expect_err("6/4");
    assert_eq!(error.name(), "kv_heads_do_not_divide");
}
