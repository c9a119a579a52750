//! The states that were visited, in eight bytes each.

use std::sync::{Mutex, PoisonError};

/// Parts with a lock and a growth of their own; which part a state is in says `SHARD_BITS` of
/// its fingerprint, which are not stored therefore.
const SHARD_BITS: u32 = 12;
/// A part grows by a fifth when it is this full, of 1000.
const FULL: usize = 860;

/// States by fingerprint and rest.
///
/// The rest is a set of bits, of which fewer allow less: a state needs no visit when one with
/// the same fingerprint was visited whose rest has at least its bits. States of one fingerprint
/// lie side by side, so that one look finds them.
#[derive(Debug)]
pub struct Visited {
    shards: Vec<Mutex<Shard>>,
    /// Bits of the rest.
    bits: u32,
    /// Whether a rest with more bits stands for one with fewer.
    more_covers_less: bool,
}

#[derive(Debug, Default)]
struct Shard {
    /// 0 is empty.
    slots: Vec<u64>,
    used: usize,
}

impl Visited {
    /// Nothing was visited. Rests have `bits` bits, 24 at most.
    #[must_use]
    pub fn new(bits: u32, more_covers_less: bool) -> Self {
        assert!(bits <= 24, "a rest of {bits} bits leaves too little of a fingerprint");
        let shards = (0..1 << SHARD_BITS).map(|_| Mutex::default()).collect();
        Self { shards, bits, more_covers_less }
    }

    /// Bits of a fingerprint that are compared.
    #[must_use]
    pub const fn width(&self) -> u32 {
        64 - self.bits + SHARD_BITS
    }

    /// Notes a visit; false when it is not needed.
    pub fn insert(&self, print: u128, rest: u32) -> bool {
        let part = (print >> (128 - SHARD_BITS)) as usize;
        // Never 0, which is an empty slot.
        let key = ((print as u64) << self.bits).max(1 << self.bits);
        let low = (1 << self.bits) - 1;
        let mut shard = self.shards[part].lock().unwrap_or_else(PoisonError::into_inner);
        if shard.used * 1000 >= shard.slots.len() * FULL {
            shard.grow(low);
        }
        let mut at = shard.place(key);
        loop {
            let slot = shard.slots[at];
            if slot == 0 {
                shard.slots[at] = key | u64::from(rest);
                shard.used += 1;
                return true;
            }
            let known = (slot & low) as u32;
            let stands_for = known == rest || (self.more_covers_less && rest & !known == 0);
            if slot & !low == key && stands_for {
                return false;
            }
            at = shard.after(at);
        }
    }

    /// States that were visited.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sum(|shard| shard.used)
    }

    /// Whether nothing was visited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.sum(|shard| shard.slots.capacity() * size_of::<u64>())
    }

    fn sum(&self, of: impl Fn(&Shard) -> usize) -> usize {
        self.shards.iter().map(|it| of(&it.lock().unwrap_or_else(PoisonError::into_inner))).sum()
    }
}

impl Shard {
    fn place(&self, key: u64) -> usize {
        ((u128::from(key) * self.slots.len() as u128) >> 64) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    fn grow(&mut self, low: u64) {
        let size = (self.slots.len() * 6 / 5).max(16);
        let old = std::mem::replace(&mut self.slots, vec![0; size]);
        for slot in old.into_iter().filter(|slot| *slot != 0) {
            let mut at = self.place(slot & !low);
            while self.slots[at] != 0 {
                at = self.after(at);
            }
            self.slots[at] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print::wide;

    #[test]
    fn every_state_is_new_once() {
        let visited = Visited::new(3, false);
        for round in 0..2 {
            for state in 0u32..300_000 {
                let (print, rest) = (wide(&(state / 8)), state % 8);
                assert_eq!(visited.insert(print, rest), round == 0, "{state}");
            }
        }
        assert_eq!(visited.len(), 300_000);
        let each = visited.bytes() as f64 / 300_000.0;
        assert!(each < 12.0, "{each} bytes a state");
        assert_eq!(visited.width(), 73);
    }

    #[test]
    fn a_state_that_may_do_more_stands_for_one_that_may_do_less() {
        let visited = Visited::new(3, true);
        let (one, other) = (wide(&1), wide(&2));
        assert!(visited.insert(one, 0b011));
        assert!(!visited.insert(one, 0b001) && !visited.insert(one, 0b000));
        assert!(visited.insert(one, 0b100) && visited.insert(one, 0b111));
        assert!(!visited.insert(one, 0b110));
        assert!(visited.insert(other, 0b000));
    }

    #[test]
    fn the_fingerprint_0_is_a_state_as_well() {
        let visited = Visited::new(1, false);
        assert!(visited.insert(0, 0) && visited.insert(0, 1) && !visited.insert(0, 0));
    }
}
