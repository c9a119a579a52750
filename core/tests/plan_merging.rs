//! What is merged, what is not, and in which order copies come `[A07, A08]`.

mod two_sides;

use kvbaton_core::ids::{Address, Bytes};
use kvbaton_core::incompatible::{Incompatible, RequestError};
use kvbaton_core::plan::{
    BlockRequest, GroupSpec, PlanScratch, PlanSummary, PreparedLayout, TokenEnds,
};
use kvbaton_core::region::Copy;
use kvbaton_core::wire::LayoutColumns;
use two_sides::*;

fn prepare(
    (ptp, dtp): (u32, u32),
    ours: &LayoutColumns,
    theirs: &LayoutColumns,
    groups: &[GroupSpec],
) -> Result<PreparedLayout, Incompatible> {
    PreparedLayout::prepare(&local(tp(0, ptp), ours, groups), peer(0, dtp), theirs)
}

/// One rank each side, groups of one head.
fn equal(ours: &[Row], theirs: &[Row]) -> PreparedLayout {
    let groups = vec![attention(1); ours.iter().map(|it| it.group as usize).max().unwrap() + 1];
    prepare((1, 1), &columns(ours), &columns(theirs), &groups).expect("alike")
}

/// Copies of those blocks, the same on both sides, in the order in which they are planned.
fn copies(prepared: &PreparedLayout, blocks: &[&[u32]]) -> Vec<(u64, u64, u64)> {
    relative(&plan(prepared, blocks, blocks, UNKNOWN).expect("plan"))
}

#[test]
fn a08_regions_of_one_row_merge_where_they_lie_alike_on_both_sides() {
    let first = |base| row(0, base, 128, 32);
    let second = |base, stride, payload| row(1, base, stride, payload);
    // Bytes between the two move along, as nothing lives there.
    for (case, ours, theirs, spans) in [
        ("alike", second(P + 64, 128, 32), second(D + 64, 128, 32), 1),
        ("to the row's end", second(P + 96, 128, 32), second(D + 96, 128, 32), 1),
        ("past the row's end", second(P + 96, 128, 33), second(D + 96, 128, 33), 2),
        ("elsewhere in the row", second(P + 64, 128, 32), second(D + 96, 128, 32), 2),
        ("in another row", second(P + 256, 128, 32), second(D + 256, 128, 32), 2),
        ("of longer rows", second(P + 64, 256, 32), second(D + 64, 256, 32), 2),
        ("of longer rows on P", second(P + 64, 256, 32), second(D + 64, 128, 32), 2),
        ("of longer rows on D", second(P + 64, 128, 32), second(D + 64, 256, 32), 2),
        ("one over the other", second(P + 16, 128, 32), second(D + 16, 128, 32), 2),
    ] {
        let prepared = equal(&[first(P), ours], &[first(D), theirs]);
        assert_eq!(prepared.span_count(), spans, "{case}");
        assert_eq!(prepared.group_count(), 1);
    }
    // One that lies before the other, with room between.
    let back = equal(
        &[row(0, P + 64, 128, 32), row(1, P, 128, 32)],
        &[row(0, D + 64, 128, 32), row(1, D, 128, 32)],
    );
    assert_eq!(copies(&back, &[&[1]]), [(128, 128, 32), (192, 192, 32)]);
}

#[test]
fn a07_regions_of_other_groups_or_other_sharers_do_not_merge() {
    let side = |base| columns(&[row(0, base, 128, 32), row(1, base + 64, 128, 32)]);
    let groups = [attention(1), attention(1)];
    let spans = |ours: &LayoutColumns, theirs: &LayoutColumns| {
        prepare((1, 1), ours, theirs, &groups).expect("alike").span_count()
    };
    assert_eq!(spans(&side(P), &side(D)), 1);
    let mut unnamed = side(P);
    unnamed.shared_group_ids[1] = vec![];
    assert_eq!(spans(&unnamed, &side(D)), 2, "P names no sharers of the second");
    unnamed = side(D);
    unnamed.shared_group_ids[1] = vec![];
    assert_eq!(spans(&side(P), &unnamed), 2, "D names no sharers of the second");
    let of_groups = |base| {
        let mut columns = side(base);
        columns.group_indices[1] = 1;
        columns.shared_group_ids = vec![vec![], vec![]];
        columns
    };
    assert_eq!(spans(&of_groups(P), &of_groups(D)), 2, "another group");
}

