//! What P keeps of peers.

mod two_sides;

use kvbaton_core::fingerprint::Fingerprint;
use kvbaton_core::ids::{Address, Bytes, LayoutId, SessionAddress};
use kvbaton_core::peer_layouts::{
    DEFAULT_MAX_BYTES, LayoutTable, PeerKey, PeerLayouts, PreparedLayouts, Resolution,
};
use kvbaton_core::plan::PreparedLayout;
use kvbaton_core::region::{GroupKind, MemoryRange};
use kvbaton_core::wire::{LayoutColumns, LayoutExtension, Pull};
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
    assert!(table.is_empty() && !before.is_empty());
    assert_eq!(table.local().expect("registered").regions[0].base, Address(P + 64));
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

fn prepared(capacity: usize, max_bytes: usize) -> PreparedLayouts {
    PreparedLayouts::new(NonZeroUsize::new(capacity).expect("not 0"), max_bytes)
}

fn resolve(kept: &mut PreparedLayouts, columns: &LayoutColumns) -> Arc<PreparedLayout> {
    let ours = local(tp(0, 1), &plain(P, 0..2, 64), &[attention(1)]);
    kept.resolve(&ours, peer(0, 1), columns).expect("alike")
}

/// Bytes that a layout is taken to hold.
fn size(columns: &LayoutColumns) -> usize {
    let mut kept = prepared(1, usize::MAX);
    resolve(&mut kept, columns);
    kept.bytes()
}

#[test]
fn l08_a_layout_counts_with_all_that_it_holds() {
    let one = plain(D, 0..2, 64);
    let least = size(&one);
    assert!(least > 2 * 6 * 8, "{least}");
    // Each part adds what it takes, beside what any layout does.
    let mut columns = one.clone();
    columns.group_indices.clear();
    assert_eq!(size(&columns), least - 2 * 8);
    columns.row_offsets.clear();
    assert_eq!(size(&columns), least - 4 * 8);
    columns.shared_group_ids[1] = vec![];
    assert_eq!(size(&columns), least - 5 * 8);
    columns.shared_group_ids.clear();
    assert_eq!(size(&columns), least - 6 * 8 - 2 * size_of::<Vec<i64>>());
    let name = "model.layers.0.attn".len();
    let mut single = one.clone();
    for column in [&mut single.base_addrs, &mut single.block_lens, &mut single.kv_block_lens] {
        column.truncate(1);
    }
    for column in [&mut single.layer_indices, &mut single.group_indices, &mut single.row_offsets] {
        column.truncate(1);
    }
    single.layer_names.truncate(1);
    single.shared_group_ids.truncate(1);
    let region = 6 * 8 + size_of::<String>() + name + size_of::<Vec<i64>>() + 8;
    let ours = local(tp(0, 1), &plain(P, 0..1, 64), &[attention(1)]);
    let mut kept = prepared(1, usize::MAX);
    kept.resolve(&ours, peer(0, 1), &single).expect("alike");
    assert_eq!(kept.bytes(), least - region);

    let mut extended = one.clone();
    let print = Fingerprint {
        model: "seven b".into(),
        dtype: "bf16".into(),
        block_size: vec![16, 16, 16],
        total_kv_heads: 8,
        groups: vec![GroupKind::Attention; 5],
    };
    let memory = vec![MemoryRange { start: Address(D), len: Bytes(1 << 40) }];
    extended.extension = Some(LayoutExtension { memory, keys: vec![7; 999], fingerprint: print });
    let extra = size_of::<MemoryRange>() + 7 + 4 + 3 * 4 + 5;
    assert_eq!(size(&extended), least + extra, "keys are not kept");
}

/// The same layout at another place.
fn moved(step: u64) -> LayoutColumns {
    plain(D + step * 4096, 0..2, 64)
}

#[test]
fn l08_bytes_are_bounded_to_the_byte_and_given_back() {
    assert_eq!(DEFAULT_MAX_BYTES, 64 << 20);
    let one = size(&moved(0));
    let mut kept = prepared(8, 2 * one);
    assert!(kept.is_empty());
    let first = resolve(&mut kept, &moved(0));
    resolve(&mut kept, &moved(1));
    assert_eq!((kept.len(), kept.bytes(), kept.is_empty()), (2, 2 * one, false));
    assert!(Arc::ptr_eq(&first, &resolve(&mut kept, &moved(0))), "both fit");
    resolve(&mut kept, &moved(2));
    assert_eq!((kept.len(), kept.bytes()), (2, 2 * one));
    assert!(Arc::ptr_eq(&first, &resolve(&mut kept, &moved(0))), "the least used one went");
    // A byte too few for two.
    let mut tight = prepared(8, 2 * one - 1);
    resolve(&mut tight, &moved(0));
    resolve(&mut tight, &moved(1));
    assert_eq!((tight.len(), tight.bytes()), (1, one));
    // One that does not fit at all is prepared, and pushes nothing out.
    let mut small = prepared(8, one - 1);
    resolve(&mut small, &moved(0));
    assert_eq!((small.len(), small.bytes()), (0, 0));
    let mut exact = prepared(8, one);
    resolve(&mut exact, &moved(0));
    assert_eq!((exact.len(), exact.bytes()), (1, one));
    // The number is bounded as well, and what is forgotten is given back.
    let mut few = prepared(2, usize::MAX);
    (0..3).for_each(|step| drop(resolve(&mut few, &moved(step))));
    assert_eq!((few.len(), few.bytes()), (2, 2 * one));
    few.clear();
    assert_eq!((few.len(), few.bytes(), few.is_empty()), (0, 0, true));
}

