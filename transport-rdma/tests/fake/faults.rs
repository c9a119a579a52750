//! Everything that an adapter may say no to.

use crate::rig::{BLOCK, Pair, Side};
use kvbaton_actors::transport::{TransportError, WriteOutcome};
use kvbaton_core::ids::Bytes;
use kvbaton_data_conformance::{block_on, copy};
use kvbaton_fake_verbs::NewDevice;

/// Statuses that say that the request itself is wrong.
const LOCAL: [u32; 3] = [1, 4, 8];
/// Statuses that another try may mend.
const OTHERS: [u32; 12] = [2, 5, 7, 9, 10, 11, 12, 13, 16, 19, 20, 21];

#[test]
fn f71_each_status_at_each_position_of_a_batch_is_told_or_mended() {
    let pair = Pair::with(9, |config| config.queue_pairs = 1);
    pair.connect();
    let device = pair.p.fabric.device(0);
    for position in 0..9 {
        for status in OTHERS {
            pair.d.node.fill_with(|_| 0);
            device.fail_write(position, status);
            assert_eq!(pair.run(), WriteOutcome::Written, "{status} at {position}");
            assert!(pair.landed_whole(), "{status} at {position}");
        }
        for status in LOCAL {
            device.fail_write(position, status);
            let tries = device.calls("ibv_create_qp");
            match pair.run() {
                WriteOutcome::Failed { error: TransportError::Local { reason, .. }, settled } => {
                    assert!(settled, "the peer confirmed the fence");
                    assert!(reason.contains(&format!("status {status}")), "{reason}");
                }
                other => panic!("{status} at {position}: {other:?}"),
            }
            let made = device.calls("ibv_create_qp") - tries;
            assert!(made <= 2, "not tried again over other queue pairs: {made}");
            pair.connect();
        }
    }
    pair.finish();
}

