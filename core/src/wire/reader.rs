//! Reads msgpack in any form, bounded by [`Limits`].

use super::limits::Limits;
use super::malformed::{Malformed, Problem};

pub(super) type Result<T> = std::result::Result<T, Malformed>;

/// Walks over the bytes of one message.
#[derive(Clone)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The field being read, for errors.
    pub(super) field: &'static str,
    pub(super) limits: &'a Limits,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of a message.
    ///
    /// # Errors
    /// When the message is longer than the limit.
    pub(super) fn new(bytes: &'a [u8], limits: &'a Limits) -> Result<Self> {
        let reader = Self { bytes, at: 0, field: "message", limits };
        if bytes.len() > limits.frame_bytes {
            return Err(reader.over("bytes", limits.frame_bytes));
        }
        Ok(reader)
    }

    /// Ends the message: nothing may follow.
    pub(super) fn finish(self) -> Result<()> {
        match self.remaining() {
            0 => Ok(()),
            rest => Err(Malformed {
                field: "message",
                offset: self.at,
                problem: Problem::TrailingBytes(rest),
            }),
        }
    }

    pub(super) fn offset(&self) -> usize {
        self.at
    }

    pub(super) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// How many elements to reserve for an array that claims `count`, each of which takes
    /// at least `least` bytes: never more than the bytes at hand can hold.
    pub(super) fn reserve(&self, count: usize, least: usize) -> usize {
        count.min(self.remaining() / least)
    }

    #[cold]
    pub(super) fn error(&self, problem: Problem) -> Malformed {
        Malformed { field: self.field, offset: self.at, problem }
    }

    #[cold]
    fn error_at(&self, offset: usize, problem: Problem) -> Malformed {
        Malformed { field: self.field, offset, problem }
    }

    #[cold]
    pub(super) fn over(&self, what: &'static str, limit: usize) -> Malformed {
        self.error(Problem::OverLimit { what, limit: limit as u64 })
    }

    #[cold]
    fn wrong_type(&self, expected: &'static str) -> Malformed {
        match self.bytes.get(self.at) {
            None => self.error(Problem::Truncated),
            Some(&tag) => self.error(Problem::WrongType { expected, found: type_name(tag) }),
        }
    }

    #[inline]
    fn peek(&self) -> Result<u8> {
        match self.bytes.get(self.at) {
            Some(&tag) => Ok(tag),
            None => Err(self.error(Problem::Truncated)),
        }
    }

    #[inline]
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        // `at` never passes the end, so the subtraction in `remaining` holds.
        if len > self.remaining() {
            return Err(self.error(Problem::Truncated));
        }
        let taken = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(taken)
    }

    /// The `N` bytes after the tag, tag and bytes consumed together.
    #[inline]
    fn after_tag<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.bytes[self.at..].get(1..=N) {
            Some(bytes) => {
                self.at += 1 + N;
                Ok(bytes.try_into().expect("the slice has N bytes"))
            }
            None => Err(self.error(Problem::Truncated)),
        }
    }

    /// Takes a nil if one is next.
    pub(super) fn is_nil(&mut self) -> Result<bool> {
        let nil = self.peek()? == 0xc0;
        self.at += usize::from(nil);
        Ok(nil)
    }

    pub(super) fn bool(&mut self) -> Result<bool> {
        match self.peek()? {
            tag @ (0xc2 | 0xc3) => {
                self.at += 1;
                Ok(tag == 0xc3)
            }
            _ => Err(self.wrong_type("true or false")),
        }
    }

    /// An integer of either sign.
    fn integer(&mut self) -> Result<i128> {
        Ok(match self.peek()? {
            tag @ 0..=0x7f => {
                self.at += 1;
                i128::from(tag)
            }
            tag @ 0xe0..=0xff => {
                self.at += 1;
                i128::from(tag as i8)
            }
            0xcc => i128::from(self.after_tag::<1>()?[0]),
            0xcd => i128::from(u16::from_be_bytes(self.after_tag()?)),
            0xce => i128::from(u32::from_be_bytes(self.after_tag()?)),
            0xcf => i128::from(u64::from_be_bytes(self.after_tag()?)),
            0xd0 => i128::from(i8::from_be_bytes(self.after_tag()?)),
            0xd1 => i128::from(i16::from_be_bytes(self.after_tag()?)),
            0xd2 => i128::from(i32::from_be_bytes(self.after_tag()?)),
            0xd3 => i128::from(i64::from_be_bytes(self.after_tag()?)),
            _ => return Err(self.wrong_type("an integer")),
        })
    }

    fn ranged<T: TryFrom<i128>>(&mut self, expected: &'static str) -> Result<T> {
        let start = self.at;
        let value = self.integer()?;
        T::try_from(value).map_err(|_| self.error_at(start, Problem::OutOfRange { expected }))
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        self.ranged("0 to 65535")
    }

    #[inline]
    pub(super) fn u32(&mut self) -> Result<u32> {
        match self.bytes.get(self.at) {
            Some(&tag @ 0..=0x7f) => {
                self.at += 1;
                Ok(u32::from(tag))
            }
            Some(0xcd) => Ok(u32::from(u16::from_be_bytes(self.after_tag()?))),
            _ => self.ranged("0 to 2^32 - 1"),
        }
    }

    #[inline]
    pub(super) fn u64(&mut self) -> Result<u64> {
        match self.bytes.get(self.at) {
            Some(0xcf) => Ok(u64::from_be_bytes(self.after_tag()?)),
            _ => self.ranged("0 to 2^64 - 1"),
        }
    }

    pub(super) fn i64(&mut self) -> Result<i64> {
        self.ranged("a signed 64-bit integer")
    }

    /// The bytes of a string, not yet checked to be UTF-8.
    pub(super) fn raw_str(&mut self) -> Result<&'a [u8]> {
        let len = match self.peek()? {
            tag @ 0xa0..=0xbf => {
                self.at += 1;
                usize::from(tag & 0x1f)
            }
            0xd9 => usize::from(self.after_tag::<1>()?[0]),
            0xda => usize::from(u16::from_be_bytes(self.after_tag()?)),
            0xdb => wide(u32::from_be_bytes(self.after_tag()?)),
            _ => return Err(self.wrong_type("a string")),
        };
        self.take(len)
    }

    pub(super) fn str(&mut self) -> Result<&'a str> {
        let start = self.at;
        let raw = self.raw_str()?;
        if raw.len() > self.limits.string_bytes {
            let limit = self.limits.string_bytes as u64;
            return Err(
                self.error_at(start, Problem::OverLimit { what: "bytes in a string", limit })
            );
        }
        std::str::from_utf8(raw).map_err(|_| self.error_at(start, Problem::NotUtf8))
    }

    pub(super) fn bin(&mut self) -> Result<&'a [u8]> {
        let len = match self.peek()? {
            0xc4 => usize::from(self.after_tag::<1>()?[0]),
            0xc5 => usize::from(u16::from_be_bytes(self.after_tag()?)),
            0xc6 => wide(u32::from_be_bytes(self.after_tag()?)),
            _ => return Err(self.wrong_type("bytes")),
        };
        self.take(len)
    }

    /// The number of elements of an array.
    #[inline]
    pub(super) fn array(&mut self) -> Result<usize> {
        Ok(match self.peek()? {
            tag @ 0x90..=0x9f => {
                self.at += 1;
                usize::from(tag & 0x0f)
            }
            0xdc => usize::from(u16::from_be_bytes(self.after_tag()?)),
            0xdd => wide(u32::from_be_bytes(self.after_tag()?)),
            _ => return Err(self.wrong_type("an array")),
        })
    }

    /// The number of elements of an array that may not have more than `limit`.
    pub(super) fn array_up_to(&mut self, limit: usize, what: &'static str) -> Result<usize> {
        let start = self.at;
        let len = self.array()?;
        if len > limit {
            return Err(self.error_at(start, Problem::OverLimit { what, limit: limit as u64 }));
        }
        Ok(len)
    }

    /// An array whose first `known` elements have a fixed meaning; gives how many more
    /// elements follow them, for [`Self::skip_values`].
    pub(super) fn array_of_at_least(&mut self, known: usize) -> Result<usize> {
        let start = self.at;
        let len = self.array()?;
        len.checked_sub(known)
            .ok_or_else(|| self.error_at(start, Problem::TooShort { expected: known, found: len }))
    }

    /// Reads an optional-once field into `slot`.
    #[inline]
    pub(super) fn once<T>(
        &mut self,
        field: &'static str,
        slot: &mut Option<T>,
        read: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<()> {
        self.field = field;
        if slot.is_some() {
            return Err(self.error(Problem::Twice));
        }
        *slot = Some(read(self)?);
        self.field = "message";
        Ok(())
    }

    /// The value of a required field that [`Self::once`] filled.
    #[inline]
    pub(super) fn required<T>(&self, field: &'static str, slot: Option<T>) -> Result<T> {
        slot.ok_or(Malformed { field, offset: self.at, problem: Problem::Missing })
    }

    /// An array of up to `limit` values, each of which takes at least `least` bytes.
    pub(super) fn list<T>(
        &mut self,
        (limit, what): (usize, &'static str),
        least: usize,
        mut read: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let count = self.array_up_to(limit, what)?;
        let mut values = Vec::with_capacity(self.reserve(count, least));
        for _ in 0..count {
            values.push(read(self)?);
        }
        Ok(values)
    }

    /// The number of pairs of a map.
    pub(super) fn map(&mut self) -> Result<usize> {
        Ok(match self.peek()? {
            tag @ 0x80..=0x8f => {
                self.at += 1;
                usize::from(tag & 0x0f)
            }
            0xde => usize::from(u16::from_be_bytes(self.after_tag()?)),
            0xdf => wide(u32::from_be_bytes(self.after_tag()?)),
            _ => return Err(self.wrong_type("a map")),
        })
    }

    /// A field's name as bytes; `None`, and nothing consumed, when the key is no string.
    pub(super) fn key(&mut self) -> Result<Option<&'a [u8]>> {
        match self.peek()? {
            0xa0..=0xbf | 0xd9..=0xdb => self.raw_str().map(Some),
            _ => Ok(None),
        }
    }

    /// Skips `count` values of any type.
    pub(super) fn skip_values(&mut self, count: usize) -> Result<()> {
        self.skip(count as u64, self.limits.nesting)
    }

    /// Skips values, with at most `depth` levels of arrays and maps in them.
    fn skip(&mut self, count: u64, depth: usize) -> Result<()> {
        for _ in 0..count {
            let inner = match self.peek()? {
                0x80..=0x8f | 0xde | 0xdf => 2 * self.map()? as u64,
                0x90..=0x9f | 0xdc | 0xdd => self.array()? as u64,
                tag => {
                    self.skip_scalar(tag)?;
                    continue;
                }
            };
            match depth.checked_sub(1) {
                Some(depth) => self.skip(inner, depth)?,
                None => return Err(self.over("levels of nesting", self.limits.nesting)),
            }
        }
        Ok(())
    }

    fn skip_scalar(&mut self, tag: u8) -> Result<()> {
        let len = match tag {
            0..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => 0,
            0xcc | 0xd0 => 1,
            0xcd | 0xd1 => 2,
            0xce | 0xd2 | 0xca => 4,
            0xcf | 0xd3 | 0xcb => 8,
            0xa0..=0xbf | 0xd9..=0xdb => return self.raw_str().map(drop),
            0xc4..=0xc6 => return self.bin().map(drop),
            // Extension types carry one byte more, their own tag.
            0xd4..=0xd8 => 1 + (1 << (tag - 0xd4)),
            0xc7 => return self.skip_long(1),
            0xc8 => return self.skip_long(2),
            0xc9 => return self.skip_long(4),
            _ => return Err(self.wrong_type("a msgpack value")),
        };
        self.take(1 + len).map(drop)
    }

    /// Skips an extension type whose length has `width` bytes.
    fn skip_long(&mut self, width: usize) -> Result<()> {
        let header = self.take(1 + width)?;
        let len = header[1..].iter().fold(0, |len, &byte| len << 8 | usize::from(byte));
        self.take(1 + len).map(drop)
    }
}

fn wide(len: u32) -> usize {
    len as usize
}

fn type_name(tag: u8) -> &'static str {
    match tag {
        0..=0x7f | 0xcc..=0xd3 | 0xe0..=0xff => "an integer",
        0x80..=0x8f | 0xde | 0xdf => "a map",
        0x90..=0x9f | 0xdc | 0xdd => "an array",
        0xa0..=0xbf | 0xd9..=0xdb => "a string",
        0xc0 => "nil",
        0xc1 => "no msgpack value",
        0xc2 | 0xc3 => "true or false",
        0xc4..=0xc6 => "bytes",
        0xc7..=0xc9 | 0xd4..=0xd8 => "an extension type",
        0xca | 0xcb => "a float",
    }
}
