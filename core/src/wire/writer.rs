//! Writes msgpack in the smallest form, as the reference encoder does.

/// Appends msgpack values to a buffer.
pub(super) struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    pub(super) fn nil(&mut self) {
        self.out.push(0xc0);
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.out.push(0xc2 | u8::from(value));
    }

    #[inline]
    pub(super) fn uint(&mut self, value: u64) {
        match value {
            0..=0x7f => self.out.push(value as u8),
            0x80..=0xff => self.out.extend_from_slice(&[0xcc, value as u8]),
            0x100..=0xffff => self.tagged(0xcd, (value as u16).to_be_bytes()),
            0x1_0000..=0xffff_ffff => self.tagged(0xce, (value as u32).to_be_bytes()),
            _ => self.tagged(0xcf, value.to_be_bytes()),
        }
    }

    pub(super) fn int(&mut self, value: i64) {
        match value {
            0.. => self.uint(value as u64),
            -32..=-1 => self.out.push(value as u8),
            -0x80..=-33 => self.out.extend_from_slice(&[0xd0, value as u8]),
            -0x8000..=-0x81 => self.tagged(0xd1, (value as i16).to_be_bytes()),
            -0x8000_0000..=-0x8001 => self.tagged(0xd2, (value as i32).to_be_bytes()),
            _ => self.tagged(0xd3, value.to_be_bytes()),
        }
    }

    pub(super) fn str(&mut self, text: &str) {
        match text.len() {
            len @ 0..=31 => self.out.push(0xa0 | len as u8),
            len @ 32..=0xff => self.out.extend_from_slice(&[0xd9, len as u8]),
            len @ 0x100..=0xffff => self.tagged(0xda, (len as u16).to_be_bytes()),
            len => self.tagged(0xdb, length(len).to_be_bytes()),
        }
        self.out.extend_from_slice(text.as_bytes());
    }

    pub(super) fn bin(&mut self, bytes: &[u8]) {
        match bytes.len() {
            len @ 0..=0xff => self.out.extend_from_slice(&[0xc4, len as u8]),
            len @ 0x100..=0xffff => self.tagged(0xc5, (len as u16).to_be_bytes()),
            len => self.tagged(0xc6, length(len).to_be_bytes()),
        }
        self.out.extend_from_slice(bytes);
    }

    /// Starts an array of `len` values.
    pub(super) fn array(&mut self, len: usize) {
        match len {
            0..=15 => self.out.push(0x90 | len as u8),
            16..=0xffff => self.tagged(0xdc, (len as u16).to_be_bytes()),
            _ => self.tagged(0xdd, length(len).to_be_bytes()),
        }
    }

    /// Starts a map of `len` pairs.
    pub(super) fn map(&mut self, len: usize) {
        match len {
            0..=15 => self.out.push(0x80 | len as u8),
            16..=0xffff => self.tagged(0xde, (len as u16).to_be_bytes()),
            _ => self.tagged(0xdf, length(len).to_be_bytes()),
        }
    }

    fn tagged<const N: usize>(&mut self, tag: u8, bytes: [u8; N]) {
        self.out.push(tag);
        self.out.extend_from_slice(&bytes);
    }
}

/// msgpack has no lengths beyond 32 bits; no message of ours comes near.
fn length(len: usize) -> u32 {
    u32::try_from(len).expect("a message holds fewer than 2^32 of anything")
}
