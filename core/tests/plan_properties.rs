//! Plans against an oracle that knows bytes, not regions: both memories are maps from
//! addresses to what lies there, made straight from the definition of a layout.

mod two_sides;

use kvbaton_core::layout::GrantableRows;
use kvbaton_core::plan::{GroupSpec, PreparedLayout};
use kvbaton_core::region::{Copy, MemoryRange};
use kvbaton_core::wire::LayoutColumns;
use proptest::prelude::*;
use std::collections::BTreeMap;
use two_sides::*;

/// Bytes of one head in one kernel row.
const HEAD: u64 = 3;

/// How a side places its layers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Family {
    /// Each layer by itself.
    Own,
    /// Each layer by itself, one after the other without room between.
    Stacked,
    /// All layers of all groups side by side in one row.
    Packed,
    /// Groups overlay each other in one row, layers of a group side by side.
    Overlay,
}

#[derive(Debug, Clone)]
struct World {
    family: Family,
    heads: u32,
    latent: bool,
    ptp: u32,
    dtp: u32,
    /// Per layer: its group. Groups are dense from 0.
    layers: Vec<usize>,
    /// Which group holds state, if any (always the last one).
    state: bool,
    ratio: u32,
    pad: u64,
    /// Per group: P's and D's blocks.
    blocks: Vec<(Vec<u32>, Vec<u32>)>,
}

/// One layer's rows on one rank.
struct Placement {
    layer: usize,
    base: u64,
    stride: u64,
    payload: u64,
    row_offset: i64,
}

impl World {
    fn groups(&self) -> usize {
        self.blocks.len()
    }

    fn is_state(&self, group: usize) -> bool {
        self.state && group + 1 == self.groups()
    }

    fn specs(&self) -> Vec<GroupSpec> {
        let spec = |group| match () {
            () if self.is_state(group) => state(),
            () if self.latent => latent(),
            () => attention(self.heads),
        };
        (0..self.groups()).map(spec).collect()
    }

    /// First head of a rank, and how many it has.
    fn heads_of(&self, rank: u32, size: u32) -> (u32, u32) {
        if self.latent { (0, 1) } else { (rank * self.heads / size, (self.heads / size).max(1)) }
    }

    /// Where each layer lies. 40 rows each; packed rows keep layers of all groups apart.
    fn place(&self, base: u64, size: u32) -> Vec<Placement> {
        let payload = HEAD * u64::from(self.heads_of(0, size).1);
        let rows = 40;
        let count = self.layers.len() as u64;
        let largest = (0..self.groups())
            .map(|group| self.layers.iter().filter(|&&g| g == group).count() as u64)
            .max()
            .unwrap_or(0);
        let mut used = vec![0; self.groups()];
        let mut out = Vec::new();
        for (layer, &group) in self.layers.iter().enumerate() {
            let at = layer as u64;
            let (offset, stride) = match self.family {
                Family::Own => (at * ((payload + self.pad) * rows + 512), payload + self.pad),
                Family::Stacked => (at * (payload + self.pad) * rows, payload + self.pad),
                Family::Packed => (at * payload, count * payload + self.pad),
                Family::Overlay => (used[group] * payload, largest * payload + self.pad),
            };
            used[group] += 1;
            let is_view = matches!(self.family, Family::Packed | Family::Overlay);
            let row_offset = if is_view { offset as i64 } else { -1 };
            out.push(Placement { layer, base: base + offset, stride, payload, row_offset });
        }
        out
    }

    fn columns(&self, placements: &[Placement]) -> LayoutColumns {
        let rows: Vec<Row> = placements
            .iter()
            .map(|p| Row {
                group: self.layers[p.layer] as i64,
                row_offset: p.row_offset,
                ..row(p.layer as i64, p.base, p.stride, p.payload)
            })
            .collect();
        columns(&rows)
    }

    /// Rows of a block.
    fn rows(&self, group: usize, block: u32) -> std::ops::Range<u64> {
        let ratio = if self.is_state(group) { 1 } else { u64::from(self.ratio) };
        u64::from(block) * ratio..(u64::from(block) + 1) * ratio
    }

    /// (P's block, D's block) of a group, tail to tail.
    fn pairs(&self, group: usize) -> Vec<(u32, u32)> {
        let keep = |list: &[u32]| -> Vec<u32> {
            list.iter().copied().filter(|&id| id != 0 || !self.is_state(group)).collect()
        };
        let (ours, theirs) = (keep(&self.blocks[group].0), keep(&self.blocks[group].1));
        let skip = ours.len() - theirs.len();
        ours[skip..].iter().copied().zip(theirs).collect()
    }
}

/// What a byte means: (layer, P's row, head, byte of the head).
type Meaning = (usize, u64, u32, u64);

