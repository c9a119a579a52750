//! Pairing of regions and ranks.

mod two_sides;

use kvbaton_core::align::align;
use kvbaton_core::incompatible::Incompatible;
use kvbaton_core::layout::{LayoutError, layer_index, regions_from_columns};
use kvbaton_core::plan::{PeerTopology, PreparedLayout};
use kvbaton_core::region::{Region, RegionGroup};
use kvbaton_core::topology::{Topology, expected_pulls, pull_targets};
use two_sides::*;

fn regions(rows: &[Row]) -> Vec<Region> {
    regions_from_columns(&columns(rows), &[]).expect("columns")
}

fn name(result: Result<impl std::fmt::Debug, Incompatible>) -> &'static str {
    result.expect_err("incompatible").name()
}

#[test]
fn a01_regions_pair_by_name_and_occurrence_never_by_position() {
    let ours = regions(&[row(0, P, 8, 8), row(1, P + 100, 8, 8), row(0, P + 200, 8, 8)]);
    let theirs = regions(&[row(1, D, 8, 8), row(0, D + 100, 8, 8), row(0, D + 200, 8, 8)]);
    let pairs = align(&ours, &theirs, 1, 1).expect("alignment");
    let pairs: Vec<_> = pairs.iter().map(|pair| (pair.local, pair.remote)).collect();
    assert_eq!(pairs, [(0, 1), (1, 0), (2, 2)]);
}

#[test]
fn a01_index_group_and_shared_groups_must_agree() {
    let ours = regions(&[row(0, P, 8, 8)]);
    let mut theirs = regions(&[row(0, D, 8, 8)]);
    theirs[0].layer_index = 7;
    let error = align(&ours, &theirs, 1, 1).expect_err("index");
    assert_eq!(error.name(), "layer_index_differs");
    assert!(error.to_string().contains("index 0 on prefill and 7 on decode"), "{error}");
    theirs[0].layer_index = 0;
    theirs[0].group = RegionGroup::One(1);
    assert_eq!(name(align(&ours, &theirs, 1, 1)), "group_index_differs");
    theirs[0].group = RegionGroup::One(0);
    theirs[0].shared_groups = [0, 1].as_slice().into();
    assert_eq!(name(align(&ours, &theirs, 1, 1)), "shared_groups_differ");
    theirs[0].shared_groups.clear();
    assert!(align(&ours, &theirs, 1, 1).is_ok(), "an old peer names none");
}

#[test]
fn a02_absent_layers_are_skipped_only_when_pp_sizes_differ() {
    let ours = regions(&[row(0, P, 8, 8), row(1, P + 100, 8, 8)]);
    let theirs = regions(&[row(1, D, 8, 8), row(2, D + 100, 8, 8)]);
    assert_eq!(align(&ours, &theirs, 2, 1).expect("one shared layer").len(), 1);
    assert_eq!(name(align(&ours, &theirs, 2, 2)), "layer_missing_on_consumer");
    // F55: a layer that only D has would never be written, and D would never know.
    assert_eq!(name(align(&ours[1..], &theirs, 1, 1)), "layer_missing_on_producer");
    // A layer that both have must be whole, whatever the stages.
    let twice = regions(&[row(1, D, 8, 8), row(1, D + 100, 8, 8)]);
    assert_eq!(name(align(&ours, &twice, 2, 1)), "layer_missing_on_producer");
    assert_eq!(name(align(&twice, &theirs, 2, 1)), "layer_missing_on_consumer");
}

#[test]
fn f45_a_stage_that_shares_no_layer_is_a_no_op_not_an_error() {
    let topology = Topology { pp_size: 2, ..Topology::SINGLE };
    let ours = local(topology, &plain(P, 0..2, 64), &[attention(1)]);
    let prepared = PreparedLayout::prepare(&ours, peer(0, 1), &plain(D, 4..6, 64)).expect("no-op");
    assert!(!prepared.sends());
    assert_eq!(plan(&prepared, &[&[1, 2]], &[&[3, 4]], UNKNOWN), Ok(vec![]));
}

#[test]
fn a03_rows_without_names_are_refused_across_pp_sizes_from_either_side() {
    let hidden = columns(&[Row { row_offset: 0, ..row(0, P, 128, 128) }]);
    let named = |base| columns(&[Row { row_offset: 0, ..row(0, base, 128, 64) }]);
    let theirs = columns(&[Row { row_offset: 0, ..row(0, D, 128, 128) }]);
    let two = PeerTopology { pp_size: 2, ..peer(0, 1) };
    let prepare = |ours, peer, theirs: &_| {
        PreparedLayout::prepare(&local(tp(0, 1), ours, &[attention(1)]), peer, theirs)
    };
    let (named_p, named_d) = (named(P), named(D));
    for (ours, theirs, side) in [(&hidden, &named_d, "prefill"), (&named_p, &theirs, "decode")] {
        let error = prepare(ours, two, theirs).expect_err("opaque");
        assert_eq!(error.name(), "opaque_rows_across_pp_sizes");
        let text = error.to_string();
        assert!(text.contains(side) && text.contains("prefill 1, decode 2"), "{text}");
    }
    assert!(prepare(&hidden, peer(0, 1), &theirs).is_ok());
}

