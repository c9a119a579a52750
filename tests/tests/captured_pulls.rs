//! Pulls that real vLLM 0.32 and 0.33 decode workers sent, answered by our P over real
//! ZeroMQ, their KV written into a real Mooncake transfer engine.

use kvbaton_core::ids::LayoutId;
use kvbaton_core::sender::Ended;
use kvbaton_core::wire::{FailureReason, Pull, Reply, Status};
use kvbaton_tests::captured::{pointed_at, pull, stock_bytes};
use kvbaton_tests::mooncake::Mooncake;
use kvbaton_tests::node::{NodeOptions, Side, TestNode};
use kvbaton_tests::stock::StockDecode;

/// The largest block id in the captured pulls is 551.
const TARGET_BLOCKS: u64 = 552;

/// A stock D: its control plane, and a transfer engine with a pool of its own.
struct Decode {
    control: StockDecode,
    memory: Mooncake,
    row_bytes: u64,
}

impl Decode {
    fn of(prefill: &TestNode, tp_size: u64) -> Self {
        let row_bytes = 262_144 / tp_size;
        let pool = u64::from(NodeOptions::LAYERS) * TARGET_BLOCKS * row_bytes;
        Self {
            control: StockDecode::connect(&prefill.address()),
            memory: Mooncake::target(pool),
            row_bytes,
        }
    }

    /// A captured pull that names this D's memory.
    fn captured(&self, name: &str) -> Pull {
        pointed_at(pull(name), &self.memory.session, self.memory.address, TARGET_BLOCKS)
    }

    fn pull(&mut self, pull: &Pull) -> Reply {
        self.control.pull(&stock_bytes(pull))
    }

    /// One row of one layer.
    fn row(&mut self, layer: u32, block: u32) -> Vec<u8> {
        let row = u64::from(layer) * TARGET_BLOCKS + u64::from(block);
        self.memory.get(row * self.row_bytes, self.row_bytes)
    }
}

fn prefill(change: impl FnOnce(&mut NodeOptions)) -> TestNode {
    let mut options = NodeOptions::new("prefill", Side::Prefill);
    change(&mut options);
    let node = TestNode::start(options);
    (0..node.options().blocks).for_each(|block| node.paint(block));
    node
}

/// Blocks of the first request, D's in token order.
fn blocks(pull: &Pull) -> Vec<u32> {
    pull.requests[0].groups.iter().flat_map(|group| group.iter()).map(|id| id.0).collect()
}

/// Compares D's blocks with P's `held` ones; `part` is D's part of each of P's rows.
fn assert_landed(
    prefill: &TestNode,
    decode: &mut Decode,
    held: &[u32],
    blocks: &[u32],
    part: usize,
) {
    let len = usize::try_from(decode.row_bytes).expect("a row fits");
    for layer in 0..NodeOptions::LAYERS {
        for (&theirs, &ours) in blocks.iter().zip(held) {
            let source = prefill.row(layer, ours);
            let landed = decode.row(layer, theirs);
            assert!(
                landed == source[part * len..(part + 1) * len],
                "layer {layer}: D's block {theirs} is not P's block {ours}"
            );
        }
    }
}

#[test]
fn l06_a_vllm_0_32_without_layout_ids_is_served_as_ever() {
    let mut prefill = prefill(|_| {});
    let mut decode = Decode::of(&prefill, 1);
    for (name, transfer, held) in
        [("d32_ok_1", "fake0", [2, 3, 9]), ("d32_ok_2", "fake1", [5, 4, 1])]
    {
        let pull = decode.captured(name);
        assert_eq!(pull.layout_id, LayoutId::NONE, "0.32 knows no layout ids");
        prefill.hold(name, transfer, &held[..]);
        let reply = decode.pull(&pull);
        assert_eq!(reply.status, Status::Finish, "{reply:?}");
        assert_eq!(reply.ok, Some(vec![pull.requests[0].request_id.clone()]));
        assert_eq!((reply.layout_id, reply.extension), (LayoutId::NONE, None));
        assert_landed(&prefill, &mut decode, &held, &blocks(&pull), 0);
        assert_eq!(prefill.send_end(name), Ended::Sent);
    }
}

#[test]
fn l03_a_vllm_0_33_gets_its_layout_id_echoed_and_pulls_without_the_layout() {
    let mut prefill = prefill(|options| (options.tp_size, options.tp_rank) = (2, 1));
    let mut decode = Decode::of(&prefill, 2);
    let first = decode.captured("d33tp2_okack_1");
    let second = decode.captured("d33tp2_okack_4");
    assert!(first.layout.is_some() && second.layout.is_none(), "as captured");

    prefill.hold("a", "fake0", &[7][..]);
    let reply = decode.pull(&first);
    assert_eq!((reply.status, reply.layout_id), (Status::Finish, first.layout_id), "{reply:?}");
    assert_landed(&prefill, &mut decode, &[7], &blocks(&first), 0);
    assert_eq!(prefill.send_end("a"), Ended::Sent);

    prefill.hold("b", "fake1", &[11][..]);
    let reply = decode.pull(&second);
    assert_eq!((reply.status, reply.layout_id), (Status::Finish, second.layout_id), "{reply:?}");
    assert_landed(&prefill, &mut decode, &[11], &blocks(&second), 0);
    assert_eq!(prefill.send_end("b"), Ended::Sent);
}