#[test]
fn a07_what_lives_between_two_regions_of_d_is_not_overwritten() {
    let ours = [row(0, P, 192, 32), row(1, P + 64, 192, 32), row(2, P + 8192, 192, 32)];
    let theirs = [row(0, D, 192, 32), row(2, D + 32, 192, 32), row(1, D + 64, 192, 32)];
    let prepared = equal(&ours, &theirs);
    assert_eq!(copies(&prepared, &[&[0]]), [(0, 0, 32), (8192, 32, 32), (64, 64, 32)]);
}

#[test]
fn a04_padding_moves_only_between_ranks_that_hold_the_same_as_all() {
    let side = |base| columns(&[row(0, base, 128, 32), row(1, base + 64, 128, 32)]);
    let spans = |sizes, groups: &[GroupSpec]| {
        prepare(sizes, &side(P), &side(D), groups).expect("alike").span_count()
    };
    assert_eq!(spans((1, 1), &[state()]), 1);
    assert_eq!(spans((1, 2), &[latent()]), 1);
    assert_eq!(spans((2, 4), &[attention(1)]), 1, "P's ranks are replicas");
    assert_eq!(spans((1, 2), &[attention(1)]), 2, "P has one rank");
}

/// One P rank to the first of two D ranks, of one head: neighbours are merged by address
/// alone, and only where they touch.
#[test]
fn a08_spans_that_touch_on_both_sides_are_one() {
    let first = |base, stride| row(0, base, stride, 32);
    let second = |base, stride| row(1, base, stride, 32);
    for (case, ours, theirs, spans) in [
        ("touch", [(0, 128), (32, 128)], [(0, 128), (32, 128)], 1),
        ("fill the row", [(0, 64), (32, 64)], [(0, 64), (32, 64)], 1),
        ("apart on P", [(0, 128), (33, 128)], [(0, 128), (32, 128)], 2),
        ("apart on D", [(0, 128), (32, 128)], [(0, 128), (33, 128)], 2),
        ("longer rows on P", [(0, 128), (32, 256)], [(0, 128), (32, 128)], 2),
        ("longer rows on D", [(0, 128), (32, 128)], [(0, 128), (32, 256)], 2),
        ("longer than P's row", [(0, 63), (32, 63)], [(0, 128), (32, 128)], 2),
        ("longer than D's row", [(0, 128), (32, 128)], [(0, 63), (32, 63)], 2),
    ] {
        let side = |base: u64, [(a, b), (c, d)]: [(u64, u64); 2]| {
            columns(&[first(base + a, b), second(base + c, d)])
        };
        let prepared = prepare((1, 2), &side(P, ours), &side(D, theirs), &[attention(1)]);
        let prepared = prepared.expect("alike");
        assert_eq!(prepared.span_count(), spans, "{case}");
        let moved: u64 = copies(&prepared, &[&[0]]).iter().map(|copy| copy.2).sum();
        assert_eq!(moved, 64, "{case}");
    }
}

/// Two layers, each by itself, `distance` bytes between the ends of their first rows on D.
fn stacked(base: u64, distance: u64) -> [Row; 2] {
    [row(0, base, 10, 10), row(1, base + 10 + distance, 10, 10)]
}

