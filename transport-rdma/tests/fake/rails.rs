//! Several devices, and what happens to their ports.

use crate::rig::{Pair, Side};
use kvbaton_actors::transport::WriteOutcome;
use kvbaton_data_conformance::{block_on, wait_until};
use kvbaton_fake_verbs::NewDevice;

fn two_rails(blocks: u64) -> Pair {
    let side = |fill| {
        let devices = vec![NewDevice::default(), NewDevice::default()];
        let len = (blocks * crate::rig::BLOCK) as usize;
        Side::with(devices, len, fill, |config| config.queue_pairs = 4)
    };
    Pair::of(side(1), side(0), blocks)
}

#[test]
fn writes_are_spread_over_rails() {
    let pair = two_rails(1000);
    assert_eq!(pair.run(), WriteOutcome::Written);
    assert!(pair.landed_whole());
    for rail in 0..2 {
        assert!(pair.p.fabric.device(rail).calls("write") > 100, "rail {rail} is used");
    }
    pair.finish();
}

#[test]
fn f68_the_work_of_a_rail_that_fails_moves_to_another() {
    let pair = two_rails(500);
    pair.connect();
    let dying = pair.p.fabric.device(1);
    dying.hold();
    let future = pair.plane().write(pair.write());
    wait_until(|| dying.waiting() > 10);
    dying.set_port(false);
    assert_eq!(block_on(future), WriteOutcome::Written);
    assert!(pair.landed_whole());
    dying.release();
    let before = dying.calls("write");
    assert_eq!(pair.run(), WriteOutcome::Written);
    assert_eq!(dying.calls("write"), before, "it is not used while it is down");
    dying.set_port(true);
    wait_until(|| {
        assert_eq!(pair.run(), WriteOutcome::Written);
        dying.calls("write") > before
    });
    pair.finish();
}

#[test]
fn a_port_that_comes_back_in_time_costs_no_write() {
    let pair = Pair::with(100, |config| config.retries = 10);
    pair.connect();
    let device = pair.p.fabric.device(0);
    device.set_port(false);
    let future = pair.plane().write(pair.write());
    let asked = device.calls("ibv_query_port");
    device.set_port(true);
    assert_eq!(block_on(future), WriteOutcome::Written);
    assert!(pair.landed_whole());
    assert!(device.calls("ibv_query_port") >= asked);
    pair.finish();
}

#[test]
fn queue_pairs_follow_a_change_of_the_ports_address() {
    let pair = Pair::new(100);
    pair.connect();
    for turn in 0..4 {
        let side = if turn % 2 == 0 { &pair.p } else { &pair.d };
        side.fabric.device(0).change_gid();
        pair.d.node.fill_with(|_| 0);
        assert_eq!(pair.run(), WriteOutcome::Written, "{turn}");
        assert!(pair.landed_whole());
    }
    pair.finish();
}

#[test]
fn queue_pairs_that_break_are_made_again() {
    let pair = Pair::new(100);
    pair.connect();
    for side in [&pair.p, &pair.d] {
        side.fabric.device(0).break_queue_pairs();
        assert_eq!(pair.run(), WriteOutcome::Written);
    }
    pair.finish();
}

#[test]
fn a_device_that_is_gone_says_so() {
    let pair = Pair::with(4, |config| config.retries = 1);
    pair.connect();
    pair.p.fabric.device(0).remove();
    match pair.run() {
        WriteOutcome::Failed { error, .. } => {
            assert!(error.to_string().contains(&pair.p.fabric.device(0).name()), "{error}");
        }
        other => panic!("{other:?}"),
    }
    pair.finish();
}