/// P's bytes of the rows that the request names.
fn source(world: &World, rank: u32) -> BTreeMap<u64, Meaning> {
    let (first, count) = world.heads_of(rank, world.ptp);
    let mut bytes = BTreeMap::new();
    for place in world.place(P, world.ptp) {
        let group = world.layers[place.layer];
        for (block, _) in world.pairs(group) {
            for row in world.rows(group, block) {
                for byte in 0..u64::from(count) * HEAD {
                    let head = first + (byte / HEAD) as u32;
                    let address = place.base + row * place.stride + byte;
                    bytes.insert(address, (place.layer, row, head, byte % HEAD));
                }
            }
        }
    }
    bytes
}

/// What D's bytes must become, and all bytes of the rows that D named.
fn wanted(world: &World, rank: u32) -> (BTreeMap<u64, Meaning>, BTreeMap<u64, ()>) {
    let (first, count) = world.heads_of(rank, world.dtp);
    let (mut bytes, mut rows) = (BTreeMap::new(), BTreeMap::new());
    for place in world.place(D, world.dtp) {
        let group = world.layers[place.layer];
        for (ours, theirs) in world.pairs(group) {
            for (ours, theirs) in world.rows(group, ours).zip(world.rows(group, theirs)) {
                let start = place.base + theirs * place.stride;
                let row_start = start - place.row_offset.max(0) as u64;
                rows.extend((row_start..row_start + place.stride).map(|address| (address, ())));
                for byte in 0..u64::from(count) * HEAD {
                    let head = first + (byte / HEAD) as u32;
                    bytes.insert(start + byte, (place.layer, ours, head, byte % HEAD));
                }
            }
        }
    }
    (bytes, rows)
}

fn prepared(world: &World, prank: u32, drank: u32) -> PreparedLayout {
    let place = world.place(P, world.ptp);
    let mut ours = local(tp(prank, world.ptp), &world.columns(&place), &world.specs());
    ours.kernel_blocks_per_block = world.ratio;
    let theirs = world.columns(&world.place(D, world.dtp));
    PreparedLayout::prepare(&ours, peer(drank, world.dtp), &theirs)
        .unwrap_or_else(|error| panic!("{error}"))
}

fn copies(world: &World, prank: u32, drank: u32) -> Vec<Copy> {
    let ours: Vec<&[u32]> = world.blocks.iter().map(|(ours, _)| &ours[..]).collect();
    let theirs: Vec<&[u32]> = world.blocks.iter().map(|(_, theirs)| &theirs[..]).collect();
    plan(&prepared(world, prank, drank), &ours, &theirs, UNKNOWN)
        .unwrap_or_else(|error| panic!("{error}"))
}

fn grants(world: &World, drank: u32) -> Vec<MemoryRange> {
    let columns = world.columns(&world.place(D, world.dtp));
    let mut layout = local(tp(drank, world.dtp), &columns, &world.specs());
    layout.kernel_blocks_per_block = world.ratio;
    let theirs: Vec<&[u32]> = world.blocks.iter().map(|(_, theirs)| &theirs[..]).collect();
    let mut out = Vec::new();
    GrantableRows::prepare(&layout).granted_rows(&lists(&theirs), &mut out);
    out
}

/// Carries out every P rank's plan for one D rank, byte by byte.
fn check(world: &World, drank: u32) -> Result<(), TestCaseError> {
    let (mut missing, rows) = wanted(world, drank);
    let payload = missing.clone();
    let granted = grants(world, drank);
    prop_assert!(granted.windows(2).all(|w| w[0].start.0 + w[0].len.0 < w[1].start.0));
    let mut written: BTreeMap<u64, ()> = BTreeMap::new();
    for prank in tp(drank, world.dtp).paired_tp_ranks(world.ptp).expect("sizes divide") {
        let source = source(world, prank);
        for copy in copies(world, prank, drank) {
            prop_assert!(copy.len.0 > 0);
            let open = granted.iter().any(|range| range.contains(copy.destination, copy.len));
            prop_assert!(open, "G01: {copy:?} not granted: {granted:?}");
            for byte in 0..copy.len.0 {
                let (from, to) = (copy.source.0 + byte, copy.destination.0 + byte);
                prop_assert!(written.insert(to, ()).is_none(), "{to:#x} written twice");
                match payload.get(&to) {
                    Some(meaning) => prop_assert_eq!(source.get(&from), Some(meaning)),
                    None => prop_assert!(rows.contains_key(&to), "{to:#x} is outside the rows"),
                }
                missing.remove(&to);
            }
        }
    }
    prop_assert!(missing.is_empty(), "{} bytes never written", missing.len());
    Ok(())
}