#[test]
fn a08_copies_of_a_run_of_blocks_come_together_unless_layers_join() {
    let prepared = equal(&stacked(P, 30), &stacked(D, 30));
    let a = |block: u64| (block * 10, block * 10, 10);
    let b = |block: u64| (40 + block * 10, 40 + block * 10, 10);
    // Three rows apart: the first layer's end and the second one's start stay apart.
    assert_eq!(copies(&prepared, &[&[5, 7]]), [a(5), b(5), a(7), b(7)]);
    assert_eq!(copies(&prepared, &[&[2, 0]]), [a(0), b(0), a(2), b(2)]);
    // Four: the first layer's block 3 ends where the second one's block 0 starts.
    assert_eq!(copies(&prepared, &[&[0, 3]]), [a(0), (30, 30, 20), b(3)]);
    // Rows of the two never line up.
    let shifted = equal(&stacked(P, 33), &stacked(D, 33));
    let c = |block: u64| (43 + block * 10, 43 + block * 10, 10);
    assert_eq!(copies(&shifted, &[&[0, 9]]), [a(0), c(0), a(9), c(9)]);
    // Rows of different lengths: where they meet is looked at copy by copy.
    let mixed = |base| [row(0, base, 10, 10), row(1, base + 30, 20, 20)];
    let mixed = equal(&mixed(P), &mixed(D));
    assert_eq!(copies(&mixed, &[&[0, 2]]), [(0, 0, 10), (20, 20, 30), (70, 70, 20)]);
    assert_eq!(
        copies(&mixed, &[&[0, 4]]),
        [(0, 0, 10), (40, 40, 10), (30, 30, 20), (110, 110, 20)]
    );
}

#[test]
fn a08_the_first_copy_of_a_group_joins_the_last_one_before_it() {
    let side = |base| [row(0, base, 10, 10), Row { group: 1, ..row(1, base + 40, 10, 10) }];
    let prepared = equal(&side(P), &side(D));
    assert_eq!(prepared.group_count(), 2);
    assert_eq!(copies(&prepared, &[&[1, 3], &[0, 2]]), [(10, 10, 10), (30, 30, 20), (60, 60, 10)]);
    assert_eq!(copies(&prepared, &[&[2], &[0]]), [(20, 20, 10), (40, 40, 10)]);
    // Blocks that continue those of the group before are its own all the same.
    assert_eq!(copies(&prepared, &[&[3], &[4]]), [(30, 30, 10), (80, 80, 10)]);
    // The same where rows have gaps.
    let padded = |base| [row(0, base, 16, 10), Row { group: 1, ..row(1, base + 26, 16, 10) }];
    let padded = equal(&padded(P), &padded(D));
    assert_eq!(copies(&padded, &[&[0, 1], &[0]]), [(0, 0, 10), (16, 16, 20)]);
    // Met on one side only.
    let apart = |base| [row(0, base, 10, 10), Row { group: 1, ..row(1, base + 50, 10, 10) }];
    let apart = equal(&side(P), &apart(D));
    assert_eq!(copies(&apart, &[&[3], &[0]]), [(30, 30, 10), (40, 50, 10)]);
}

#[test]
fn a08_copies_of_two_requests_stay_apart_and_each_is_summed_up() {
    let side = |base| [row(0, base, 10, 10), Row { group: 1, ..row(1, base + 40, 10, 10) }];
    let gaps = |base| [row(0, base, 16, 10), Row { group: 1, ..row(1, base + 96, 16, 10) }];
    let joining = |base| {
        [
            row(0, base, 10, 10),
            Row { group: 1, ..row(1, base + 40, 10, 10) },
            row(2, base + 10, 10, 10),
        ]
    };
    for prepared in
        [equal(&side(P), &side(D)), equal(&gaps(P), &gaps(D)), equal(&joining(P), &joining(D))]
    {
        let mut scratch = PlanScratch::default();
        let before = Copy { source: Address(P - 5), destination: Address(D - 5), len: Bytes(5) };
        let mut out = vec![before];
        let blocks = lists(&[&[0, 2, 3], &[5]]);
        let request = BlockRequest { local: &blocks, remote: &blocks, ends: TokenEnds::default() };
        let summary = prepared.plan(request, &mut scratch, &mut out).expect("plan");
        assert_eq!(out[0], before, "what was there is left alone");
        let bytes = out[1..].iter().map(|copy| copy.len.0).sum();
        let expected = PlanSummary { blocks: 4, copies: out.len() - 1, bytes: Bytes(bytes) };
        assert_eq!(summary, expected);
        let whole = out.clone();
        // A refused request leaves nothing behind.
        let short = lists(&[&[0], &[5]]);
        let refused = BlockRequest { local: &short, ..request };
        assert!(prepared.plan(refused, &mut scratch, &mut out).is_err());
        assert_eq!(out, whole);
    }
}