#[test]
fn l02_only_equal_content_is_shared() {
    let extended = |memory: u64, model: &str| {
        let memory = vec![MemoryRange { start: Address(D), len: Bytes(memory) }];
        let fingerprint = Fingerprint { model: model.into(), ..Fingerprint::default() };
        let extension = LayoutExtension { memory, fingerprint, ..LayoutExtension::default() };
        LayoutColumns { extension: Some(extension), ..moved(0) }
    };
    let change = |change: fn(&mut LayoutColumns)| {
        let mut columns = moved(0);
        change(&mut columns);
        columns
    };
    let all = [
        moved(0),
        extended(1 << 40, "a"),
        extended(1 << 41, "a"),
        extended(1 << 40, "b"),
        change(|it| it.base_addrs[1] += 64),
        change(|it| it.block_lens[1] += 64),
        change(|it| it.row_offsets[1] = 0),
        change(|it| it.group_indices.clear()),
        change(|it| it.shared_group_ids.clear()),
    ];
    let mut kept = prepared(64, usize::MAX);
    for (index, columns) in all.iter().enumerate() {
        resolve(&mut kept, columns);
        assert_eq!(kept.len(), index + 1);
    }
    all.iter().for_each(|columns| drop(resolve(&mut kept, columns)));
    assert_eq!(kept.len(), all.len(), "each is found again");
    let ours = local(tp(0, 1), &plain(P, 0..2, 64), &[attention(1)]);
    for broken in [
        change(|it| it.layer_names[1] = "model.layers.7.attn".into()),
        change(|it| it.layer_indices[1] = 7),
        change(|it| it.kv_block_lens[1] = 63),
    ] {
        assert!(kept.resolve(&ours, peer(0, 1), &broken).is_err(), "found by other content");
    }
    let elsewhere = kvbaton_core::plan::PeerTopology { pp_size: 2, ..peer(0, 1) };
    kept.resolve(&ours, elsewhere, &moved(0)).expect("alike");
    assert_eq!(kept.len(), all.len() + 1, "the peer's ranks count");
    // Also where hash tables look at one that is not meant.
    let mut many = prepared(1000, usize::MAX);
    (0..1000).for_each(|step| drop(resolve(&mut many, &moved(step))));
    assert_eq!(many.len(), 1000);
}

#[test]
fn equal_tables_hold_the_same_used_in_the_same_order() {
    let filled = |steps: &[u64]| {
        let mut kept = prepared(8, 1 << 20);
        steps.iter().for_each(|step| drop(resolve(&mut kept, &moved(*step))));
        kept
    };
    assert_eq!(filled(&[0, 1]), filled(&[0, 1]));
    assert_ne!(filled(&[0, 1]), filled(&[1, 0]));
    assert_ne!(filled(&[0]), filled(&[0, 1]));
    assert_ne!(prepared(8, 1), prepared(8, 2));
    assert_ne!(prepared(8, 1), prepared(9, 1));
    let capacity = |peers| NonZeroUsize::new(peers).expect("not 0");
    let key = |id| PeerKey::from(&pull(1, id, false));
    let layout = ready(table(8).resolve(&pull(1, 11, true))).0;
    let peers = |ids: &[u64]| {
        let mut peers = PeerLayouts::new(capacity(4));
        ids.iter().for_each(|id| peers.put(key(*id), layout.clone()));
        peers
    };
    assert_eq!(peers(&[1, 3]), peers(&[1, 3]));
    assert_ne!(peers(&[1, 3]), peers(&[3, 1]));
    assert_ne!(peers(&[]), PeerLayouts::new(capacity(5)));
    assert!(peers(&[]).is_empty() && !peers(&[1]).is_empty());
    let mut used = peers(&[1, 3]);
    assert!(used.get(&key(1)).is_some() && used.get(&key(5)).is_none());
    assert_eq!(used, peers(&[3, 1]), "looking up counts as use");
    used.clear();
    assert_eq!((used.len(), used.get(&key(1))), (0, None));
}
