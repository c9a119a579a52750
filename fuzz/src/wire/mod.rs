//! Control messages: bytes of any kind, and messages that are bent afterwards.

pub(crate) mod make;
mod read;

use crate::campaign::{Campaign, Check, Trace};
use crate::choices::Choices;
use crate::ensure;
use kvbaton_core::wire::{Form, Limits, Reply, ToPrefill};

/// The campaign of raw bytes.
pub const RAW: Campaign = Campaign {
    name: "wire-raw",
    about: "any bytes as a message: read or refused, in bounded memory, stable when re-read",
    bytes: 0..300,
    step_bytes: 1,
    run: raw,
};

/// The campaign of made messages.
pub const STRUCTURED: Campaign = Campaign {
    name: "wire-structured",
    about: "messages of every kind: written, read back equal, then bent and read again",
    bytes: 4..260,
    step_bytes: 1,
    run: structured,
};

/// Bytes that mean something: headers, large lengths, varints of many bytes.
const TELLING: [u8; 18] = [
    0x00, 0x01, 0x7f, 0x80, 0x81, 0x90, 0x91, 0x9a, 0xa0, 0xa3, 0xc0, 0xc4, 0xc6, 0xcf, 0xdb, 0xdd,
    0xdf, 0xff,
];

fn raw(choices: &mut Choices<'_>, trace: &mut Trace) -> Check {
    let prefix: &[u8] = match choices.byte() % 4 {
        // Straight into the two compact messages.
        1 => b"\x81\xa3kvb\x9a\x01",
        2 => b"\x81\xa3kvb\x94\x02",
        _ => b"",
    };
    let bytes = [prefix, choices.rest()].concat();
    read::both(&bytes, trace)
}

fn structured(choices: &mut Choices<'_>, trace: &mut Trace) -> Check {
    let mut bytes = Vec::new();
    let limits = Limits::default();
    match choices.byte() % 4 {
        kind @ (0 | 1) => {
            let stock = kind == 0;
            let pull = make::pull(choices, stock);
            trace.step(|| format!("write and read {pull:?}"));
            let form = if stock {
                pull.encode_stock(&mut bytes);
                Form::Stock
            } else {
                pull.encode_compact(&mut bytes);
                Form::Compact
            };
            ensure!(Form::of(&bytes) == form, "Z01", "is not seen to be {form:?}");
            let read = ToPrefill::decode(&bytes, &limits);
            let same = matches!(&read, Ok(ToPrefill::Pull(it)) if *it == pull);
            ensure!(same, "Z01", "{pull:?} reads back as {read:?}");
        }
        2 => {
            let drop = make::drop(choices);
            trace.step(|| format!("write and read {drop:?}"));
            drop.encode(&mut bytes);
            let read = ToPrefill::decode(&bytes, &limits);
            let same = matches!(&read, Ok(ToPrefill::Drop(it)) if *it == drop);
            ensure!(same, "Z01", "{drop:?} reads back as {read:?}");
        }
        _ => {
            let reply = make::reply(choices);
            trace.step(|| format!("write and read {reply:?}"));
            reply.encode(&mut bytes);
            let read = Reply::decode(&bytes, &limits);
            ensure!(read.as_ref() == Ok(&reply), "Z01", "{reply:?} reads back as {read:?}");
        }
    }
    while !choices.is_over() && !bytes.is_empty() {
        bend(&mut bytes, choices);
        trace.note(|| format!("bent to {bytes:02x?}"));
        read::both(&bytes, trace)?;
    }
    Ok(())
}

/// One change to a message.
fn bend(bytes: &mut Vec<u8>, choices: &mut Choices<'_>) {
    let how = choices.byte();
    let at = usize::from(u16::from_le_bytes([choices.byte(), choices.byte()])) % bytes.len();
    let byte = if how & 0x80 == 0 { choices.one_of(&TELLING) } else { choices.byte() };
    let end = bytes.len().min(at + 1 + usize::from(byte % 24));
    match how % 5 {
        0 => bytes[at] = byte,
        1 => bytes.insert(at, byte),
        2 => drop(bytes.drain(at..end)),
        3 => {
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
        _ => bytes.truncate(at),
    }
}
