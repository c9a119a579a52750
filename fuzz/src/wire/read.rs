//! Reading bytes, and what must hold of whatever is read `[Z01]`.

use crate::campaign::{Check, Trace};
use crate::ensure;
use kvbaton_core::wire::{
    Form, LayoutColumns, Limits, Pull, PullRequest, Reply, ToPrefill, describe, describe_reply,
};

/// Most bytes kept per byte of a message: an empty string in a list takes one byte there.
const PER_BYTE: usize = 64;
/// What does not depend on the message.
const CONSTANT: usize = 16 << 10;

/// Reads the bytes both as a message to P and as an answer.
pub(super) fn both(bytes: &[u8], trace: &mut Trace) -> Check {
    message(bytes, trace)?;
    answer(bytes, trace)
}

/// Reads a message to P; what is read must be small, and write back to what reads the same.
fn message(bytes: &[u8], trace: &mut Trace) -> Check {
    trace.step(|| format!("a message of {} bytes", bytes.len()));
    let form = Form::of(bytes);
    let Ok(read) = ToPrefill::decode(bytes, &Limits::default()) else { return Ok(()) };
    trace.note(|| describe(&read));
    check_size(bytes.len(), size_of_message(&read))?;
    ensure!(!describe(&read).is_empty(), "Z01", "no description");
    let mut again = Vec::new();
    match &read {
        ToPrefill::Pull(pull) if form == Form::Stock => pull.encode_stock(&mut again),
        ToPrefill::Pull(pull) => pull.encode_compact(&mut again),
        ToPrefill::Drop(drop) => drop.encode(&mut again),
    }
    let reread = ToPrefill::decode(&again, &Limits::default());
    ensure!(reread.as_ref() == Ok(&read), "Z01", "{read:?} is written and read as {reread:?}");
    Ok(())
}

fn answer(bytes: &[u8], trace: &mut Trace) -> Check {
    trace.step(|| format!("an answer of {} bytes", bytes.len()));
    let Ok(read) = Reply::decode(bytes, &Limits::default()) else { return Ok(()) };
    trace.note(|| describe_reply(&read));
    let names = read.ok.iter().chain(&read.failed).flatten();
    let outcomes = read.extension.iter().flat_map(|it| &it.outcomes);
    let size = names.map(|name| 16 + name.as_str().len()).sum::<usize>()
        + outcomes.map(|(name, ..)| 24 + name.as_str().len()).sum::<usize>()
        + read.message.as_ref().map_or(0, String::capacity);
    check_size(bytes.len(), size)?;
    let mut again = Vec::new();
    read.encode(&mut again);
    let reread = Reply::decode(&again, &Limits::default());
    ensure!(reread.as_ref() == Ok(&read), "Z01", "{read:?} is written and read as {reread:?}");
    Ok(())
}

fn check_size(sent: usize, kept: usize) -> Check {
    ensure!(kept <= PER_BYTE * sent + CONSTANT, "Z01", "{sent} bytes became {kept}");
    Ok(())
}

/// Bytes on the heap that a message holds.
fn size_of_message(message: &ToPrefill) -> usize {
    match message {
        ToPrefill::Pull(pull) => size_of_pull(pull),
        ToPrefill::Drop(drop) => {
            let names = drop.transfers.iter().map(|(a, b, _)| a.as_str().len() + b.as_str().len());
            drop.transfers.capacity() * 40 + names.sum::<usize>()
        }
    }
}

fn size_of_pull(pull: &Pull) -> usize {
    let requests = pull.requests.iter().map(|it| {
        let runs = it.groups.iter().map(|group| 8 * group.runs().len()).sum::<usize>();
        let names = it.request_id.as_str().len() + it.transfer_id.as_str().len();
        it.groups.capacity() * 40 + runs + names
    });
    pull.session.host.len()
        + pull.requests.capacity() * size_of::<PullRequest>()
        + requests.sum::<usize>()
        + pull.layout.as_ref().map_or(0, size_of_columns)
}

fn size_of_columns(columns: &LayoutColumns) -> usize {
    let numbers = columns.base_addrs.capacity()
        + columns.block_lens.capacity()
        + columns.kv_block_lens.capacity()
        + columns.layer_indices.capacity()
        + columns.group_indices.capacity()
        + columns.row_offsets.capacity();
    let names = columns.layer_names.iter().map(String::capacity).sum::<usize>();
    let shared = columns.shared_group_ids.iter().map(|ids| 8 * ids.capacity()).sum::<usize>();
    let more = columns.extension.as_ref().map_or(0, |it| {
        16 * it.memory.capacity() + it.keys.capacity() + it.fingerprint.model.capacity()
    });
    let lists = 24 * (columns.layer_names.capacity() + columns.shared_group_ids.capacity());
    8 * numbers + names + shared + lists + more
}
