//! Bytes of a file, given as they are or in hexadecimal.

use anyhow::{Context, Result};
use std::io::Read;

pub(super) fn read(file: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if file == "-" {
        std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
    } else {
        bytes = std::fs::read(file).with_context(|| format!("cannot read {file}"))?;
    }
    Ok(from_text(&bytes))
}

/// Hexadecimal digits, with any white space, stand for bytes; anything else for itself.
pub(super) fn from_text(bytes: &[u8]) -> Vec<u8> {
    let digits: Vec<u8> = bytes.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
    let hex = !digits.is_empty()
        && digits.len().is_multiple_of(2)
        && digits.iter().all(u8::is_ascii_hexdigit);
    if !hex {
        return bytes.to_vec();
    }
    let value = |digit: u8| (digit as char).to_digit(16).expect("checked") as u8;
    digits.chunks(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_decoded_and_bytes_are_kept() {
        assert_eq!(from_text(b"81 a6\n00"), [0x81, 0xa6, 0x00]);
        assert_eq!(from_text(b"\x81\xa6"), [0x81, 0xa6]);
        assert_eq!(from_text(b"{}"), *b"{}");
        assert_eq!(from_text(b"abc"), *b"abc");
    }
}
