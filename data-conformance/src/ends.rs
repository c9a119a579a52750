//! How grants, registrations, writes and data planes end.

use crate::{Node, Options, Planes, block_on, copy};
use kvbaton_actors::transport::{DataPlane, Rejection, TransportError, Write, WriteOutcome};
use std::sync::Arc;

/// A sender with ones and a receiver with zeroes, with room for a large write.
fn pair(planes: &dyn Planes) -> (Node, Node) {
    let len = planes.large() as usize;
    (Node::new(planes, len, 1), Node::new(planes, len, 0))
}

/// Runs `act` on this thread while a write is under way on another; both results.
fn during<T>(
    plane: &Arc<dyn DataPlane>,
    write: Write,
    act: impl FnOnce() -> T,
) -> (WriteOutcome, T) {
    std::thread::scope(|scope| {
        let (started, has_started) = std::sync::mpsc::channel();
        let running = scope.spawn(move || {
            let future = plane.write(write);
            started.send(()).expect("waits");
            block_on(future)
        });
        has_started.recv().expect("starts");
        let acted = act();
        (running.join().expect("ends"), acted)
    })
}

pub(crate) fn g02_after_a_revoke_nothing_lands_and_others_do(planes: &dyn Planes) {
    let (p, d) = pair(planes);
    let half = planes.large() / 2;
    for round in 0..6 {
        d.fill_with(|_| 0);
        let doomed = d.grant(100 + round, 0, half);
        let spared = d.grant(200 + round, half, half);
        let of_half = |grant, at| p.write_to(&d, grant, vec![copy(p.at(at), d.at(at), half)]);
        let other = p.plane.write(of_half(spared, half));
        let (outcome, revoked) = during(&p.plane, of_half(doomed, 0), || {
            // At another moment each time.
            (0..round * 2000).for_each(|_| std::hint::spin_loop());
            let revoked = block_on(d.plane.revoke(doomed));
            // The blocks are D's again: what it puts there stays.
            let at_revoke = d.read();
            let first = &at_revoke[..half as usize];
            (revoked, first.to_vec())
        });
        let after = d.read();
        assert!(after[..half as usize] == revoked.1[..], "bytes landed after the revoke");
        assert!(revoked.0.was_live);
        match outcome {
            // It was faster than the revoke.
            WriteOutcome::Written => {}
            WriteOutcome::Rejected(Rejection::UnknownGrant) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(block_on(other), WriteOutcome::Written, "another grant's write is spared");
        assert!(d.read()[half as usize..].iter().all(|byte| *byte == 1));
        let late = p.run(of_half(doomed, 0));
        assert_eq!(late, WriteOutcome::Rejected(Rejection::UnknownGrant));
        block_on(d.plane.revoke(spared));
    }
}

pub(crate) fn s04_after_registering_again_only_the_new_generation_is_taken(planes: &dyn Planes) {
    let (p, mut d) = (Node::new(planes, 4096, 1), Node::new(planes, 4096, 0));
    let grant = d.grant(1, 0, 4096);
    let copies = |d: &Node| vec![copy(p.at(0), d.at(0), 4096)];
    assert_eq!(p.run(p.write_to(&d, grant, copies(&d))), WriteOutcome::Written);
    let old = p.write_to(&d, grant, copies(&d));
    let before = d.registration.generation;
    d.register_again();
    assert_ne!(d.registration.generation, before);
    d.fill_with(|_| 7);
    let grant = d.grant(2, 0, 4096);
    assert_eq!(p.run(old), WriteOutcome::Rejected(Rejection::StaleGeneration));
    assert_eq!(d.read(), vec![7; 4096]);
    assert_eq!(p.run(p.write_to(&d, grant, copies(&d))), WriteOutcome::Written);
    assert_eq!(d.read(), vec![1; 4096]);
    block_on(d.plane.unregister(before)).expect("is idempotent");
}

pub(crate) fn s04_unregistering_the_target_in_mid_write_lets_nothing_land_after(
    planes: &dyn Planes,
) {
    for round in 0..4_u64 {
        let (p, d) = pair(planes);
        let half = planes.large() / 2;
        let grant = d.grant(1, 0, half);
        let write = p.write_to(&d, grant, vec![copy(p.at(0), d.at(0), half)]);
        let (outcome, at_end) = during(&p.plane, write, || {
            (0..round * 3000).for_each(|_| std::hint::spin_loop());
            block_on(d.plane.unregister(d.registration.generation)).expect("unregisters");
            d.read()
        });
        assert!(d.read() == at_end, "bytes landed after unregister returned");
        match outcome {
            WriteOutcome::Written | WriteOutcome::Rejected(Rejection::StaleGeneration) => {}
            WriteOutcome::Failed { error: TransportError::Disconnected { .. }, .. } => {}
            other => panic!("{other:?}"),
        }
        assert!(!block_on(d.plane.revoke(grant)).was_live, "its grants have ended with it");
    }
}

pub(crate) fn s01_unregistering_the_source_in_mid_write_ends_it(planes: &dyn Planes) {
    let (p, d) = pair(planes);
    let whole = planes.large();
    let grant = d.grant(1, 0, whole);
    let write = p.write_to(&d, grant, vec![copy(p.at(0), d.at(0), whole)]);
    let (outcome, ()) = during(&p.plane, write, || {
        block_on(p.plane.unregister(p.registration.generation)).expect("unregisters");
        p.fill_with(|_| 2);
    });
    match outcome {
        WriteOutcome::Written | WriteOutcome::Failed { .. } => {}
        other => panic!("{other:?}"),
    }
    block_on(d.plane.revoke(grant));
    assert!(d.read().iter().all(|byte| *byte != 2), "memory was read after unregister");
}

pub(crate) fn cancelling_ends_a_write_and_hurts_no_other(planes: &dyn Planes) {
    let (p, d) = pair(planes);
    let whole = planes.large();
    let grant = d.grant(1, 0, whole);
    let large = p.write_to(&d, grant, vec![copy(p.at(0), d.at(0), whole - 65_536)]);
    let small = p.write_to(&d, grant, vec![copy(p.at(whole - 4096), d.at(whole - 4096), 4096)]);
    let id = large.id;
    let small = p.plane.write(small);
    let (outcome, ()) = during(&p.plane, large, || {
        p.plane.cancel(id);
        p.plane.cancel(id);
    });
    match outcome {
        // It may have been over before the cancel took effect.
        WriteOutcome::Written
        | WriteOutcome::Failed { error: TransportError::Cancelled { .. }, .. } => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(block_on(small), WriteOutcome::Written);
    p.plane.cancel(id);
    let again = p.write_to(&d, grant, vec![copy(p.at(0), d.at(0), 4096)]);
    assert_eq!(p.run(again), WriteOutcome::Written);
}

pub(crate) fn a_dropped_future_is_a_cancelled_write(planes: &dyn Planes) {
    let (p, d) = pair(planes);
    let whole = planes.large();
    let grant = d.grant(1, 0, whole);
    for _ in 0..4 {
        drop(p.plane.write(p.write_to(&d, grant, vec![copy(p.at(0), d.at(0), whole)])));
    }
    let again = p.write_to(&d, grant, vec![copy(p.at(0), d.at(0), 4096)]);
    assert_eq!(p.run(again), WriteOutcome::Written);
}

pub(crate) fn f70_a_restarted_receiver_on_the_same_port_is_found(planes: &dyn Planes) {
    let (p, d) = (Node::new(planes, 4096, 1), Node::new(planes, 4096, 0));
    let grant = d.grant(1, 0, 4096);
    let copies = |d: &Node| vec![copy(p.at(0), d.at(0), 4096)];
    assert_eq!(p.run(p.write_to(&d, grant, copies(&d))), WriteOutcome::Written);
    let session = d.plane.session();
    let (stale, keys) = (d.registration.generation, d.registration.keys.clone());
    drop(d);
    let options = Options { port: session.port, ..Options::default() };
    let d = Node::with(planes, options, 4096, 0);
    let grant = d.grant(1, 0, 4096);
    let old = p.write(session, Some(stale), Some(grant), keys, copies(&d));
    assert_eq!(p.run(old), WriteOutcome::Rejected(Rejection::StaleGeneration));
    assert_eq!(d.read(), vec![0; 4096]);
    assert_eq!(p.run(p.write_to(&d, grant, copies(&d))), WriteOutcome::Written);
    assert_eq!(d.read(), vec![1; 4096]);
}

pub(crate) fn closing_a_data_plane_ends_its_writes(planes: &dyn Planes) {
    let whole = planes.large();
    let d = Node::new(planes, whole as usize, 0);
    let grant = d.grant(1, 0, whole);
    let plane = planes.open(Options::default());
    let p = Node::of(plane.clone(), whole as usize, 1);
    let write = p.write_to(&d, grant, vec![copy(p.at(0), d.at(0), whole)]);
    let future = plane.write(write);
    drop(plane);
    // Unregisters, then drops the last handle.
    drop(p);
    match block_on(future) {
        WriteOutcome::Written | WriteOutcome::Failed { .. } => {}
        other => panic!("{other:?}"),
    }
}
