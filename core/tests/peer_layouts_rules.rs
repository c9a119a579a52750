//! What P keeps of peers.

mod two_sides;

use kvbaton_core::ids::{LayoutId, SessionAddress};
use kvbaton_core::peer_layouts::{LayoutTable, Resolution};
use kvbaton_core::plan::PreparedLayout;
use kvbaton_core::wire::{LayoutExtension, Pull};
use std::num::NonZeroUsize;
use std::sync::Arc;
use two_sides::*;

fn table(capacity: usize) -> LayoutTable {
    let mut table = LayoutTable::new(NonZeroUsize::new(capacity).expect("not 0"), 1 << 20);
    table.register(local(tp(0, 1), &plain(P, 0..2, 64), &[attention(1)])).expect("layout");
    table
}

fn pull(port: u16, id: u64, layout: bool) -> Pull {
    Pull {
        session: SessionAddress { host: "10.0.0.2".into(), port },
        tp_size: 1,
        tp_rank: 0,
        pp_size: 1,
        layout_id: LayoutId(id),
        layout: layout.then(|| plain(D, 0..2, 64)),
        requests: Vec::new(),
        extension: None,
    }
}

fn ready(resolution: Resolution) -> (Arc<PreparedLayout>, LayoutId) {
    match resolution {
        Resolution::Ready { layout, echo } => (layout, echo),
        other => panic!("{other:?}"),
    }
}

#[test]
fn l02_a_layout_is_stored_on_a_fresh_alignment_and_on_a_prepared_hit() {
    let mut table = table(8);
    let (first, _) = ready(table.resolve(&pull(1, 11, true)));
    // A new id with the same content, also with new keys, finds what was worked out.
    let mut renewed = pull(1, 13, true);
    renewed.layout.as_mut().expect("layout").extension = None;
    let (second, _) = ready(table.resolve(&renewed));
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(table.len(), (2, 1));
    for id in [11, 13] {
        let (found, _) = ready(table.resolve(&pull(1, id, false)));
        assert!(Arc::ptr_eq(&first, &found));
    }
    let keys = |keys: &[u8]| {
        let mut pull = pull(1, 15, true);
        let extension = LayoutExtension { keys: keys.to_vec(), ..LayoutExtension::default() };
        pull.layout.as_mut().expect("layout").extension = Some(extension);
        pull
    };
    let (a, _) = ready(table.resolve(&keys(&[1])));
    let (b, _) = ready(table.resolve(&keys(&[2])));
    assert!(Arc::ptr_eq(&a, &b));
}

#[test]
fn l02_content_that_differs_in_any_column_is_prepared_anew() {
    let mut table = table(8);
    ready(table.resolve(&pull(1, 11, true)));
    let mut other = pull(1, 13, true);
    other.layout.as_mut().expect("layout").block_lens[1] = 80;
    ready(table.resolve(&other));
    let mut rank = pull(1, 15, true);
    rank.layout.as_mut().expect("layout").row_offsets[0] = 0;
    ready(table.resolve(&rank));
    assert_eq!(table.len(), (3, 3));
}

#[test]
fn l02_l03_nothing_is_stored_or_echoed_without_an_id_or_after_a_failure() {
    let mut table = table(8);
    let (_, echo) = ready(table.resolve(&pull(1, 0, true)));
    assert_eq!(echo, LayoutId::NONE);
    assert_eq!(table.len().0, 0);
    let mut bad = pull(1, 11, true);
    bad.layout.as_mut().expect("layout").layer_indices[0] = 9;
    assert!(matches!(table.resolve(&bad), Resolution::Incompatible(_)));
    assert_eq!(table.len(), (0, 1));
    assert_eq!(table.resolve(&pull(1, 11, false)), Resolution::Miss);
}

#[test]
fn l03_the_echo_is_the_pulls_id_once_it_is_held() {
    let mut table = table(8);
    assert_eq!(ready(table.resolve(&pull(1, 11, true))).1, LayoutId(11));
    assert_eq!(ready(table.resolve(&pull(1, 11, false))).1, LayoutId(11));
}

