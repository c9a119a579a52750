//! `kvbaton inspect`: a captured pull, reply or layout, for a person.

mod input;
mod layout;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use kvbaton_core::wire::{Limits, Reply, ToPrefill, describe, describe_reply};
use serde_json::{Value, json};

/// Decode a captured control message or a layout, and say what it means.
///
/// FILE holds the message's bytes, or their hexadecimal digits; `-` reads standard input.
/// A pull may be in the stock form or in ours. A layout is a JSON object of its columns
/// (`base_addrs`, `block_lens`, `kv_block_lens`, `layer_names`, …), or one inside
/// `{"layout": …}`.
///
/// Exit codes: 0 decoded, 1 the input is none of these, 2 usage.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// File to decode; `-` for standard input.
    file: String,
    /// What the file holds. `auto` tries pull, reply, layout in this order.
    #[arg(long, value_enum, default_value_t = Kind::Auto)]
    kind: Kind,
    /// Print one JSON object: kind, bytes, text.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Auto,
    Pull,
    Reply,
    Layout,
}

/// Runs the command.
///
/// # Errors
/// When the file cannot be read, or is none of the kinds asked for.
pub fn run(args: &InspectArgs) -> Result<()> {
    let bytes = input::read(&args.file)?;
    let (kind, text) = decode(&bytes, args.kind)?;
    if args.json {
        let object: Value = json!({"kind": kind, "bytes": bytes.len(), "text": text});
        println!("{object}");
    } else {
        println!("{kind}, {} bytes\n{text}", bytes.len());
    }
    Ok(())
}

fn decode(bytes: &[u8], kind: Kind) -> Result<(&'static str, String)> {
    let limits = Limits::default();
    let pull = || ToPrefill::decode(bytes, &limits).map(|it| describe(&it));
    let reply = || Reply::decode(bytes, &limits).map(|it| describe_reply(&it));
    match kind {
        Kind::Pull => Ok(("pull", pull().context("this is no pull")?)),
        Kind::Reply => Ok(("reply", reply().context("this is no reply")?)),
        Kind::Layout => Ok(("layout", layout::describe(bytes)?)),
        Kind::Auto => {
            let mut why = Vec::new();
            match pull() {
                Ok(text) => return Ok(("pull", text)),
                Err(error) => why.push(format!("as a pull: {error}")),
            }
            match reply() {
                Ok(text) => return Ok(("reply", text)),
                Err(error) => why.push(format!("as a reply: {error}")),
            }
            match layout::describe(bytes) {
                Ok(text) => return Ok(("layout", text)),
                Err(error) => why.push(format!("as a layout: {error:#}")),
            }
            bail!("the input is neither pull, reply nor layout\n  {}", why.join("\n  "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT_REPLY: &str = "81a673746174757300";

    #[test]
    fn a_reply_is_told_from_a_pull() {
        let bytes = input::from_text(SHORT_REPLY.as_bytes());
        let (kind, text) = decode(&bytes, Kind::Auto).unwrap();
        assert_eq!(kind, "reply");
        assert!(text.to_lowercase().contains("finish"), "{text}");
        assert!(decode(&bytes, Kind::Pull).is_err());
    }

    #[test]
    fn what_is_none_of_them_says_why_for_each() {
        let error = decode(b"\x93\x01\x02\x03", Kind::Auto).unwrap_err().to_string();
        for kind in ["as a pull", "as a reply", "as a layout"] {
            assert!(error.contains(kind), "{error}");
        }
    }
}