#[test]
fn f71_a_peer_that_never_answers_fails_a_write_after_a_bounded_number_of_tries() {
    let pair = Pair::with(4, |config| config.retries = 2);
    pair.connect();
    let device = pair.p.fabric.device(0);
    // Each connection's trial write arrives, each write after it does not.
    pair.d.fabric.device(0).set_port(false);
    match pair.run() {
        WriteOutcome::Failed { error, settled: true } => {
            let text = error.to_string();
            assert!(text.contains("down") || text.contains("did not arrive"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    assert!(device.calls("ibv_create_qp") <= 2 * 5);
    pair.d.fabric.device(0).set_port(true);
    assert_eq!(pair.run(), WriteOutcome::Written);
    assert!(pair.landed_whole());
    pair.finish();
}

#[test]
fn f71_the_error_of_one_write_costs_no_other() {
    let pair = Pair::with(64, |config| config.queue_pairs = 1);
    pair.connect();
    let device = pair.p.fabric.device(0);
    device.hold();
    let writes: Vec<_> = (0..8).map(|_| pair.plane().write(pair.write())).collect();
    kvbaton_data_conformance::wait_until(|| device.waiting() > 100);
    device.fail_write(3, LOCAL[1]);
    device.release();
    let outcomes: Vec<_> = writes.into_iter().map(block_on).collect();
    let failed = outcomes.iter().filter(|it| **it != WriteOutcome::Written).count();
    assert_eq!(failed, 1, "{outcomes:?}");
    assert!(pair.landed_whole());
    pair.finish();
}

#[test]
fn out_of_memory_at_each_call_fails_cleanly_or_is_mended() {
    const CALLS: [&str; 8] = [
        "ibv_alloc_pd",
        "ibv_reg_mr",
        "ibv_create_comp_channel",
        "ibv_create_cq",
        "ibv_create_qp",
        "ibv_modify_qp",
        "ibv_query_port",
        "ibv_open_device",
    ];
    for call in CALLS {
        for before in 0..6 {
            let fabric = kvbaton_fake_verbs::Fabric::with(vec![NewDevice::default()]);
            let device = fabric.device(0);
            device.fail_call(call, before, libc::ENOMEM);
            let config = crate::rig::config(&fabric);
            let opened = kvbaton_transport_rdma::RdmaDataPlane::open_with(
                &crate::rig::verbs(),
                Box::new(kvbaton_transport_rdma::NoGpu),
                config,
            );
            let plane = match opened {
                Ok(plane) => plane,
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains(call) && text.contains(&device.name()), "{text}");
                    assert_eq!(device.live(), Default::default(), "{call} {before}");
                    continue;
                }
            };
            let memory = vec![1_u8; 8192].into_boxed_slice();
            let start = kvbaton_core::ids::Address(memory.as_ptr().expose_provenance() as u64);
            let range = kvbaton_core::region::MemoryRange { start, len: Bytes(8192) };
            use kvbaton_actors::transport::DataPlane;
            // SAFETY: the memory is freed after the plane.
            let registered = unsafe { plane.register(&[range]) };
            if let Err(error) = &registered {
                let text = error.to_string();
                assert!(text.contains("memlock"), "{text}");
                // All or nothing: the same range can be registered now.
                // SAFETY: as above.
                unsafe { plane.register(&[range]) }.expect("registers");
            }
            drop(plane);
            drop(memory);
            assert_eq!(device.live(), Default::default(), "{call} {before}");
        }
    }
    // Connecting: whichever side lacks something, the write is carried out in the end.
    for call in ["ibv_create_comp_channel", "ibv_create_cq", "ibv_create_qp", "ibv_modify_qp"] {
        for before in 0..4 {
            let pair = Pair::new(4);
            pair.p.fabric.device(0).fail_call(call, before, libc::ENOMEM);
            pair.d.fabric.device(0).fail_call(call, before, libc::ENOMEM);
            assert_eq!(pair.run(), WriteOutcome::Written, "{call} {before}");
            assert!(pair.landed_whole());
            pair.finish();
        }
    }
}

#[test]
fn f74_posting_goes_on_behind_the_request_that_found_no_room() {
    let pair = Pair::with(200, |config| config.queue_pairs = 1);
    pair.connect();
    let device = pair.p.fabric.device(0);
    for before in [0, 1, 31, 32, 40, 150] {
        pair.d.node.fill_with(|_| 0);
        let carried_out = device.calls("write");
        device.fail_call("ibv_post_send", before, libc::ENOMEM);
        assert_eq!(pair.run(), WriteOutcome::Written, "{before}");
        assert!(pair.landed_whole(), "{before}");
        assert_eq!(device.calls("write") - carried_out, 200, "none was posted twice");
    }
    device.fail_call("ibv_post_send", 3, libc::EINVAL);
    match pair.run() {
        WriteOutcome::Failed { error: TransportError::Local { reason, .. }, settled: true } => {
            assert!(reason.contains("ibv_post_send"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    pair.finish();
}

#[test]
fn f74_neither_queue_overflows_with_many_writes_on_small_queues() {
    let small = NewDevice { max_qp_wr: 8, max_sge: 2, max_cqe: 24, ..NewDevice::default() };
    let len = (500 * BLOCK) as usize;
    let p = Side::with(vec![small], len, 1, |config| config.queue_pairs = 3);
    let pair = Pair::of(p, Side::new(len, 0), 500);
    let writes: Vec<_> = (0..6).map(|_| pair.plane().write(pair.write())).collect();
    for write in writes {
        assert_eq!(block_on(write), WriteOutcome::Written);
    }
    assert!(pair.landed_whole());
    pair.finish();
}

#[test]
fn f72_copies_across_region_boundaries_are_split_on_both_sides() {
    let device = |max_mr_size| NewDevice { max_mr_size, ..NewDevice::default() };
    let len = 1 << 20;
    let p = Side::with(vec![device(96 << 10)], len, 1, |_| {});
    let d = Side::with(vec![device(40 << 10)], len, 0, |_| {});
    assert!(d.fabric.device(0).live().regions >= 26, "cut into regions");
    p.node.fill_with(|offset| (offset >> 4) as u8 ^ offset as u8);
    let grant = d.node.grant(1, 0, len as u64);
    let whole = vec![copy(p.node.at(0), d.node.at(0), len as u64)];
    assert_eq!(p.node.run(p.node.write_to(&d.node, grant, whole)), WriteOutcome::Written);
    assert!(p.node.read() == d.node.read());
    Pair { p, d, grant, blocks: 0 }.finish();
}

#[test]
fn a_flush_that_never_comes_costs_a_moment_and_the_memory_is_not_read_after() {
    let pair = Pair::new(100);
    pair.connect();
    let device = pair.p.fabric.device(0);
    device.lose_flushes();
    device.hold();
    let write = pair.write();
    let id = write.id;
    let future = pair.plane().write(write);
    kvbaton_data_conformance::wait_until(|| device.waiting() > 50);
    pair.plane().cancel(id);
    match block_on(future) {
        WriteOutcome::Failed { error: TransportError::Cancelled { .. }, settled: true } => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(device.waiting(), 0, "its queue pairs are gone");
    device.release();
    assert_eq!(pair.run(), WriteOutcome::Written);
    pair.finish();
}
