//! One write while its link works on it: what is left to post, what is in flight.

use crate::memory::{Chunk, Sources};
use crate::write::WriteState;
use kvbaton_actors::transport::{Rejection, TransportError};
use kvbaton_core::region::Copy;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// A place in a write's copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) copy: usize,
    pub(super) offset: u64,
}

/// A run of a write's bytes, over as many copies as it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) at: Cursor,
    pub(super) bytes: u64,
}

/// Where a write stands at its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The peer was not asked yet.
    New,
    /// The peer was asked whether its grant is live.
    Asked,
    /// It may be written.
    Admitted,
}

/// Why a write ends without all of it having been written.
#[derive(Debug, Clone)]
pub(super) enum Why {
    Refused(Rejection),
    Failed(TransportError),
}

/// One write.
pub(super) struct Job {
    pub(super) state: Arc<WriteState>,
    /// The memory that it reads; empty while nothing of it may be posted.
    pub(super) sources: Sources,
    pub(super) standing: Standing,
    /// What is left to post.
    pub(super) todo: VecDeque<Span>,
    /// Requests posted and not known to be over.
    pub(super) in_flight: usize,
    /// Bytes not acknowledged yet.
    pub(super) left: u64,
    /// Set once it is to end: nothing more of it is posted.
    pub(super) ending: Option<Why>,
    /// When what is in flight is cut off, once it is to end.
    pub(super) cut_at: Option<Instant>,
    /// Whether a request was posted and did not come through.
    pub(super) hurt: bool,
    /// Whether bytes may still land that no fence was confirmed for.
    pub(super) unsettled: bool,
    pub(super) retries: u32,
    /// Where sources and regions were found last.
    pub(super) hints: Hints,
}

/// Indices that are tried first, because the next copy is usually near.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hints {
    pub(super) source: usize,
    pub(super) chunk: usize,
    pub(super) remote: usize,
}

impl Job {
    pub(super) fn new(state: Arc<WriteState>) -> Self {
        let whole = Span { at: Cursor { copy: 0, offset: 0 }, bytes: state.total };
        Self {
            sources: Sources::new(),
            standing: Standing::New,
            todo: VecDeque::from([whole]),
            in_flight: 0,
            left: state.total,
            ending: None,
            cut_at: None,
            hurt: false,
            unsettled: false,
            retries: 0,
            hints: Hints::default(),
            state,
        }
    }

    /// Nothing more of it is posted; the first reason is the one reported.
    pub(super) fn end_with(&mut self, why: Why) {
        self.ending.get_or_insert(why);
        self.todo.clear();
    }

    /// Whether something of it may be posted now.
    pub(super) fn has_work(&self) -> bool {
        self.standing == Standing::Admitted && !self.todo.is_empty()
    }

    /// A request that was posted did not come through: it is posted again later.
    pub(super) fn give_back(&mut self, span: Span) {
        self.in_flight -= 1;
        self.hurt = true;
        self.put_back(span);
    }

    /// A request was not posted: it is later.
    pub(super) fn put_back(&mut self, span: Span) {
        if self.ending.is_none() {
            self.todo.push_front(span);
        }
    }
}

/// The chunk of local memory that holds an address.
pub(super) fn local_chunk<'a>(
    sources: &'a Sources,
    hints: &mut Hints,
    address: u64,
) -> Option<&'a Chunk> {
    if let Some(chunk) = sources.get(hints.source).and_then(|it| it.find(address, hints.chunk)) {
        hints.chunk = chunk;
        return Some(&sources[hints.source].chunks[chunk]);
    }
    let found = sources.iter().enumerate().find_map(|(at, it)| Some((at, it.find(address, 0)?)));
    let (source, chunk) = found?;
    (hints.source, hints.chunk) = (source, chunk);
    Some(&sources[source].chunks[chunk])
}

/// The destinations of a write, adjacent ones made one, at most `most` at a time.
pub(super) fn destinations(
    copies: &[Copy],
    most: usize,
    mut each: impl FnMut(Vec<kvbaton_core::region::MemoryRange>, bool),
) {
    use kvbaton_core::region::MemoryRange;
    let mut ranges: Vec<MemoryRange> = Vec::new();
    for copy in copies {
        match ranges.last_mut().filter(|last| last.end() == Some(copy.destination)) {
            Some(last) => last.len.0 += copy.len.0,
            None => {
                if ranges.len() == most {
                    each(std::mem::take(&mut ranges), false);
                }
                ranges.push(MemoryRange { start: copy.destination, len: copy.len });
            }
        }
    }
    each(ranges, true);
}