#[test]
fn l05_a_layout_that_p_does_not_hold_is_a_miss_and_the_resend_is_served() {
    let mut prefill = prefill(|options| (options.tp_size, options.tp_rank) = (2, 1));
    let mut decode = Decode::of(&prefill, 2);
    prefill.hold("b", "fake1", &[11][..]);
    let without = decode.captured("d33tp2_okack_4");
    let reply = decode.pull(&without);
    assert_eq!((reply.status, reply.ok), (Status::LayoutMiss, None));

    // 0.33 resends the same pull with its layout.
    let mut with = without.clone();
    with.layout = decode.captured("d33tp2_okack_1").layout;
    let reply = decode.pull(&with);
    assert_eq!((reply.status, reply.layout_id), (Status::Finish, with.layout_id), "{reply:?}");
    assert_landed(&prefill, &mut decode, &[11], &blocks(&with), 0);
    assert_eq!(prefill.send_end("b"), Ended::Sent);
}

#[test]
fn l08_with_room_for_one_layout_two_ds_evict_each_other_and_both_are_served() {
    let mut prefill = prefill(|options| {
        (options.tp_size, options.tp_rank) = (2, 1);
        options.peer_layouts = 1;
    });
    let mut ds = [Decode::of(&prefill, 2), Decode::of(&prefill, 2)];
    let mut misses = 0;
    for turn in 0..3u32 {
        for (number, decode) in ds.iter_mut().enumerate() {
            let transfer = format!("{turn}-{number}");
            let block = 1 + 2 * turn + u32::try_from(number).expect("0 or 1");
            prefill.hold(&transfer, &transfer, &[block][..]);
            let mut pull = decode.captured("d33tp2_okack_4");
            pull.requests[0].transfer_id = transfer.as_str().into();
            let mut reply = decode.pull(&pull);
            if reply.status == Status::LayoutMiss {
                misses += 1;
                pull.layout = decode.captured("d33tp2_okack_1").layout;
                reply = decode.pull(&pull);
            }
            assert_eq!((reply.status, reply.layout_id), (Status::Finish, pull.layout_id));
            assert_landed(&prefill, decode, &[block], &blocks(&pull), 0);
            assert_eq!(prefill.send_end(&transfer), Ended::Sent);
        }
    }
    assert_eq!(misses, 6, "each pull finds the other's layout in the only place");
}

#[test]
fn l11_a_d_that_restarted_on_the_same_host_and_port_is_not_its_predecessor() {
    let mut prefill = prefill(|options| (options.tp_size, options.tp_rank) = (2, 1));
    let mut decode = Decode::of(&prefill, 2);
    prefill.hold("a", "fake0", &[7][..]);
    let before = decode.captured("d33tp2_okack_1");
    assert_eq!(decode.pull(&before).layout_id, before.layout_id);
    assert_eq!(prefill.send_end("a"), Ended::Sent);

    // The same session, another process: nothing of it is known.
    prefill.hold("b", "fake1", &[8][..]);
    let mut after = decode.captured("d33tp2_okack_4");
    after.layout_id = LayoutId(before.layout_id.0 ^ 0x1000);
    assert_eq!(decode.pull(&after).status, Status::LayoutMiss);
    // Its layout lies elsewhere: what lands must follow the new one.
    let shifted = decode.memory.address + 4 * decode.row_bytes;
    after.layout = before.layout.clone();
    after = pointed_at(after, &decode.memory.session.clone(), shifted, TARGET_BLOCKS - 4);
    let reply = decode.pull(&after);
    assert_eq!((reply.status, reply.layout_id), (Status::Finish, after.layout_id));
    let landed = decode.memory.get((4 + u64::from(blocks(&after)[0])) * decode.row_bytes, 4096);
    assert!(landed == prefill.row(0, 8)[..4096], "the new process's rows, not the old one's");
    assert_eq!(prefill.send_end("b"), Ended::Sent);
}

#[test]
fn a04_one_prefill_rank_serves_both_tp_2_ranks_each_its_heads() {
    let mut prefill = prefill(|_| {});
    let held = [3, 4, 12];
    prefill.hold("a", "fake0", &held[..]);
    for (name, rank) in [("d33tp2_ok_2", 0), ("d33tp2_ok_1", 1)] {
        let mut decode = Decode::of(&prefill, 2);
        let pull = decode.captured(name);
        assert_eq!((pull.tp_rank, pull.tp_size), (rank, 2), "as captured");
        let reply = decode.pull(&pull);
        assert_eq!(reply.status, Status::Finish, "{reply:?}");
        let part = usize::try_from(rank).expect("0 or 1");
        assert_landed(&prefill, &mut decode, &held, &blocks(&pull), part);
    }
    assert_eq!(prefill.send_end("a"), Ended::Sent, "once both ranks were answered");
}

#[test]
fn p10_the_pull_without_blocks_that_vllm_sends_after_a_failure_releases() {
    let mut prefill = prefill(|_| {});
    let mut decode = Decode::of(&prefill, 1);
    let release = decode.captured("d32_error_2");
    assert!(blocks(&release).is_empty(), "as captured");
    prefill.hold("a", "fake0", &[1][..]);
    let reply = decode.pull(&release);
    assert_eq!(reply.status, Status::Finish, "an empty pull is answered too [P02]: {reply:?}");
    assert_eq!(prefill.send_end("a"), Ended::Failed(FailureReason::Released));
}
