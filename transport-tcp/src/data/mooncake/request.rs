//! Requests and statuses of Mooncake's data protocol, 24 and 8 bytes.

use super::super::frame::word;
use kvbaton_core::ids::{Address, Bytes};
use kvbaton_core::region::MemoryRange;

/// Bytes of a request's header.
pub(in crate::data) const LEN: usize = 24;
/// Bytes of a status.
pub(in crate::data) const STATUS_LEN: usize = 8;
/// Set in the operation when the peer wants a status.
const STATUSES: u8 = 0x80;
const STATUS_MAGIC: u64 = 0x4D43_5456;

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::data) enum Operation {
    /// Send me memory.
    Read,
    /// Take what follows into memory.
    Write,
}

/// One decoded request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::data) struct Request {
    pub(in crate::data) operation: Operation,
    pub(in crate::data) statuses: bool,
    pub(in crate::data) range: MemoryRange,
}

/// Appends a request's header.
pub(in crate::data) fn encode(
    operation: Operation,
    statuses: bool,
    range: MemoryRange,
    out: &mut Vec<u8>,
) {
    let code = match operation {
        Operation::Read => 0,
        Operation::Write => 1,
    };
    out.extend(range.len.0.to_le_bytes());
    out.extend(range.start.0.to_le_bytes());
    out.push(if statuses { code | STATUSES } else { code });
    out.extend([0; 7]);
}

/// Reads a request's header; `None` for an operation that does not exist.
pub(in crate::data) fn decode(bytes: &[u8; LEN]) -> Option<Request> {
    let operation = match bytes[16] & !STATUSES {
        0 => Operation::Read,
        1 => Operation::Write,
        _ => return None,
    };
    let range = MemoryRange { start: Address(word(bytes, 8)), len: Bytes(word(bytes, 0)) };
    Some(Request { operation, statuses: bytes[16] & STATUSES != 0, range })
}

/// Makes a status: applied, or refused.
pub(in crate::data) fn status(applied: bool) -> [u8; STATUS_LEN] {
    (STATUS_MAGIC << 32 | u64::from(!applied)).to_le_bytes()
}

/// Reads a status: whether it was applied; `None` if it is no status.
pub(in crate::data) fn decode_status(bytes: [u8; STATUS_LEN]) -> Option<bool> {
    let status = u64::from_le_bytes(bytes);
    (status >> 32 == STATUS_MAGIC).then_some(status & 0xffff_ffff == 0)
}
