//! Both sides under any order of operations and faults.

use crate::names::{request, transfer};
use crate::world::World;
use kvbaton_core::receiver::{LoadKind, ReceiverConfig};
use kvbaton_core::sender::SenderConfig;
use proptest::prelude::*;
use std::time::Duration;

/// One step: what happens, and to which of the things there are.
type Step = (u8, u8, u8);

fn apply(world: &mut World, (what, which, whose): Step, serial: usize) {
    let (pick, ranks) = (usize::from(which), world.p.len());
    let d = usize::from(whose) % world.d.len();
    let name = transfer(&format!("t{}", which % 3));
    let owner = request(&format!("p{}.{}", which % 3, serial / 8));
    let reader = request(&format!("d{}", which % 3));
    let packet = (!world.net.is_empty()).then(|| pick % world.net.len().max(1));
    let write = (!world.writes.is_empty()).then(|| pick % world.writes.len().max(1));
    match (what % 32, packet, write) {
        (0, ..) => (0..ranks).for_each(|p| world.start(p, owner.clone(), &name)),
        (1 | 2, ..) => (0..ranks).for_each(|p| world.hold(p, owner.clone(), &name)),
        (3, ..) => (0..ranks).for_each(|p| world.abort(p, &name)),
        (4, ..) => world.release(usize::from(whose) % ranks, &name),
        (5, ..) => world.release_all(usize::from(whose) % ranks),
        (6..=8, ..) => {
            for d in 0..world.d.len() {
                world.load(d, reader.clone(), &name, LoadKind::Load);
                world.flush(d);
            }
        }
        (9, ..) => {
            world.load(d, reader, &name, LoadKind::Release);
            world.flush(d);
        }
        (10, ..) => world.load(d, reader, &name, LoadKind::Load),
        (11, ..) => world.flush(d),
        (12, ..) => world.drop_load(d, &reader),
        (13..=19, Some(at), _) => world.deliver(at),
        (20, Some(at), _) => world.duplicate(at),
        (21, Some(at), _) => world.lose(at, whose % 2 == 0),
        (22..=25, _, Some(at)) => world.step_write(at),
        (26, _, Some(at)) => world.fail_write(at, whose % 2 == 0),
        (27, ..) => world.advance(Duration::from_secs(u64::from(which))),
        (28, ..) if whose % 4 == 0 => world.advance(Duration::from_secs(1_000)),
        (29, ..) if whose % 4 == 0 => world.restart_p(),
        (30, ..) if whose % 4 == 0 => world.restart_d(d),
        (30, ..) if whose % 4 == 1 => world.register_again(d),
        (31, ..) => world.p.iter_mut().for_each(|p| p.layouts.clear()),
        _ => world.settle(),
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(any::<Step>(), 1..160)
}

/// P's ranks, D's ranks, write slots, whether revoking settles.
fn shapes() -> impl Strategy<Value = (usize, usize, usize, bool)> {
    let ranks = prop::sample::select(vec![(1, 1), (2, 1), (1, 2), (2, 2)]);
    (ranks, 1..3usize, any::<bool>()).prop_map(|((ps, ds), senders, s)| (ps, ds, senders, s))
}

fn world((ps, ds, senders, revoke_settles): (usize, usize, usize, bool)) -> World {
    let sender =
        SenderConfig { senders, max_transfers: 4, max_remembered: 4, ..Default::default() };
    let receiver = ReceiverConfig { revoke_settles, max_loads: 6, ..Default::default() };
    World::new(ps, ds, sender, receiver)
}

/// A few thousand runs; `PROPTEST_CASES` asks for more.
fn more_cases() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases.max(3_000), ..usual }
}

proptest! {
    #![proptest_config(more_cases())]

    /// [P01 P02 P08 P11 P12 G01 G02] at every step, and nothing leaks once it heals
    /// [P06 P09 F13 F25].
    #[test]
    fn p08_g02_whatever_happens_loads_are_true_and_nothing_is_left(
        shape in shapes(),
        steps in steps(),
    ) {
        let mut world = world(shape);
        for (serial, step) in steps.into_iter().enumerate() {
            apply(&mut world, step, serial);
        }
        world.heal();
    }
}

proptest! {
    #![proptest_config(more_cases())]

    /// The same towards stock Ps, whose writes carry no grant: blocks of a load that ended
    /// under them are never open to a late write of theirs [P09 G03 F01 F02].
    #[test]
    fn p09_f01_late_writes_of_a_stock_p_hit_nothing(
        ds in 1..3usize,
        senders in 1..3usize,
        steps in steps(),
    ) {
        let mut world = world((1, ds, senders, true));
        world.stock = true;
        for (serial, step) in steps.into_iter().enumerate() {
            apply(&mut world, step, serial);
        }
        world.heal();
    }
}

#[test]
fn p08_without_faults_every_load_is_loaded() {
    for (ps, ds) in [(1, 1), (2, 1), (1, 2), (2, 2)] {
        let mut world = world((ps, ds, 1, true));
        for name in ["a", "b"] {
            (0..ps).for_each(|p| world.hold(p, request(&format!("p {name}")), &transfer(name)));
            for d in 0..ds {
                world.load(d, request(&format!("d {name}")), &transfer(name), LoadKind::Load);
                world.flush(d);
            }
        }
        world.settle();
        assert_eq!(world.loaded, 2 * ds as u32);
        world.heal();
    }
}
