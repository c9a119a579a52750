//! Vectors and arbitrary messages for the wire tests.
#![allow(dead_code, reason = "each test binary uses its part")]

use kvbaton_core::blocks::BlockList;
use kvbaton_core::fingerprint::Fingerprint;
use kvbaton_core::ids::{
    Address, Bytes, Generation, Grant, Incarnation, LayoutId, SessionAddress, WeightVersion,
};
use kvbaton_core::region::{GroupKind, MemoryRange};
use kvbaton_core::wire::{
    DropTransfers, FailureReason, LayoutColumns, LayoutExtension, Pull, PullExtension, PullRequest,
    Reply, ReplyExtension, Status,
};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

#[path = "../vector_files/folders.rs"]
mod folders;

use folders::contents;

/// One message that the reference encoder made.
pub struct Vector {
    pub name: String,
    pub fields: Value,
    pub bytes: Vec<u8>,
}

fn own_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

/// The vectors of one kind, from our folder and the one that `KVBATON_VECTORS` names.
pub fn vectors(kind: &str) -> Vec<Vector> {
    let mut vectors = Vec::new();
    for text in contents("wire.json") {
        let file: Value = serde_json::from_str(&text).expect("wire.json is JSON");
        vectors.extend(file[kind].as_array().expect("a list of vectors").iter().map(|vector| {
            Vector {
                name: vector["name"].as_str().expect("a name").to_owned(),
                fields: vector["fields"].clone(),
                bytes: unhex(vector["hex"].as_str().expect("hex")),
            }
        }));
    }
    assert!(!vectors.is_empty());
    vectors
}

/// The bytes of one of our own pulls by name.
pub fn pull_vector(name: &str) -> Vec<u8> {
    let mut pulls = vectors("pulls").into_iter();
    pulls.find(|vector| vector.name == name).expect("a vector of that name").bytes
}

/// Pulls that real vLLM workers sent: name and bytes.
pub fn captured() -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(own_folder().join("captured"))
        .expect("captured pulls")
        .map(|entry| entry.expect("a file").path())
        .map(|path| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, std::fs::read(&path).expect("readable"))
        })
        .collect();
    files.sort();
    files
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |index| u8::from_str_radix(&text[index..index + 2], 16).expect("hex digits");
    (0..text.len()).step_by(2).map(digit).collect()
}

/// The extension of a steady pull, with random-looking numbers of full width; weights are
/// counted.
pub fn extension() -> PullExtension {
    PullExtension {
        revision: 1,
        features: 0x3f,
        incarnation: Incarnation(0xdead_beef_0123_4567),
        generation: Generation(0xfedc_ba98_7654_3210),
        timeout: Duration::from_millis(480_123),
        weights: WeightVersion(0xffff_fffe),
    }
}

/// A layout extension as a node with that layout would send it: one range of memory per
/// region, a key, a fingerprint.
pub fn layout_extension(layout: &LayoutColumns) -> LayoutExtension {
    let rows = layout.base_addrs.iter().zip(&layout.block_lens);
    let mut memory: Vec<_> = rows
        .map(|(base, stride)| MemoryRange { start: Address(*base), len: Bytes(stride * 1027) })
        .collect();
    memory.sort_unstable();
    LayoutExtension {
        memory,
        keys: (0..32).map(|byte| byte * 7).collect(),
        fingerprint: Fingerprint {
            model: "deepseek-ai/DeepSeek-V4@5c2b1f0e9d8c7b6a5f4e3d2c1b0a998877665544".to_owned(),
            dtype: "fp8_e4m3".to_owned(),
            block_size: vec![256, 256, 256, 8],
            total_kv_heads: 0,
            groups: vec![GroupKind::Attention; 4],
        },
    }
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => (0u32..60, 0usize..3).prop_map(|(layer, kind)| {
            format!("model.layers.{layer}.{}", ["attn.mla", "attn.indexer.k_cache", "mlp7"][kind])
        }),
        1 => "([a-z.é日]{0,4}[0-9]{0,21}){0,3}",
        1 => any::<String>(),
    ]
}

