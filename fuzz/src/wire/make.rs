//! Messages of every kind, made from choices.

use crate::choices::Choices;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::fingerprint::Fingerprint;
use kvbaton_core::ids::{
    Address, BlockId, Bytes, Generation, Grant, Incarnation, LayoutId, SessionAddress,
    WeightVersion,
};
use kvbaton_core::region::{GroupKind, MemoryRange};
use kvbaton_core::wire::{
    DropTransfers, FailureReason, LayoutColumns, LayoutExtension, Pull, PullExtension, PullRequest,
    Reply, ReplyExtension, Status,
};
use std::time::Duration;

const WORDS: [&str; 8] =
    ["", "a", "cmpl-4f1d2c3b-9a8e-0", "model.layers.7.attn", "kvb", "日本é", "10.0.0.2", "fd00::2"];
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

fn word(choices: &mut Choices<'_>) -> String {
    let word = choices.one_of(&WORDS);
    match choices.below(4) {
        0 => word.repeat(choices.below(40)),
        1 => format!("{word}.{}", choices.number()),
        _ => word.to_owned(),
    }
}

fn small(choices: &mut Choices<'_>) -> u32 {
    choices.number() as u32
}

fn signed(choices: &mut Choices<'_>) -> i64 {
    match choices.below(4) {
        0 => -1,
        1 => choices.number() as i64,
        _ => choices.below(200) as i64,
    }
}

fn list<T>(
    choices: &mut Choices<'_>,
    most: usize,
    mut make: impl FnMut(&mut Choices<'_>) -> T,
) -> Vec<T> {
    (0..choices.below(most + 1)).map(|_| make(choices)).collect()
}

fn maybe<T>(choices: &mut Choices<'_>, make: impl FnOnce(&mut Choices<'_>) -> T) -> Option<T> {
    if choices.flip() { Some(make(choices)) } else { None }
}

/// Runs; long ones only where blocks are not written singly.
fn blocks(choices: &mut Choices<'_>, longest: u64) -> BlockList {
    let mut list = BlockList::new();
    for _ in 0..choices.below(5) {
        let start = choices.number() as u32;
        let room = (1u64 << 32) - u64::from(start);
        let len = (1 + choices.number() % longest).min(room);
        list.push_run(BlockId(start), len as u32);
    }
    list
}

/// Columns of equal length, or each of its own.
pub(crate) fn columns(choices: &mut Choices<'_>) -> LayoutColumns {
    let (alike, len) = (choices.below(4) != 0, choices.below(12));
    let count = |choices: &mut Choices<'_>| if alike { len } else { choices.below(5) };
    let mut columns = LayoutColumns::default();
    let many = |n: usize| 0..n;
    columns.base_addrs = many(count(choices)).map(|_| choices.number()).collect();
    columns.block_lens = many(count(choices)).map(|_| choices.number()).collect();
    columns.kv_block_lens = many(count(choices)).map(|_| choices.number()).collect();
    columns.layer_names = many(count(choices)).map(|_| word(choices)).collect();
    columns.layer_indices = many(count(choices)).map(|_| signed(choices)).collect();
    columns.group_indices = many(count(choices)).map(|_| signed(choices)).collect();
    columns.shared_group_ids = many(count(choices)).map(|_| list(choices, 3, signed)).collect();
    columns.row_offsets = many(count(choices)).map(|_| signed(choices)).collect();
    columns
}

fn layout_extension(choices: &mut Choices<'_>) -> LayoutExtension {
    let range = |choices: &mut Choices<'_>| MemoryRange {
        start: Address(choices.number()),
        len: Bytes(choices.number()),
    };
    let kind = |choices: &mut Choices<'_>| {
        if choices.flip() { GroupKind::Attention } else { GroupKind::State }
    };
    LayoutExtension {
        memory: list(choices, 5, range),
        keys: list(choices, 40, |choices| choices.byte()),
        fingerprint: Fingerprint {
            model: word(choices),
            dtype: word(choices),
            block_size: list(choices, 4, small),
            total_kv_heads: small(choices),
            groups: list(choices, 4, kind),
        },
    }
}

/// A pull that the compact form can carry, or, `stock`, one that the stock form can.
pub(super) fn pull(choices: &mut Choices<'_>, stock: bool) -> Pull {
    let longest = if stock { 40 } else { 1 << 26 };
    let host = word(choices);
    let mut pull = Pull {
        session: SessionAddress { host: host.into(), port: choices.number() as u16 },
        tp_size: small(choices),
        tp_rank: small(choices),
        pp_size: if choices.flip() { 1 } else { small(choices) },
        layout_id: LayoutId(if choices.flip() { 0 } else { choices.number() }),
        layout: maybe(choices, columns),
        requests: Vec::new(),
        extension: None,
    };
    for at in 0..choices.below(4) {
        let name = format!("{}-{at}", word(choices));
        pull.requests.push(PullRequest {
            request_id: name.into(),
            transfer_id: word(choices).into(),
            groups: list(choices, 4, |choices| blocks(choices, longest)),
            grant: if stock { None } else { maybe(choices, |it| Grant(it.number())) },
            end_token: if stock { None } else { maybe(choices, small) },
        });
    }
    if stock {
        // A stock reader takes no regions under an id for a layout that P holds.
        let empty = pull.layout.as_ref().is_none_or(|it| it.base_addrs.is_empty());
        match (empty, pull.layout_id.is_none()) {
            (true, false) => pull.layout = None,
            (true, true) => pull.layout = Some(LayoutColumns::default()),
            _ => {}
        }
        return pull;
    }
    if let Some(layout) = &mut pull.layout {
        layout.extension = maybe(choices, layout_extension);
    }
    pull.extension = maybe(choices, |choices| PullExtension {
        revision: small(choices),
        features: choices.number(),
        incarnation: Incarnation(choices.number()),
        generation: Generation(choices.number()),
        timeout: Duration::new(choices.number(), small(choices) % 1_000_000_000),
        weights: WeightVersion(if choices.flip() { choices.number() } else { 0 }),
    });
    pull
}

/// A drop.
pub(super) fn drop(choices: &mut Choices<'_>) -> DropTransfers {
    DropTransfers {
        incarnation: Incarnation(choices.number()),
        tp_rank: small(choices),
        transfers: list(choices, 4, |choices| {
            (word(choices).into(), word(choices).into(), Grant(choices.number()))
        }),
    }
}

/// An answer.
pub(super) fn reply(choices: &mut Choices<'_>) -> Reply {
    let names = |choices: &mut Choices<'_>| list(choices, 4, |it| word(it).into());
    let status = [Status::Finish, Status::Continue, Status::Error, Status::LayoutMiss];
    Reply {
        status: choices.one_of(&status),
        ok: maybe(choices, names),
        failed: maybe(choices, names),
        message: maybe(choices, word),
        layout_id: LayoutId(choices.number()),
        extension: maybe(choices, |choices| ReplyExtension {
            revision: small(choices),
            features: choices.number(),
            incarnation: Incarnation(choices.number()),
            outcomes: list(choices, 4, |choices| {
                (word(choices).into(), choices.one_of(&REASONS), choices.flip())
            }),
        }),
    }
}