/// `n` different blocks from 1, in runs and out of order.
fn ids(n: usize) -> impl Strategy<Value = Vec<u32>> {
    let run = (1u32..18 - n as u32).prop_map(move |start| (start..start + n as u32).collect());
    let any = Just((1u32..18).collect::<Vec<_>>()).prop_shuffle().prop_map(move |mut ids| {
        ids.truncate(n);
        ids
    });
    let rotated = (run.clone(), 0..n.max(1)).prop_map(move |(mut ids, by): (Vec<u32>, usize)| {
        if by < ids.len() {
            ids.rotate_left(by);
        }
        ids
    });
    prop_oneof![run, any, rotated]
}

fn lists_of_a_group() -> impl Strategy<Value = (Vec<u32>, Vec<u32>)> {
    (0usize..7, 0usize..7).prop_flat_map(|(a, b)| (ids(a.max(b)), ids(a.min(b))))
}

fn worlds() -> impl Strategy<Value = World> {
    let sizes = prop::sample::select(vec![
        (1, 1),
        (2, 2),
        (4, 4),
        (1, 2),
        (2, 1),
        (1, 4),
        (4, 1),
        (2, 4),
        (4, 2),
        (8, 2),
        (2, 8),
        (4, 8),
    ]);
    let family =
        prop::sample::select(vec![Family::Own, Family::Stacked, Family::Packed, Family::Overlay]);
    let shape = (1usize..4, 1usize..4, any::<bool>(), any::<bool>(), 1u32..4, 0u64..3);
    (sizes, family, prop::sample::select(vec![1u32, 2, 4, 8]), shape)
        .prop_flat_map(|((ptp, dtp), family, heads, (groups, per, latent, state, ratio, pad))| {
            let blocks = prop::collection::vec(lists_of_a_group(), groups);
            let layers =
                Just((0..groups * per).map(|i| i % groups).collect::<Vec<_>>()).prop_shuffle();
            (blocks, layers, any::<bool>()).prop_map(move |(mut blocks, layers, null)| {
                // State is never re-sharded, and rows of an overlay are exclusive.
                let overlay = family == Family::Overlay;
                let state = state && ptp == dtp && !overlay;
                if overlay {
                    for (group, (ours, theirs)) in blocks.iter_mut().enumerate() {
                        let own = |id: &mut u32| *id += 20 * group as u32;
                        ours.iter_mut().for_each(own);
                        theirs.iter_mut().for_each(own);
                    }
                }
                if state && null {
                    let last = blocks.last_mut().expect("a group");
                    last.0.insert(0, 0);
                    last.1.splice(0..0, [0, 0]);
                }
                World { family, heads, latent, ptp, dtp, layers, state, ratio, pad, blocks }
            })
        })
        .prop_filter("blocks must fit 40 rows where regions touch", |world| {
            world.family != Family::Stacked || world.ratio < 3
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a07_every_byte_is_planned_once_from_the_right_place(world in worlds(), d in 0u32..8) {
        check(&world, d % world.dtp)?;
    }

    #[test]
    fn a09_a_request_is_served_exactly_when_its_blocks_are_in_range_and_distinct(
        ours in prop::collection::vec(0u32..70, 0..6),
        theirs in prop::collection::vec(0u32..70, 0..6),
    ) {
        let mut layout = local(tp(0, 1), &plain(P, 0..2, 16), &[attention(1)]);
        layout.rows = vec![64, 66];
        let theirs_columns = plain(D, 0..2, 16);
        let prepared = PreparedLayout::prepare(&layout, peer(0, 1), &theirs_columns).expect("alike");
        let got = plan(&prepared, &[&ours], &[&theirs], UNKNOWN);
        let nulls = theirs.iter().filter(|&&id| id == 0).count();
        let tail = ours.len().checked_sub(theirs.len()).map(|skip| &ours[skip..]);
        let mut pairs: Vec<(u32, u32)> =
            tail.unwrap_or_default().iter().copied().zip(theirs.iter().copied()).collect();
        pairs.retain(|&(_, to)| nulls < 2 || to != 0);
        let mut named: Vec<u32> = pairs.iter().map(|&(_, to)| to).collect();
        named.sort_unstable();
        named.dedup();
        let serves = theirs.is_empty()
            || (tail.is_some()
                && named.len() == pairs.len()
                && pairs.iter().all(|&(from, _)| from < 64));
        prop_assert_eq!(got.is_ok(), serves, "{:?}", got);
        if let Ok(copies) = got {
            let bytes: u64 = copies.iter().map(|copy| copy.len.0).sum();
            prop_assert_eq!(bytes, 2 * 16 * pairs.len() as u64);
        }
    }
}