fn ids() -> impl Strategy<Value = String> {
    prop_oneof!["cmpl-[0-9a-f]{8}-0", "[a-zü日]{0,40}", "[a-z]{200,300}"]
}

fn numbers() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..300, any::<u32>().prop_map(u64::from), any::<u64>()]
}

fn signed() -> impl Strategy<Value = i64> {
    prop_oneof![-40i64..200, any::<i32>().prop_map(i64::from), any::<i64>()]
}

/// Block ids; few enough to be written singly.
pub fn blocks() -> impl Strategy<Value = BlockList> {
    let start = prop_oneof![0u32..300, any::<u32>(), Just(u32::MAX)];
    vec((start, 1u32..40), 0..5).prop_map(|runs| {
        runs.into_iter().flat_map(|(start, len)| start..=start.saturating_add(len - 1)).collect()
    })
}

/// Runs that claim far more blocks than they take bytes.
pub fn long_runs() -> impl Strategy<Value = BlockList> {
    vec((any::<u32>(), 1u32..1 << 26), 0..4).prop_map(|runs| {
        let mut list = BlockList::new();
        for (start, len) in runs {
            let room = ((1u64 << 32) - u64::from(start)).min(u64::from(len));
            list.push_run(kvbaton_core::ids::BlockId(start), room as u32);
        }
        list
    })
}

/// Requests with names of their own.
fn requests(groups: impl Strategy<Value = BlockList>) -> impl Strategy<Value = Vec<PullRequest>> {
    let request = (ids(), ids(), vec(groups, 0..4), any::<Option<u64>>(), any::<Option<u32>>());
    vec(request, 0..4).prop_map(|requests| {
        let numbered = requests.into_iter().enumerate();
        numbered
            .map(|(index, (id, transfer, groups, grant, end_token))| PullRequest {
                request_id: format!("{id}-{index}").into(),
                transfer_id: transfer.into(),
                groups,
                grant: grant.map(Grant),
                end_token,
            })
            .collect()
    })
}

/// Layout columns: mostly of equal length, as real ones, or each of its own.
pub fn columns() -> impl Strategy<Value = LayoutColumns> {
    let lengths = prop_oneof![
        3 => (0usize..12).prop_map(|len| [len; 8]),
        1 => prop::array::uniform8(0usize..5),
    ];
    lengths.prop_flat_map(|len| {
        (
            vec(numbers(), len[0]),
            vec(numbers(), len[1]),
            vec(numbers(), len[2]),
            vec(names(), len[3]),
            vec(signed(), len[4]),
            vec(signed(), len[5]),
            vec(vec(signed(), 0..3), len[6]),
            vec(signed(), len[7]),
        )
            .prop_map(|columns| LayoutColumns {
                base_addrs: columns.0,
                block_lens: columns.1,
                kv_block_lens: columns.2,
                layer_names: columns.3,
                layer_indices: columns.4,
                group_indices: columns.5,
                shared_group_ids: columns.6,
                row_offsets: columns.7,
                extension: None,
            })
    })
}

fn layout_extensions() -> impl Strategy<Value = LayoutExtension> {
    let kind = prop::sample::select(vec![GroupKind::Attention, GroupKind::State]);
    (
        vec((numbers(), numbers()), 0..6),
        vec(any::<u8>(), 0..40),
        (any::<String>(), any::<String>(), vec(any::<u32>(), 0..4), any::<u32>(), vec(kind, 0..4)),
    )
        .prop_map(|(memory, keys, (model, dtype, block_size, total_kv_heads, groups))| {
            let memory = memory.into_iter();
            LayoutExtension {
                memory: memory
                    .map(|(start, len)| MemoryRange { start: Address(start), len: Bytes(len) })
                    .collect(),
                keys,
                fingerprint: Fingerprint { model, dtype, block_size, total_kv_heads, groups },
            }
        })
}

fn pull_extensions() -> impl Strategy<Value = PullExtension> {
    let waits = (numbers(), 0u32..1_000_000_000);
    let weights = prop_oneof![Just(0), numbers()];
    (any::<u32>(), numbers(), numbers(), numbers(), waits, weights).prop_map(
        |(revision, features, incarnation, generation, (seconds, nanos), weights)| PullExtension {
            revision,
            features,
            incarnation: Incarnation(incarnation),
            generation: Generation(generation),
            timeout: Duration::new(seconds, nanos),
            weights: WeightVersion(weights),
        },
    )
}