#[test]
fn a04_ranks_pair_alike_from_both_sides() {
    for (a, b) in [(1, 1), (4, 4), (1, 4), (4, 1), (8, 2), (2, 8), (4, 8)] {
        for i in 0..a {
            for j in 0..b {
                let forth = tp(i, a).paired_tp_ranks(b).expect("sizes divide").contains(&j);
                let back = tp(j, b).paired_tp_ranks(a).expect("sizes divide").contains(&i);
                assert_eq!(forth, back, "{i} of {a}, {j} of {b}");
                assert_eq!(tp(i, a).check_paired(j, b).is_ok(), forth);
            }
        }
    }
    assert_eq!(name(tp(0, 3).paired_tp_ranks(2)), "tp_sizes_do_not_divide");
    assert_eq!(name(tp(0, 2).paired_tp_ranks(0)), "tp_sizes_do_not_divide");
    assert_eq!(name(tp(0, 4).check_paired(1, 2)), "ranks_not_paired");
    assert_eq!(name(tp(0, 1).check_paired(5, 4)), "ranks_not_paired");
}

#[test]
fn f44_p_counts_the_pulls_of_every_stage_and_rank() {
    let p = |tp_size, pp_size| Topology { tp_rank: 0, tp_size, pp_rank: 0, pp_size };
    assert_eq!(expected_pulls(p(1, 4), 1, 2), Ok(2));
    assert_eq!(expected_pulls(p(1, 2), 1, 2), Ok(1));
    assert_eq!(expected_pulls(p(2, 1), 8, 2), Ok(8));
    assert_eq!(expected_pulls(p(8, 4), 2, 1), Ok(1));
    // Every pull that P counts is one that a D rank makes.
    for (ptp, ppp, dtp, dpp) in [(1, 4, 1, 2), (2, 1, 4, 2), (4, 2, 2, 2), (2, 2, 4, 1)] {
        let mut made = std::collections::BTreeMap::new();
        for tp_rank in 0..dtp {
            for pp_rank in 0..dpp {
                let d = Topology { tp_rank, tp_size: dtp, pp_rank, pp_size: dpp };
                for target in pull_targets(d, ptp, ppp).expect("sizes divide") {
                    *made.entry(target).or_insert(0) += 1;
                }
            }
        }
        for tp_rank in 0..ptp {
            for pp_rank in 0..ppp {
                let p = Topology { tp_rank, tp_size: ptp, pp_rank, pp_size: ppp };
                assert_eq!(
                    expected_pulls(p, dtp, dpp).ok(),
                    made.get(&(tp_rank, pp_rank)).copied()
                );
            }
        }
    }
}

#[test]
fn z01_columns_of_a_peer_are_bounded_before_they_are_used() {
    let good = plain(D, 0..2, 64);
    let read = |columns: &_| regions_from_columns(columns, &[]);
    let mut short = good.clone();
    short.block_lens.pop();
    assert!(matches!(read(&short), Err(LayoutError::ColumnLength { column: "block_lens", .. })));
    let mut negative = good.clone();
    negative.group_indices[1] = -2;
    assert!(matches!(read(&negative), Err(LayoutError::ColumnValue { region: 1, .. })));
    let mut far = good.clone();
    far.base_addrs[0] = u64::MAX - 3;
    assert!(matches!(read(&far), Err(LayoutError::ColumnValue { .. })));
    let mut empty = good.clone();
    empty.kv_block_lens[0] = 0;
    assert!(matches!(read(&empty), Err(LayoutError::ColumnValue { .. })));
    let mut offset = good;
    offset.row_offsets[0] = i64::MIN;
    assert!(matches!(read(&offset), Err(LayoutError::ColumnValue { .. })));
}

#[test]
fn an_old_peer_gets_our_groups_by_layer_name() {
    let ours = regions(&[Row { group: 3, ..row(0, P, 8, 8) }]);
    let mut old = columns(&[row(0, D, 8, 8), row(9, D + 100, 8, 8)]);
    old.group_indices.clear();
    old.shared_group_ids.clear();
    old.row_offsets.clear();
    let read = regions_from_columns(&old, &ours).expect("old columns");
    assert_eq!(read[0].group, RegionGroup::One(3));
    assert_eq!(read[1].group, RegionGroup::One(0));
    assert!(read.iter().all(|r| r.shared_groups.is_empty() && r.row_offset.is_none()));
}

#[test]
fn a_layer_name_has_exactly_one_index() {
    assert_eq!(layer_index("model.layers.12.self_attn.attn"), Ok(12));
    assert!(layer_index("model.attn").is_err());
    assert!(layer_index("model.1.layers.2").is_err());
}
