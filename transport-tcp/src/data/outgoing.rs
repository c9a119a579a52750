//! Cuts the part of a write that one connection carries into frames, ours or Mooncake's.

use super::frame::{self, Header, MAX_ENTRIES};
use super::mooncake::request::{self, Operation};
use super::net::{self, Gather, Piece};
use super::write::WriteState;
use kvbaton_core::ids::{Address, Bytes};
use kvbaton_core::region::MemoryRange;
use std::sync::Arc;

/// Payload bytes of a frame. Small enough that a cancelled write ends soon, large enough
/// that headers cost nothing.
const FRAME_BYTES: u64 = 4 << 20;
/// Requests of Mooncake's that make one frame of ours to send.
const MOONCAKE_REQUESTS: usize = 256;

/// What a connection's peer speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Dialect {
    /// Our own protocol.
    Kvbaton,
    /// Mooncake's data protocol: with statuses (2) or without (1).
    Mooncake { statuses: bool },
}

/// The share of a write that one connection carries.
pub(super) struct Part {
    pub(super) write: Arc<WriteState>,
    copy: usize,
    offset: u64,
    left: u64,
    /// All its bytes.
    pub(super) len: u64,
    /// Whether a byte of it was handed to a socket.
    pub(super) started: bool,
    /// Whether every frame of it was sent.
    pub(super) sent: bool,
    /// Times it was moved to another connection.
    pub(super) moves: u8,
    /// Statuses that a Mooncake peer owes for it.
    pub(super) owed: u64,
    /// Its write has ended; only its acknowledgement is still to come.
    pub(super) detached: bool,
    last_byte: u64,
}

impl Part {
    /// Cuts a write into `count` parts of about the same number of bytes.
    pub(super) fn split(write: &Arc<WriteState>, count: u64) -> Vec<Self> {
        let total = write.total;
        let mut parts = Vec::new();
        let (mut copy, mut offset, mut begin) = (0, 0, 0);
        for index in 1..=count {
            let end = u64::try_from(u128::from(total) * u128::from(index) / u128::from(count))
                .expect("at most the total");
            let len = end - begin;
            if len == 0 {
                continue;
            }
            parts.push(Self::new(write.clone(), copy, offset, len));
            begin = end;
            let mut skip = len;
            while skip > 0 {
                let room = write.write.copies[copy].len.0 - offset;
                let step = room.min(skip);
                skip -= step;
                offset += step;
                if step == room {
                    (copy, offset) = (copy + 1, 0);
                }
            }
        }
        parts
    }

    /// Whether some of it is in no frame yet.
    pub(super) fn has_left(&self) -> bool {
        self.left > 0
    }

    fn new(write: Arc<WriteState>, copy: usize, offset: u64, len: u64) -> Self {
        Self {
            write,
            copy,
            offset,
            left: len,
            len,
            started: false,
            sent: false,
            moves: 0,
            owed: 0,
            detached: false,
            last_byte: 0,
        }
    }

    /// The next piece: source address and destination, at most `most` bytes.
    fn take(&mut self, most: u64) -> (Piece, MemoryRange) {
        let copy = self.write.write.copies[self.copy];
        let len = (copy.len.0 - self.offset).min(self.left).min(most);
        // Sources were checked; a destination that overflows is for the peer to refuse.
        let source = copy.source.0 + self.offset;
        let start = Address(copy.destination.0.wrapping_add(self.offset));
        self.offset += len;
        self.left -= len;
        if self.offset == copy.len.0 {
            (self.copy, self.offset) = (self.copy + 1, 0);
        }
        self.last_byte = start.0.wrapping_add(len).wrapping_sub(1);
        let piece = Piece { address: as_usize(source), len: as_usize(len) };
        (piece, MemoryRange { start, len: Bytes(len) })
    }
}

fn as_usize(number: u64) -> usize {
    usize::try_from(number).expect("registered memory is addressable")
}

/// One frame being sent: heads (ours) and payload (registered memory), in order.
#[derive(Default)]
pub(super) struct Frame {
    /// The batch it belongs to; its part is in the connection's table.
    pub(super) batch: u64,
    heads: Vec<u8>,
    pieces: Vec<Piece>,
    next: usize,
    skip: usize,
}

impl Frame {
    /// Whether all of it was sent.
    pub(super) fn is_done(&self) -> bool {
        self.next == self.pieces.len()
    }

    /// Whether registered memory is read to send it.
    pub(super) fn has_payload(&self) -> bool {
        self.pieces.len() > 1
    }

    /// Forgets what is unsent.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.heads.clear();
        (self.next, self.skip) = (0, 0);
    }

    pub(super) fn gather(&self, into: &mut Gather) {
        into.fill(&self.pieces[self.next..], self.skip);
    }

    /// Notes that so many bytes were sent.
    pub(super) fn advance(&mut self, sent: usize) {
        (self.next, self.skip) = net::advance(&self.pieces, self.next, self.skip, sent);
    }

    /// Makes the part's next frame. A stopped write is given up, in the peer's dialect.
    pub(super) fn build(&mut self, part: &mut Part, batch: u64, dialect: Dialect) {
        self.clear();
        self.batch = batch;
        let stopped = part.write.is_stopped();
        match dialect {
            Dialect::Kvbaton => self.build_own(part, stopped),
            Dialect::Mooncake { statuses } => self.build_mooncake(part, stopped, statuses),
        }
        part.sent = part.left == 0 || stopped;
    }

    fn build_own(&mut self, part: &mut Part, stopped: bool) {
        let mut table = Vec::new();
        let mut payload = 0;
        self.pieces.push(Piece { address: 0, len: 0 });
        while !stopped && part.left > 0 && payload < FRAME_BYTES && table.len() < MAX_ENTRIES {
            let (piece, entry) = part.take(FRAME_BYTES - payload);
            payload += entry.len.0;
            self.pieces.push(piece);
            table.push(entry);
        }
        let header = Header {
            last: stopped || part.left == 0,
            abort: stopped,
            generation: part.write.write.generation,
            grant: part.write.write.grant,
            batch: self.batch,
            entries: table.len(),
            payload,
        };
        header.encode(&mut self.heads);
        table.into_iter().for_each(|entry| frame::encode_entry(entry, &mut self.heads));
        self.pieces[0] =
            Piece { address: self.heads.as_ptr().expose_provenance(), len: self.heads.len() };
    }

    fn build_mooncake(&mut self, part: &mut Part, stopped: bool, statuses: bool) {
        let mut payload = 0;
        // Heads must not move once pieces point at them.
        self.heads.reserve((MOONCAKE_REQUESTS + 1) * request::LEN);
        let mut requests = 0;
        while !stopped && part.left > 0 && payload < FRAME_BYTES && requests < MOONCAKE_REQUESTS {
            let (piece, entry) = part.take(FRAME_BYTES - payload);
            payload += entry.len.0;
            requests += 1;
            self.push_request(Operation::Write, statuses, entry);
            self.pieces.push(piece);
            part.owed += u64::from(statuses);
        }
        if !statuses && !stopped && part.left == 0 {
            // Requests of a connection are served in order, so reading the last byte back
            // proves that every write before it was applied.
            let last = MemoryRange { start: Address(part.last_byte), len: Bytes(1) };
            self.push_request(Operation::Read, false, last);
            part.owed += 1;
        }
    }

    fn push_request(&mut self, operation: Operation, statuses: bool, range: MemoryRange) {
        let at = self.heads.len();
        request::encode(operation, statuses, range, &mut self.heads);
        let address = self.heads.as_ptr().expose_provenance() + at;
        self.pieces.push(Piece { address, len: request::LEN });
    }
}