#[test]
fn l05_l06_only_an_id_without_a_layout_can_miss() {
    let mut table = table(8);
    assert_eq!(table.resolve(&pull(1, 11, false)), Resolution::Miss);
    let neither = table.resolve(&pull(1, 0, false));
    assert!(matches!(&neither, Resolution::Incompatible(why) if why.name() == "layout_missing"));
    let mut asleep = LayoutTable::default();
    let refused = asleep.resolve(&pull(1, 11, true));
    assert!(
        matches!(&refused, Resolution::Incompatible(why) if why.name() == "nothing_registered")
    );
}

#[test]
fn l08_eviction_costs_one_miss_and_one_resend_and_memory_stays_flat() {
    let mut table = table(4);
    for id in [1, 3, 5, 7] {
        ready(table.resolve(&pull(1, id, true)));
    }
    ready(table.resolve(&pull(1, 1, false)));
    ready(table.resolve(&pull(1, 9, true)));
    assert_eq!(table.resolve(&pull(1, 3, false)), Resolution::Miss, "least recently used");
    ready(table.resolve(&pull(1, 1, false)));
    ready(table.resolve(&pull(1, 3, true)));
    ready(table.resolve(&pull(1, 3, false)));
    for peer in 0..1000u16 {
        for round in 0..10u64 {
            let mut pull = pull(peer, u64::from(peer) * 100 + round * 2 + 1, true);
            pull.layout.as_mut().expect("layout").base_addrs[0] += u64::from(peer) * 64;
            ready(table.resolve(&pull));
            assert!(table.len().0 <= 4 && table.len().1 <= 4);
        }
    }
}

#[test]
fn l08_bytes_of_layouts_are_bounded_too() {
    let capacity = NonZeroUsize::new(100).expect("not 0");
    let mut table = LayoutTable::new(capacity, 2000);
    table.register(local(tp(0, 1), &plain(P, 0..2, 64), &[attention(1)])).expect("layout");
    for step in 0..50u64 {
        let mut pull = pull(1, 2 * step + 1, true);
        pull.layout.as_mut().expect("layout").base_addrs[0] += step * 64;
        ready(table.resolve(&pull));
    }
    assert!((1..=8).contains(&table.len().1), "{:?}", table.len());
}

#[test]
fn l09_registering_again_forgets_peers_and_prepared_layouts() {
    let mut table = table(8);
    ready(table.resolve(&pull(1, 11, true)));
    let before = table.clone();
    let broken = local(tp(0, 1), &plain(P, 0..2, 64), &[attention(1)]);
    let broken = kvbaton_core::plan::LocalLayout { groups: Vec::new(), ..broken };
    assert!(table.register(broken).is_err());
    assert_eq!(table, before, "a refused registration changes nothing");
    table.register(local(tp(0, 1), &plain(P + 64, 0..2, 64), &[attention(1)])).expect("layout");
    assert!(table.is_empty());
    assert_eq!(table.resolve(&pull(1, 11, false)), Resolution::Miss);
    let (layout, _) = ready(table.resolve(&pull(1, 11, true)));
    let copies = plan(&layout, &[&[0]], &[&[0]], UNKNOWN).expect("plan");
    assert_eq!(relative(&copies)[0], (64, 0, 64), "the new addresses");
}

#[test]
fn l11_processes_ranks_and_sizes_never_share_an_entry() {
    let mut table = table(8);
    ready(table.resolve(&pull(1, 11, true)));
    let misses = [
        pull(2, 11, false),
        pull(1, 13, false),
        Pull { tp_rank: 1, ..pull(1, 11, false) },
        Pull { tp_size: 2, ..pull(1, 11, false) },
        Pull { pp_size: 2, ..pull(1, 11, false) },
        Pull { session: SessionAddress { host: "10.0.0.3".into(), port: 1 }, ..pull(1, 11, false) },
    ];
    for pull in misses {
        assert_eq!(table.resolve(&pull), Resolution::Miss, "{pull:?}");
    }
}
