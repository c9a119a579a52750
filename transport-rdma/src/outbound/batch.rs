//! From a write's copies to work requests.

use super::job::{Cursor, Job, Span, local_chunk};
use crate::keys::RemoteKeys;
use crate::verbs::{SendQueue, WritePiece};
use smallvec::SmallVec;

/// What a request may be like on one queue pair.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Which keys the two ends take.
    pub(super) rail: usize,
    pub(super) remote_rail: usize,
    pub(super) pieces: usize,
    pub(super) bytes: u64,
    pub(super) inline: u32,
}

/// One request, as it was taken from a write.
pub(super) struct Taken {
    pub(super) span: Span,
    remote: u64,
    remote_key: u32,
    inline: bool,
    pieces: SmallVec<[WritePiece; 16]>,
}

impl Taken {
    /// Adds it to a batch under a number.
    pub(super) fn push(&self, to: &mut SendQueue, id: u64) {
        to.push(id, &self.pieces, self.remote, self.remote_key, self.inline);
    }
}

/// Takes the next request from a write: local pieces that go to one contiguous remote range
/// under one key. `None` when nothing is left. `Err` when the peer's keys do not cover a
/// destination.
pub(super) fn take_request(
    job: &mut Job,
    keys: &RemoteKeys,
    shape: &Shape,
) -> Result<Option<Taken>, &'static str> {
    let Some(span) = job.todo.front().copied() else { return Ok(None) };
    let write = job.state.clone();
    let copies = &write.write.copies;
    let remote = copies[span.at.copy].destination.0 + span.at.offset;
    let region = keys.find(remote, job.hints.remote).ok_or(UNCOVERED)?;
    job.hints.remote = region;
    let region = &keys.regions[region];
    let remote_key = *region.keys.get(shape.remote_rail).ok_or(UNCOVERED)?;
    let limit = span.bytes.min(shape.bytes).min(region.start + region.len - remote);

    let mut pieces: SmallVec<[WritePiece; 16]> = SmallVec::new();
    let (mut at, mut bytes, mut on_gpu) = (span.at, 0, false);
    while bytes < limit {
        let copy = &copies[at.copy];
        if copy.destination.0 + at.offset != remote + bytes {
            break;
        }
        let address = copy.source.0 + at.offset;
        let chunk = local_chunk(&job.sources, &mut job.hints, address).ok_or(GONE)?;
        let len =
            (copy.len.0 - at.offset).min(limit - bytes).min(chunk.start + chunk.len - address);
        let key = chunk.local_key(shape.rail);
        on_gpu |= chunk.on_gpu;
        let full = pieces.len() == shape.pieces;
        match pieces.last_mut() {
            Some(last) if last.key == key && last.address + u64::from(last.len) == address => {
                // A request is at most 1 GiB, so a piece of it is.
                last.len += len as u32;
            }
            _ if full => break,
            _ => pieces.push(WritePiece { address, len: len as u32, key }),
        }
        bytes += len;
        at.offset += len;
        if at.offset == copy.len.0 {
            at = Cursor { copy: at.copy + 1, offset: 0 };
        }
    }
    match job.todo.front_mut() {
        Some(front) if front.bytes > bytes => *front = Span { at, bytes: front.bytes - bytes },
        _ => {
            job.todo.pop_front();
        }
    }
    let inline = !on_gpu && bytes <= u64::from(shape.inline);
    let span = Span { at: span.at, bytes };
    Ok(Some(Taken { span, remote, remote_key, inline, pieces }))
}

const UNCOVERED: &str = "RDMA keys that do not cover the memory it wants written";
const GONE: &str = "a source that is not registered any more";