#[test]
fn a06_null_blocks_are_no_blocks() {
    let side =
        |base| columns(&[row(0, base, 10, 10), Row { group: 1, ..row(1, base + 4000, 10, 10) }]);
    let prepared = prepare((1, 1), &side(P), &side(D), &[attention(1), state()]).expect("alike");
    let (ours, theirs) = (lists(&[&[4, 5], &[0, 1, 2]]), lists(&[&[8, 9], &[0, 0, 7]]));
    let request = BlockRequest { local: &ours, remote: &theirs, ends: TokenEnds::default() };
    let mut out = Vec::new();
    let summary = prepared.plan(request, &mut PlanScratch::default(), &mut out).expect("plan");
    assert_eq!(summary.blocks, 3);
    assert_eq!(relative(&out), [(40, 80, 20), (4020, 4070, 10)]);
}

#[test]
fn a06_without_tokens_per_block_ends_say_nothing() {
    let unknown = GroupSpec { block_tokens: 0, ..attention(1) };
    let prepared = prepare((1, 1), &plain(P, 0..1, 10), &plain(D, 0..1, 10), &[unknown]);
    let ends = TokenEnds { producer: Some(300), consumer: Some(200) };
    let copies = plan(&prepared.expect("alike"), &[&[1, 2]], &[&[5]], ends).expect("plan");
    assert_eq!(relative(&copies), [(20, 50, 10)]);
}

#[test]
fn a09_a_block_out_of_range_is_named_with_the_rows_there_are() {
    let mut ours = local(tp(0, 1), &plain(P, 0..1, 10), &[attention(1)]);
    ours.rows = vec![8];
    let mut theirs = plain(D, 0..1, 10);
    theirs.extension = Some(kvbaton_core::wire::LayoutExtension {
        memory: vec![kvbaton_core::region::MemoryRange { start: Address(D), len: Bytes(60) }],
        ..Default::default()
    });
    let prepared = PreparedLayout::prepare(&ours, peer(0, 1), &theirs).expect("alike");
    let out_of_range =
        |side, block, rows| RequestError::BlockOutOfRange { group: 0, side, block, rows };
    let plan =
        |ours: &[u32], theirs: &[u32]| plan(&prepared, &[ours], &[theirs], UNKNOWN).map(drop);
    assert_eq!(plan(&[6, 7], &[4, 5]), Ok(()));
    assert_eq!(plan(&[7, 8, 9], &[2, 3, 4]), Err(out_of_range("prefill", 9, 8)));
    assert_eq!(plan(&[3, 4, 5], &[5, 6, 7]), Err(out_of_range("decode", 7, 6)));
}

#[test]
fn f40_payloads_that_are_no_whole_heads_are_refused() {
    let lengths = |ours: u64, theirs: u64| {
        prepare((1, 2), &plain(P, 0..1, ours), &plain(D, 0..1, theirs), &[attention(4)]).map(drop)
    };
    assert_eq!(lengths(64, 32), Ok(()));
    for (ours, theirs) in [(66, 32), (64, 33), (64, 64), (3, 2), (3, 0x1_0000_0000)] {
        let error = lengths(ours, theirs).expect_err("no whole heads");
        assert_eq!(error.name(), "region_lengths_differ", "{ours} to {theirs}");
    }
}
