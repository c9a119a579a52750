//! Frames of our own protocol; `PROTOCOL.md` describes them.

use kvbaton_actors::transport::Rejection;
use kvbaton_core::ids::{Address, Bytes, Generation, Grant};
use kvbaton_core::region::MemoryRange;

/// Bytes of a frame's header, before its table.
pub(super) const HEADER_LEN: usize = 40;
/// Bytes of one table entry.
pub(super) const ENTRY_LEN: usize = 16;
/// Bytes of an acknowledgement.
pub(super) const ACK_LEN: usize = 24;
/// Most entries of a frame; bounds what a receiver allocates.
pub(super) const MAX_ENTRIES: usize = 1024;
/// Most payload bytes of a frame; bounds what a receiver must drain of a refused one.
pub(super) const MAX_PAYLOAD: u64 = 16 << 20;

const KIND_WRITE: u8 = 1;
const FLAG_LAST: u8 = 1;
const FLAG_ABORT: u8 = 2;
const FLAG_GENERATION: u8 = 4;
const FLAG_GRANT: u8 = 8;

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The batch's last frame on this connection: it is answered by an acknowledgement.
    pub(super) last: bool,
    /// The sender gives the rest of the batch up.
    pub(super) abort: bool,
    pub(super) generation: Option<Generation>,
    pub(super) grant: Option<Grant>,
    /// Names the batch on this connection.
    pub(super) batch: u64,
    pub(super) entries: usize,
    pub(super) payload: u64,
}

impl Header {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(self.last, FLAG_LAST)
            | flag(self.abort, FLAG_ABORT)
            | flag(self.generation.is_some(), FLAG_GENERATION)
            | flag(self.grant.is_some(), FLAG_GRANT);
        let entries = u16::try_from(self.entries).expect("at most MAX_ENTRIES");
        out.extend([KIND_WRITE, flags]);
        out.extend(entries.to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.batch.to_le_bytes());
        out.extend(self.generation.map_or(0, |g| g.0).to_le_bytes());
        out.extend(self.grant.map_or(0, |g| g.0).to_le_bytes());
        out.extend(self.payload.to_le_bytes());
    }

    /// Reads a header and checks its bounds `[Z01]`.
    pub(super) fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self, &'static str> {
        let flags = bytes[1];
        if bytes[0] != KIND_WRITE || flags > 15 || bytes[4..8] != [0; 4] {
            return Err("a frame of an unknown kind");
        }
        let entries = usize::from(u16::from_le_bytes([bytes[2], bytes[3]]));
        let payload = word(bytes, 32);
        if entries > MAX_ENTRIES || payload > MAX_PAYLOAD {
            return Err("a frame larger than the protocol allows");
        }
        Ok(Self {
            last: flags & FLAG_LAST != 0,
            abort: flags & FLAG_ABORT != 0,
            generation: (flags & FLAG_GENERATION != 0).then(|| Generation(word(bytes, 16))),
            grant: (flags & FLAG_GRANT != 0).then(|| Grant(word(bytes, 24))),
            batch: word(bytes, 8),
            entries,
            payload,
        })
    }
}

/// Appends one table entry.
pub(super) fn encode_entry(entry: MemoryRange, out: &mut Vec<u8>) {
    out.extend(entry.start.0.to_le_bytes());
    out.extend(entry.len.0.to_le_bytes());
}

/// Reads a table; its lengths must add up to the payload.
pub(super) fn decode_table(
    bytes: &[u8],
    payload: u64,
    into: &mut Vec<MemoryRange>,
) -> Result<(), &'static str> {
    into.clear();
    let mut left = payload;
    for entry in bytes.chunks_exact(ENTRY_LEN) {
        let (start, len) = (Address(word(entry, 0)), Bytes(word(entry, 8)));
        left = left.checked_sub(len.0).ok_or("a table longer than its payload")?;
        into.push(MemoryRange { start, len });
    }
    if left == 0 { Ok(()) } else { Err("a table shorter than its payload") }
}

/// What an acknowledgement says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Every byte of the batch on this connection was applied.
    Applied,
    /// The batch was refused.
    Refused(Rejection),
    /// The sender gave the batch up; nothing of it was refused.
    Aborted,
}

/// One acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ack {
    /// Whether it ends the batch on this connection; a refusal is told early, once,
    /// so that the sender need not send the rest.
    pub(super) last: bool,
    pub(super) verdict: Verdict,
    pub(super) batch: u64,
    /// Bytes of the batch that were applied on this connection.
    pub(super) landed: u64,
}

impl Ack {
    pub(super) fn encode(&self) -> [u8; ACK_LEN] {
        let mut bytes = [0; ACK_LEN];
        bytes[0] = if self.last { 1 } else { 2 };
        bytes[1] = match self.verdict {
            Verdict::Applied => 0,
            Verdict::Refused(Rejection::UnknownGrant) => 1,
            Verdict::Refused(Rejection::StaleGeneration) => 2,
            Verdict::Refused(Rejection::OutsideGrant) => 3,
            Verdict::Refused(Rejection::OutsideMemory) => 4,
            Verdict::Refused(Rejection::GrantRequired) => 5,
            Verdict::Aborted => 6,
        };
        bytes[8..16].copy_from_slice(&self.batch.to_le_bytes());
        bytes[16..].copy_from_slice(&self.landed.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; ACK_LEN]) -> Result<Self, &'static str> {
        let verdict = match bytes[1] {
            0 => Verdict::Applied,
            1 => Verdict::Refused(Rejection::UnknownGrant),
            2 => Verdict::Refused(Rejection::StaleGeneration),
            3 => Verdict::Refused(Rejection::OutsideGrant),
            4 => Verdict::Refused(Rejection::OutsideMemory),
            5 => Verdict::Refused(Rejection::GrantRequired),
            6 => Verdict::Aborted,
            _ => return Err("an acknowledgement with an unknown verdict"),
        };
        if !matches!(bytes[0], 1 | 2) {
            return Err("an acknowledgement of an unknown kind");
        }
        Ok(Self { last: bytes[0] == 1, verdict, batch: word(bytes, 8), landed: word(bytes, 16) })
    }
}

/// The little-endian word at `at`.
pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_wire() {
        for bits in 0..16 {
            let header = Header {
                last: bits & 1 != 0,
                abort: bits & 2 != 0,
                generation: (bits & 4 != 0).then_some(Generation(7)),
                grant: (bits & 8 != 0).then_some(Grant(9)),
                batch: u64::MAX,
                entries: MAX_ENTRIES,
                payload: MAX_PAYLOAD,
            };
            let mut bytes = Vec::new();
            header.encode(&mut bytes);
            let bytes = bytes.try_into().expect("one header");
            assert_eq!(Header::decode(&bytes), Ok(header));
        }
    }

    #[test]
    fn z01_a_table_must_add_up_to_its_payload_without_overflow() {
        let mut table = Vec::new();
        for len in [u64::MAX, 2] {
            encode_entry(MemoryRange { start: Address(1), len: Bytes(len) }, &mut table);
        }
        let mut entries = Vec::new();
        assert!(decode_table(&table, 1, &mut entries).is_err());
        assert!(decode_table(&table[16..], 3, &mut entries).is_err());
        assert_eq!(decode_table(&table[16..], 2, &mut entries), Ok(()));
    }
}
