//! Inputs as small text files: bytes in hex, comments behind `#`.

use crate::campaign::{Campaign, Story};
use anyhow::{Context, Result, bail};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of one line.
const PER_LINE: usize = 32;

/// One kept input.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its file.
    pub path: PathBuf,
    /// Its bytes.
    pub input: Vec<u8>,
}

/// The inputs of a campaign below `folder`, by name; none when there is no such folder.
///
/// # Errors
/// When a file cannot be read or is no input.
pub fn entries(folder: &Path, campaign: &Campaign) -> Result<Vec<Entry>> {
    let folder = folder.join(campaign.name);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let listed = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut paths = Vec::new();
    for file in listed {
        let path = file.with_context(|| folder.display().to_string())?.path();
        if path.extension().is_some_and(|it| it == "txt") {
            paths.push(path);
        }
    }
    paths.sort();
    paths.into_iter().map(|path| Ok(Entry { input: read(&path)?, path })).collect()
}

/// Reads one input.
///
/// # Errors
/// When the file cannot be read or is no input.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    parse(&text).with_context(|| path.display().to_string())
}

/// Writes a failing input with its story as comments; returns its path.
///
/// # Errors
/// When the file cannot be written.
pub fn keep(folder: &Path, campaign: &Campaign, input: &[u8], story: &Story) -> Result<PathBuf> {
    let folder = folder.join(campaign.name);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let rule = story.violation.rule.to_lowercase();
    let path = folder.join(format!("{rule}-{:016x}.txt", hash(input)));
    let mut text = String::new();
    for line in story.to_string().lines() {
        let _ = writeln!(text, "# {}", line.trim_end());
    }
    text.push_str(&render(input));
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// The campaign that a file belongs to: the name of its folder.
///
/// # Errors
/// When no campaign has that name.
pub fn campaign_of(path: &Path) -> Result<&'static Campaign> {
    let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    match folder.and_then(crate::campaign) {
        Some(campaign) => Ok(campaign),
        None => bail!(
            "{} lies in no campaign's folder (CORPUS/CAMPAIGN/FILE); name it with --campaign",
            path.display()
        ),
    }
}

/// Bytes as lines of hex.
#[must_use]
pub fn render(input: &[u8]) -> String {
    let mut text = String::new();
    for line in input.chunks(PER_LINE) {
        let bytes: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let _ = writeln!(text, "{}", bytes.join(" "));
    }
    text
}

fn parse(text: &str) -> Result<Vec<u8>> {
    let mut input = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let bytes = line.split_once('#').map_or(line, |(bytes, _)| bytes);
        for word in bytes.split_whitespace() {
            let digits = |at| word.get(at..at + 2).and_then(|it| u8::from_str_radix(it, 16).ok());
            for at in (0..word.len()).step_by(2) {
                let Some(byte) = digits(at) else {
                    bail!("line {}: `{word}` is no list of bytes in hex", number + 1);
                };
                input.push(byte);
            }
        }
    }
    Ok(input)
}

/// FNV-1a: names files, the same everywhere.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_read_back_as_written_without_their_comments() {
        let input: Vec<u8> = (0..100).collect();
        let text = format!("# [P01] a story\n{}", render(&input));
        assert_eq!(parse(&text).unwrap(), input);
        assert_eq!(parse("0a0b 0c # 0d").unwrap(), [10, 11, 12]);
        assert!(parse("0a0").is_err());
        assert!(parse("é").is_err());
    }
}
