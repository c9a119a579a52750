//! Writes, whose copies land one by one, early, late or never.

use crate::memory::{decode_place, prefill_place};
use kvbaton_core::ids::{Generation, Grant};
use kvbaton_core::region::Copy;
use kvbaton_core::sender::SendWriteId;
use kvbaton_core::time::Timestamp;
use std::sync::Arc;

/// A write that is under way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Write {
    /// The P rank.
    pub rank: u8,
    /// P's name of it.
    pub id: SendWriteId,
    /// The transfer that it reads.
    pub transfer: u8,
    /// Its load's grant.
    pub grant: Option<Grant>,
    /// D's registration that it is meant for.
    pub generation: Option<Generation>,
    /// What it copies.
    pub copies: Arc<[Copy]>,
    /// Copies that have landed.
    pub landed: u8,
    /// P's data plane ends it by then.
    pub until: Timestamp,
    /// P's data plane was told to end it early.
    pub cancelled: bool,
    /// P does not wait for it any more, but its bytes are still on their way.
    pub orphan: bool,
}

/// One block of one P rank, as a copy names both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// P's registration and block.
    pub source: (u8, u8),
    /// D's registration and block, and the P rank whose part of the block it is.
    pub target: (u8, u8, u8),
}

impl Write {
    /// P does not wait for it any more: its name and its bound are nobody's.
    pub fn given_up(self) -> Self {
        Self { id: SendWriteId(0), until: Timestamp(0), cancelled: false, orphan: true, ..self }
    }

    /// The next copy to land.
    pub fn next_copy(&self) -> Option<Copy> {
        self.copies.get(usize::from(self.landed)).copied()
    }
}

/// The blocks that a copy touches.
pub fn pieces(copy: Copy, ranks: u8) -> impl Iterator<Item = Piece> {
    const HEAD: u64 = 64;
    (0..copy.len.0 / HEAD).map(move |step| {
        let at = |address: u64| kvbaton_core::ids::Address(address + step * HEAD);
        Piece {
            source: prefill_place(at(copy.source.0)),
            target: decode_place(at(copy.destination.0), ranks),
        }
    })
}
