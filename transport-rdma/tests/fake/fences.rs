//! Grants and registrations end while writes are in flight.

use crate::rig::{BLOCK, Pair};
use kvbaton_actors::transport::{Capabilities, Rejection, WriteOutcome};
use kvbaton_core::ids::Bytes;
use kvbaton_data_conformance::{block_on, copy, wait_until};
use std::time::Duration;

#[test]
fn g03_revoking_without_writes_in_flight_costs_no_queue_pair() {
    let pair = Pair::new(4);
    assert_eq!(pair.run(), WriteOutcome::Written);
    let made = pair.d.fabric.device(0).calls("ibv_create_qp");
    let revoked = block_on(pair.d.node.plane.revoke(pair.grant));
    assert_eq!((revoked.was_live, revoked.bytes_landed), (true, 4 * BLOCK));
    for round in 0..20 {
        let grant = pair.d.node.grant(100 + round, 0, BLOCK);
        let (p, d) = (&pair.p.node, &pair.d.node);
        let write = p.write_to(d, grant, vec![copy(p.at(0), d.at(0), BLOCK)]);
        assert_eq!(p.run(write), WriteOutcome::Written);
        assert!(block_on(d.plane.revoke(grant)).was_live);
    }
    assert_eq!(pair.d.fabric.device(0).calls("ibv_create_qp"), made, "the same queue pairs");
    pair.finish();
}

#[test]
fn g03_a_sender_that_stops_in_time_keeps_its_queue_pairs() {
    let pair = Pair::with(200, |config| config.queue_pairs = 1);
    pair.connect();
    let device = pair.p.fabric.device(0);
    device.hold();
    let future = pair.plane().write(pair.write());
    wait_until(|| device.waiting() > 50);
    let made = pair.d.fabric.device(0).calls("ibv_create_qp");
    let revoked = std::thread::scope(|scope| {
        let revoking = scope.spawn(|| block_on(pair.d.node.plane.revoke(pair.grant)));
        std::thread::yield_now();
        device.release();
        revoking.join().expect("ends")
    });
    assert!(revoked.was_live);
    let after = pair.d.node.read();
    match block_on(future) {
        WriteOutcome::Rejected(Rejection::UnknownGrant) | WriteOutcome::Written => {}
        other => panic!("{other:?}"),
    }
    assert!(pair.d.node.read() == after);
    // Unless the machine was too slow for the moment that it is given.
    assert!(pair.d.fabric.device(0).calls("ibv_create_qp") <= made + 1);
    pair.finish();
}

#[test]
fn g03_a_sender_that_does_not_stop_is_cut_off_and_its_other_writes_are_sent_again() {
    let pair = Pair::new(64);
    pair.connect();
    let device = pair.p.fabric.device(0);
    let half = 32 * BLOCK;
    let (p, d) = (&pair.p.node, &pair.d.node);
    block_on(d.plane.revoke(pair.grant));
    let doomed = d.grant(2, 0, half);
    let spared = d.grant(3, half, half);
    device.hold();
    let lost = pair.plane().write(p.write_to(d, doomed, vec![copy(p.at(0), d.at(0), half)]));
    let kept = pair.plane().write(p.write_to(d, spared, vec![copy(p.at(half), d.at(half), half)]));
    wait_until(|| device.waiting() >= 2);
    // Nothing completes: D does not need it to.
    let revoked = block_on(d.plane.revoke(doomed));
    assert!(revoked.was_live);
    device.release();
    assert_eq!(block_on(lost), WriteOutcome::Rejected(Rejection::UnknownGrant));
    assert_eq!(block_on(kept), WriteOutcome::Written);
    let landed = d.read();
    assert!(landed[..half as usize].iter().all(|byte| *byte == 0 || *byte == 1));
    assert!(landed[half as usize..].iter().all(|byte| *byte == 1));
    pair.finish();
}

#[test]
fn s04_keys_are_gone_when_unregister_returns_though_the_sender_holds_writes_back() {
    let pair = Pair::new(64);
    pair.connect();
    let device = pair.p.fabric.device(0);
    device.hold();
    let future = pair.plane().write(pair.write());
    wait_until(|| device.waiting() > 10);
    let d = &pair.d.node;
    let regions = pair.d.fabric.device(0).live().regions;
    block_on(d.plane.unregister(d.registration.generation)).expect("unregisters");
    assert_eq!(pair.d.fabric.device(0).live().regions, regions - 1);
    d.fill_with(|_| 7);
    device.release();
    assert_eq!(block_on(future), WriteOutcome::Rejected(Rejection::StaleGeneration));
    assert!(d.read().iter().all(|byte| *byte == 7));
    // Nobody is connected to a registration that has ended.
    wait_until(|| pair.d.fabric.device(0).live().queue_pairs == 0);
    pair.finish();
}

#[test]
fn s01_unregistering_the_source_does_not_wait_for_the_peer() {
    let pair = Pair::new(64);
    pair.connect();
    let device = pair.p.fabric.device(0);
    device.hold();
    let future = pair.plane().write(pair.write());
    wait_until(|| device.waiting() > 10);
    let p = &pair.p.node;
    block_on(p.plane.unregister(p.registration.generation)).expect("unregisters");
    assert_eq!(device.waiting(), 0, "nothing reads the memory any more");
    p.fill_with(|_| 2);
    device.release();
    match block_on(future) {
        WriteOutcome::Failed { settled: true, .. } => {}
        other => panic!("{other:?}"),
    }
    assert!(pair.d.node.read().iter().all(|byte| *byte != 2));
    pair.finish();
}

#[test]
fn p04_a_write_that_is_stuck_ends_at_its_timeout_and_says_that_it_settled() {
    let pair = Pair::new(64);
    pair.connect();
    let device = pair.p.fabric.device(0);
    device.hold();
    let mut write = pair.write();
    write.timeout = Duration::from_millis(100);
    match pair.p.node.run(write) {
        WriteOutcome::Failed {
            error: kvbaton_actors::transport::TransportError::TimedOut { .. },
            settled: true,
        } => {}
        other => panic!("{other:?}"),
    }
    let landed = pair.d.node.read();
    device.release();
    assert!(pair.d.node.read() == landed);
    pair.finish();
}

#[test]
fn bytes_that_landed_are_counted_when_their_sender_says_so() {
    let pair = Pair::new(16);
    assert_eq!(pair.run(), WriteOutcome::Written);
    wait_until(|| pair.d.node.plane.counters().bytes_received == Bytes(16 * BLOCK));
    let revoked = block_on(pair.d.node.plane.revoke(pair.grant));
    assert_eq!(revoked.bytes_landed, 16 * BLOCK);
    let capabilities = pair.d.node.plane.capabilities();
    assert_eq!(capabilities, Capabilities { reregister: true, per_write_grants: false });
    pair.finish();
}
