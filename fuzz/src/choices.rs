//! The source of a run's choices: a list of bytes, so that a failing run is its bytes.

/// Reads choices from bytes. Behind the end every choice is the first one.
#[derive(Debug, Clone)]
pub struct Choices<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Choices<'a> {
    /// Choices from the first byte on.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Whether every byte has been read.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// The next byte, 0 behind the end.
    pub fn byte(&mut self) -> u8 {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        byte
    }

    /// A whole step: four bytes that shrinking keeps together; `None` behind the end.
    pub fn step(&mut self) -> Option<[u8; 4]> {
        if self.is_over() {
            return None;
        }
        Some([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// A number below `n`, which is 1 to 256.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n.max(1)
    }

    /// One of `from`, which is not empty.
    pub fn one_of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// True once in two.
    pub fn flip(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// A number of any width: mostly small, sometimes next to an edge.
    pub fn number(&mut self) -> u64 {
        let small = u64::from(self.byte());
        match self.byte() % 8 {
            0..=3 => small,
            4 => small << 8 | u64::from(self.byte()),
            5 => (small << 24 | u64::from(self.byte())) << 8,
            6 => u64::MAX - small,
            _ => 1u64.checked_shl(small as u32 % 64).unwrap_or(0).wrapping_sub(small >> 6),
        }
    }

    /// Everything that has not been read, as it is.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        self.at = self.bytes.len();
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_step_is_filled_up_and_then_there_is_none() {
        let mut choices = Choices::new(&[1, 2, 3, 4, 5]);
        assert_eq!(choices.step(), Some([1, 2, 3, 4]));
        assert_eq!(choices.step(), Some([5, 0, 0, 0]));
        assert_eq!(choices.step(), None);
        assert_eq!(choices.byte(), 0);
        assert!(choices.rest().is_empty());
    }
}