fn pulls(groups: impl Strategy<Value = BlockList>) -> impl Strategy<Value = Pull> {
    let layout = prop::option::of((columns(), prop::option::of(layout_extensions())));
    let rank = (any::<u32>(), any::<u32>(), prop_oneof![Just(1), any::<u32>()]);
    let session = (prop_oneof![Just("10.0.0.2".to_owned()), any::<String>()], any::<u16>());
    let layout_id = prop_oneof![Just(0), numbers()];
    (session, rank, layout_id, layout, requests(groups), prop::option::of(pull_extensions()))
        .prop_map(|((host, port), rank, layout_id, layout, requests, extension)| Pull {
            session: SessionAddress { host: host.into(), port },
            tp_size: rank.0,
            tp_rank: rank.1,
            pp_size: rank.2,
            layout_id: LayoutId(layout_id),
            layout: layout.map(|(columns, extension)| LayoutColumns { extension, ..columns }),
            requests,
            extension,
        })
}

/// Any pull that the compact form can carry.
pub fn any_pull() -> impl Strategy<Value = Pull> {
    pulls(prop_oneof![blocks(), long_runs()])
}

/// Any pull that a stock decode worker could send, as a stock reader understands it.
pub fn stock_pull() -> impl Strategy<Value = Pull> {
    pulls(blocks()).prop_map(|pull| as_stock(&pull))
}

/// What remains of a pull in the stock form.
pub fn as_stock(pull: &Pull) -> Pull {
    let mut pull = pull.clone();
    pull.extension = None;
    for request in &mut pull.requests {
        (request.grant, request.end_token) = (None, None);
    }
    let layout = LayoutColumns { extension: None, ..pull.layout.take().unwrap_or_default() };
    let cached = layout.base_addrs.is_empty() && !pull.layout_id.is_none();
    pull.layout = (!cached).then_some(layout);
    pull
}

const REASONS: [FailureReason; 14] = [
    FailureReason::Other,
    FailureReason::Aborted,
    FailureReason::Released,
    FailureReason::Expired,
    FailureReason::TimedOut,
    FailureReason::UnknownIncarnation,
    FailureReason::WriteFailed,
    FailureReason::BlocksDiffer,
    FailureReason::Dropped,
    FailureReason::AlreadyUsed,
    FailureReason::Unavailable,
    FailureReason::Overloaded,
    FailureReason::Reset,
    FailureReason::OtherWeights,
];

/// Any answer, with an extension or without.
pub fn any_reply() -> impl Strategy<Value = Reply> {
    let status = prop::sample::select(vec![
        Status::Finish,
        Status::Continue,
        Status::Error,
        Status::LayoutMiss,
    ]);
    let requests = || prop::option::of(vec(ids().prop_map(Into::into), 0..4));
    let outcome = (ids().prop_map(Into::into), prop::sample::select(&REASONS[..]), any::<bool>());
    let extension = (any::<u32>(), numbers(), numbers(), vec(outcome, 0..4)).prop_map(
        |(revision, features, incarnation, outcomes)| ReplyExtension {
            revision,
            features,
            incarnation: Incarnation(incarnation),
            outcomes,
        },
    );
    let message = any::<Option<String>>();
    (status, requests(), requests(), message, numbers(), prop::option::of(extension)).prop_map(
        |(status, ok, failed, message, layout_id, extension)| Reply {
            status,
            ok,
            failed,
            message,
            layout_id: LayoutId(layout_id),
            extension,
        },
    )
}

/// Any drop.
pub fn any_drop() -> impl Strategy<Value = DropTransfers> {
    let transfer = (ids(), ids(), numbers())
        .prop_map(|(request, transfer, grant)| (request.into(), transfer.into(), Grant(grant)));
    (numbers(), any::<u32>(), vec(transfer, 0..4)).prop_map(|(incarnation, tp_rank, transfers)| {
        DropTransfers { incarnation: Incarnation(incarnation), tp_rank, transfers }
    })
}
