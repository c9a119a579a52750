//! Messages as a person reads them, line by line.

use kvbaton_core::blocks::BlockList;
use kvbaton_core::fingerprint::Fingerprint;
use kvbaton_core::ids::{
    Address, Bytes, Generation, Grant, Incarnation, LayoutId, SessionAddress, WeightVersion,
};
use kvbaton_core::region::{GroupKind, MemoryRange};
use kvbaton_core::wire::{
    DropTransfers, FailureReason, LayoutColumns, LayoutExtension, Pull, PullExtension, PullRequest,
    Reply, ReplyExtension, Status, ToPrefill, describe, describe_reply,
};
use std::time::Duration;

fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim_start).collect()
}

fn pull() -> Pull {
    Pull {
        session: SessionAddress { host: "10.0.0.2".into(), port: 7 },
        tp_size: 4,
        tp_rank: 1,
        pp_size: 2,
        layout_id: LayoutId(0x4d),
        layout: None,
        requests: Vec::new(),
        extension: None,
    }
}

/// Four regions: one of its own, two shared ones of different groups, one in a row.
fn columns() -> LayoutColumns {
    let names = ["model.layers.3.attn", "model.layers.4.attn", "tail", "tail"];
    LayoutColumns {
        base_addrs: vec![0, 1, 2, 3],
        block_lens: vec![64, 64, 64, 64],
        kv_block_lens: vec![1, 10, 100, 1000],
        layer_names: names.map(String::from).to_vec(),
        layer_indices: vec![3, 4, 5, 6],
        group_indices: vec![0, -1, -1, 1],
        shared_group_ids: vec![vec![0], vec![0, 1], vec![1, 2], vec![1]],
        row_offsets: vec![-1, -1, -1, 0],
        extension: None,
    }
}

#[test]
fn w_a_pull_of_our_own_is_described_whole() {
    let mut pull = pull();
    let mut layout = columns();
    layout.extension = Some(LayoutExtension {
        memory: vec![MemoryRange { start: Address(0), len: Bytes(4096) }],
        keys: vec![1, 2, 3],
        fingerprint: Fingerprint {
            model: "m\u{1b}".into(),
            dtype: "bf16".into(),
            block_size: vec![16, 8],
            total_kv_heads: 8,
            groups: vec![GroupKind::Attention, GroupKind::State],
        },
    });
    pull.layout = Some(layout);
    pull.extension = Some(PullExtension {
        revision: 1,
        features: 0x3f,
        incarnation: Incarnation(0x11),
        generation: Generation(0x22),
        timeout: Duration::from_millis(1500),
        weights: WeightVersion(7),
    });
    let runs: BlockList = (0..10).flat_map(|run| [run * 10, run * 10 + 1]).collect();
    pull.requests = vec![PullRequest {
        request_id: "r".into(),
        transfer_id: "t".into(),
        groups: vec![runs, [5].into_iter().collect(), BlockList::new()],
        grant: Some(Grant(0x33)),
        end_token: Some(320),
    }];
    let text = describe(&ToPrefill::Pull(pull.clone()));
    assert_eq!(
        lines(&text),
        [
            "pull from 10.0.0.2:7, 1 request",
            "peer: ours, revision 1, features 0x3f, generation 0x0000000000000022, waits 1.5s",
            "runs weights 7",
            "meant for the run of P 0x0000000000000011",
            "D rank: TP 1 of 4, PP size 2",
            "layout id 0x000000000000004d, with the layout:",
            "4 regions",
            "1 × model.layers.{n}.attn: group 0, stride 64, payload 1",
            "1 × model.layers.{n}.attn: group shared by [0, 1], stride 64, payload 10",
            "1 × tail: group 1, stride 64, payload 1000, offset 0 in its row",
            "1 × tail: group shared by [1, 2], stride 64, payload 100",
            "memory: 4096 bytes in 1 range, 3 bytes of keys",
            "fingerprint: model m\\u{1b}, dtype bf16, block_size 16,8, total_kv_heads 8, groups \
             attention,state",
            "request r, transfer t, grant 0x0000000000000033, up to token 320",
            "group 0: 20 blocks in 10 runs, 220 bytes per kernel block of a block: 0..2, 10..12, \
             20..22, 30..32, 40..42, 50..52, 60..62, 70..72, and 2 more",
            "group 1: 1 blocks in 1 run, 1110 bytes per kernel block of a block: 5",
            "group 2: 0 blocks in 0 runs, 0 bytes per kernel block of a block",
        ]
    );
    pull.extension.as_mut().expect("ours").incarnation = Incarnation(0);
    let text = describe(&ToPrefill::Pull(pull));
    assert_eq!(lines(&text)[3], "meant for any run of P");
}

