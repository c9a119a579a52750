//! Varints inside the byte strings of the compact form: seven bits a byte, lowest first.

use super::malformed::{Malformed, Problem};
use super::reader::Result;

/// Appends `value`.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed value; small ones of either sign stay short.
pub(super) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends bytes after their length.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads what the functions above wrote.
pub(super) struct Varints<'a> {
    rest: &'a [u8],
    field: &'static str,
    /// Offset of the end of `rest` in the message, for errors.
    end: usize,
}

impl<'a> Varints<'a> {
    /// Reads `bytes`, which end at offset `end` of the message.
    pub(super) fn new(bytes: &'a [u8], field: &'static str, end: usize) -> Self {
        Self { rest: bytes, field, end }
    }

    pub(super) fn is_done(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn remaining(&self) -> usize {
        self.rest.len()
    }

    #[cold]
    pub(super) fn error(&self, problem: Problem) -> Malformed {
        Malformed { field: self.field, offset: self.end - self.rest.len(), problem }
    }

    #[inline]
    pub(super) fn get(&mut self) -> Result<u64> {
        if let Some((&byte @ 0..=0x7f, rest)) = self.rest.split_first() {
            self.rest = rest;
            return Ok(u64::from(byte));
        }
        self.get_long()
    }

    fn get_long(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for (index, &byte) in self.rest.iter().enumerate().take(10) {
            // The tenth byte has room for one bit.
            if index == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(self.error(if self.rest.len() < 10 {
            Problem::Truncated
        } else {
            Problem::OutOfRange { expected: "0 to 2^64 - 1" }
        }))
    }

    #[inline]
    pub(super) fn get_signed(&mut self) -> Result<i64> {
        let value = self.get()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A number of things, each of which takes at least `least` bytes of what follows.
    pub(super) fn get_count(
        &mut self,
        (limit, what): (usize, &'static str),
        least: usize,
    ) -> Result<usize> {
        let count = self.get()?;
        if count > limit as u64 {
            return Err(self.error(Problem::OverLimit { what, limit: limit as u64 }));
        }
        if count > (self.rest.len() / least) as u64 {
            return Err(self.error(Problem::Truncated));
        }
        Ok(count as usize)
    }

    /// UTF-8 after its length.
    pub(super) fn get_str(&mut self, limit: usize) -> Result<&'a str> {
        let len = self.get_count((limit, "bytes in a string"), 1)?;
        let (text, rest) = self.rest.split_at(len);
        let text = std::str::from_utf8(text).map_err(|_| self.error(Problem::NotUtf8))?;
        self.rest = rest;
        Ok(text)
    }
}
