//! The weights of one rank: memory of their own, whose bytes follow from the version, and
//! which sleeps and wakes.

use crate::mapping::Mapping;
use anyhow::{Result, ensure};
use kvbaton_core::ids::Address;
use kvbaton_model_engine::KvMemory;

/// Bytes copied at a time.
const CHUNK: usize = 64 << 10;
/// Words that are looked at before a step.
const LOOKED_AT: usize = 8;

/// The weights in place, and what is kept of them elsewhere while they sleep.
#[derive(Debug)]
pub struct WeightsMemory {
    place: Mapping,
    kept: Option<Mapping>,
}

impl WeightsMemory {
    /// `len` bytes (rounded up to whole chunks) of weights `version`.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new(len: usize, version: u64) -> Result<Self> {
        let place = Mapping::new(len.next_multiple_of(CHUNK).max(CHUNK))?;
        let mut weights = Self { place, kept: None };
        weights.load(version)?;
        Ok(weights)
    }

    /// Puts weights `version` in place.
    ///
    /// # Errors
    /// When there is no place: they sleep.
    pub fn load(&mut self, version: u64) -> Result<()> {
        ensure!(self.place.is_mapped(), "the weights are asleep: wake them first");
        for start in (0..self.place.len()).step_by(CHUNK) {
            let words = (start..start + CHUNK).step_by(8).map(|at| word(version, at));
            let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
            let at = self.at(start);
            self.place.write(at, &bytes);
        }
        Ok(())
    }

    /// Looks at some words, other ones with each `turn`.
    ///
    /// # Panics
    /// When they are not those of `version`: an engine that computes with weights which are
    /// asleep, blank or of another version is wrong.
    pub fn check(&self, version: u64, turn: usize) {
        let words = self.place.len() / 8;
        for look in 0..LOOKED_AT {
            let at = (turn * LOOKED_AT + look).wrapping_mul(0x9e37_79b1) % words * 8;
            let mut found = [0; 8];
            self.place.read(self.at(at), &mut found);
            let right = word(version, at);
            assert_eq!(u64::from_le_bytes(found), right, "weights are not of version {version}");
        }
    }

    /// Keeps a copy elsewhere and gives the place up. Idempotent.
    ///
    /// # Errors
    /// When the system refuses: nothing has changed.
    pub fn unmap(&mut self) -> Result<()> {
        if !self.place.is_mapped() {
            return Ok(());
        }
        let mut kept = Mapping::new(self.place.len())?;
        copy(&self.place, &mut kept);
        self.place.unmap()?;
        self.kept = Some(kept);
        Ok(())
    }

    /// Takes the place again, with what was kept, or blank. Idempotent.
    ///
    /// # Errors
    /// When the system refuses: nothing has changed.
    pub fn map(&mut self) -> Result<()> {
        if self.place.is_mapped() {
            return Ok(());
        }
        self.place.map()?;
        if let Some(kept) = &self.kept {
            copy(kept, &mut self.place);
        }
        Ok(())
    }

    /// Forgets what is kept elsewhere.
    pub fn forget(&mut self) {
        self.kept = None;
    }

    /// Bytes in memory: in place, and kept elsewhere.
    #[must_use]
    pub fn resident(&self) -> (u64, u64) {
        (self.place.resident(), self.kept.as_ref().map_or(0, Mapping::resident))
    }

    fn at(&self, offset: usize) -> Address {
        Address(self.place.start().0 + offset as u64)
    }
}

fn word(version: u64, at: usize) -> u64 {
    let mixed = (version << 32 ^ at as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

fn copy(from: &Mapping, to: &mut Mapping) {
    let mut bytes = vec![0; CHUNK];
    for offset in (0..from.len()).step_by(CHUNK) {
        from.read(Address(from.start().0 + offset as u64), &mut bytes);
        let at = Address(to.start().0 + offset as u64);
        to.write(at, &bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back_and_what_is_forgotten_is_blank() {
        let mut weights = WeightsMemory::new(1 << 20, 4).unwrap();
        assert_eq!(weights.resident(), (1 << 20, 0));
        weights.unmap().unwrap();
        assert_eq!(weights.resident(), (0, 1 << 20));
        weights.map().unwrap();
        weights.forget();
        (0..100).for_each(|turn| weights.check(4, turn));
        weights.unmap().unwrap();
        weights.forget();
        assert_eq!(weights.resident(), (0, 0));
        assert!(weights.load(5).is_err());
        weights.map().unwrap();
        let blank = std::panic::catch_unwind(|| weights.check(4, 0));
        assert!(blank.is_err(), "blank weights are noticed");
        weights.load(5).unwrap();
        weights.check(5, 1);
    }
}