#[test]
fn w_a_stock_pull_says_what_it_lacks() {
    let mut pull = pull();
    pull.layout_id = LayoutId::NONE;
    pull.layout = Some(LayoutColumns {
        base_addrs: vec![0],
        kv_block_lens: vec![10],
        ..LayoutColumns::default()
    });
    let request = |groups| PullRequest {
        request_id: "r\n".into(),
        transfer_id: "t".into(),
        groups,
        grant: None,
        end_token: None,
    };
    pull.requests = vec![
        request(vec![BlockList::run(3, 2), BlockList::run(9, 1)]),
        request(vec![BlockList::new()]),
    ];
    let text = describe(&ToPrefill::Pull(pull.clone()));
    assert_eq!(
        lines(&text),
        [
            "pull from 10.0.0.2:7, 2 requests",
            "peer: stock, no extension",
            "D rank: TP 1 of 4, PP size 2",
            "no layout id (the peer predates it: the layout rides with every pull), with the \
             layout:",
            "1 region",
            "the peer is old, it lacks registered_layer_names, registered_layer_indices, \
             registered_group_indices, registered_shared_group_ids, registered_row_offsets",
            "1 × (no name): group ?, stride ?, payload 10",
            "request r\\n, transfer t",
            "group 0: 2 blocks in 1 run, 20 bytes per kernel block of a block: 3..5",
            "group 1: 1 blocks in 1 run, 0 bytes per kernel block of a block: 9",
            "request r\\n, transfer t: no blocks, asks for a release",
        ]
    );
    // Nothing is lacking where there is no region, and nothing is said of a whole layout.
    pull.layout = Some(LayoutColumns::default());
    assert_eq!(
        lines(&describe(&ToPrefill::Pull(pull.clone())))[4..6],
        ["0 regions", "request r\\n, transfer t"]
    );
    pull.layout = Some(columns());
    assert!(!describe(&ToPrefill::Pull(pull.clone())).contains("lacks"));
    (pull.layout, pull.layout_id) = (None, LayoutId(1));
    let text = describe(&ToPrefill::Pull(pull));
    assert_eq!(
        lines(&text)[3],
        "layout id 0x0000000000000001, no layout: relies on the cache of P"
    );
    assert_eq!(lines(&text)[5], "group 0: 2 blocks in 1 run: 3..5");
}

#[test]
fn w_drops_and_answers_are_described_whole() {
    let drop = DropTransfers {
        incarnation: Incarnation(1),
        tp_rank: 3,
        transfers: vec![("r".into(), "t".into(), Grant(2))],
    };
    assert_eq!(
        lines(&describe(&ToPrefill::Drop(drop))),
        [
            "drop of 1 transfer by TP rank 3, meant for the run of P 0x0000000000000001",
            "request r, transfer t, grant 0x0000000000000002",
        ]
    );
    let mut reply = Reply {
        status: Status::Finish,
        ok: Some(vec!["a".into()]),
        failed: Some(vec!["b".into()]),
        message: Some("why\t".into()),
        layout_id: LayoutId(1),
        extension: Some(ReplyExtension {
            revision: 2,
            features: 16,
            incarnation: Incarnation(3),
            outcomes: vec![
                ("b".into(), FailureReason::Expired, true),
                ("c".into(), FailureReason::Dropped, false),
            ],
        }),
    };
    assert_eq!(
        lines(&describe_reply(&reply)),
        [
            "answer: Finish",
            "P holds layout 0x0000000000000001",
            "landed: a",
            "failed: b",
            "message: why\\t",
            "peer: ours, revision 2, features 0x10, run 0x0000000000000003",
            "outcome of b: Expired, settled",
            "outcome of c: Dropped, not settled",
        ]
    );
    (reply.layout_id, reply.extension) = (LayoutId::NONE, None);
    (reply.ok, reply.failed, reply.message) = (None, None, None);
    assert_eq!(
        lines(&describe_reply(&reply)),
        [
            "answer: Finish",
            "no layout id: P does not say that it holds the layout",
            "peer: stock, no extension",
        ]
    );
}
