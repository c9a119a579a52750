//! ZMTP 3.x bytes: greeting, frame headers, commands. NULL mechanism only. No I/O.

use crate::key::{NONCE_LEN, Nonce};
use bytes::Bytes;

/// Length of a greeting.
pub(super) const GREETING_LEN: usize = 64;
/// Longest frame header: flags and a 64-bit length.
pub(super) const MAX_HEADER: usize = 9;
/// Longest command taken from a peer, in bytes. READY carries a few short properties.
pub(super) const MAX_COMMAND: usize = 4096;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// READY property of our own: one byte of flags, then the nonce `[Z04]`.
const OFFER_PROPERTY: &str = "X-Kvbaton-Nonce";
/// Flag of the property: the sender serves nobody without proof.
const REQUIRED: u8 = 1;

/// What is wrong with bytes from a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("bytes that are not ZMTP")]
    NotZmtp,
    #[error("a ZMTP version before 3.0")]
    OldVersion,
    #[error("a ZMTP security mechanism other than NULL")]
    Mechanism,
    #[error("a ZMTP frame with unknown flags")]
    Flags,
    #[error("a broken ZMTP command")]
    Command,
    #[error("a ZMTP message before its READY")]
    NotReady,
    #[error("a ZMTP socket type that does not belong here")]
    SocketType,
    #[error("a message of a wrong number of parts")]
    Parts,
}

/// Our greeting: version 3.1, NULL mechanism.
pub(super) fn greeting() -> [u8; GREETING_LEN] {
    let mut greeting = [0; GREETING_LEN];
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[11] = 1;
    greeting[12..16].copy_from_slice(b"NULL");
    greeting
}

/// Checks a peer's greeting. Padding and the as-server flag mean nothing under NULL.
pub(super) fn check_greeting(greeting: &[u8; GREETING_LEN]) -> Result<(), Malformed> {
    if greeting[0] != 0xff || greeting[9] & 1 != 1 {
        return Err(Malformed::NotZmtp);
    }
    if greeting[10] < 3 {
        return Err(Malformed::OldVersion);
    }
    let mut null = [0; 20];
    null[..4].copy_from_slice(b"NULL");
    if greeting[12..32] == null { Ok(()) } else { Err(Malformed::Mechanism) }
}

/// Whether the first bytes of a greeting can still become one.
pub(super) fn may_be_greeting(start: &[u8]) -> bool {
    start.first().is_none_or(|&b| b == 0xff) && start.get(9).is_none_or(|&b| b & 1 == 1)
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) command: bool,
    pub(super) more: bool,
    /// Length of the header itself.
    pub(super) size: usize,
    /// Length of the body, as claimed.
    pub(super) len: u64,
}

/// Parses the header at the start of `bytes`; `None` when it is not there in full.
pub(super) fn parse_header(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let Some(&flags) = bytes.first() else { return Ok(None) };
    let (command, more) = (flags & COMMAND != 0, flags & MORE != 0);
    if flags & !(MORE | LONG | COMMAND) != 0 || (command && more) {
        return Err(Malformed::Flags);
    }
    let header = |size, len| Some(Header { command, more, size, len });
    if flags & LONG == 0 {
        return Ok(bytes.get(1).and_then(|&len| header(2, u64::from(len))));
    }
    let len = bytes.get(1..MAX_HEADER).and_then(|len| <[u8; 8]>::try_from(len).ok());
    Ok(len.and_then(|len| header(MAX_HEADER, u64::from_be_bytes(len))))
}

/// Appends a frame's header.
pub(super) fn put_header(out: &mut Vec<u8>, len: usize, more: bool, command: bool) {
    let flags = (if more { MORE } else { 0 }) | (if command { COMMAND } else { 0 });
    match u8::try_from(len) {
        Ok(len) => out.extend([flags, len]),
        Err(_) => {
            out.push(flags | LONG);
            out.extend((len as u64).to_be_bytes());
        }
    }
}

/// Which end of the pattern a socket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SocketType {
    Dealer,
    Router,
}

impl SocketType {
    const fn name(self) -> &'static str {
        match self {
            Self::Dealer => "DEALER",
            Self::Router => "ROUTER",
        }
    }
}

/// A nonce, and whether its sender insists on proof `[Z04]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) nonce: Nonce,
    pub(super) required: bool,
}

/// What a peer said in its READY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ready {
    /// `None` for a type that is neither DEALER nor ROUTER.
    pub(super) socket_type: Option<SocketType>,
    pub(super) offer: Option<Offer>,
}

/// A command of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    Ready(Ready),
    /// Why the peer is about to close, printable.
    Error(String),
    /// Heartbeat; the context goes back in the PONG.
    Ping(Bytes),
    /// Anything else, PONG among it.
    Other,
}

/// Appends a READY frame.
pub(super) fn put_ready(out: &mut Vec<u8>, socket_type: SocketType, offer: Option<Offer>) {
    let mut body = b"\x05READY".to_vec();
    put_property(&mut body, "Socket-Type", socket_type.name().as_bytes());
    if socket_type == SocketType::Dealer {
        put_property(&mut body, "Identity", b"");
    }
    if let Some(offer) = offer {
        let mut value = vec![if offer.required { REQUIRED } else { 0 }];
        value.extend(offer.nonce);
        put_property(&mut body, OFFER_PROPERTY, &value);
    }
    put_header(out, body.len(), false, true);
    out.extend(body);
}

/// Appends an ERROR frame; the reason is cut at 255 bytes.
pub(super) fn put_error(out: &mut Vec<u8>, reason: &str) {
    let reason = &reason.as_bytes()[..reason.len().min(255)];
    put_header(out, 7 + reason.len(), false, true);
    out.extend(b"\x05ERROR");
    out.push(u8::try_from(reason.len()).unwrap_or(u8::MAX));
    out.extend(reason);
}

/// Appends a PONG frame.
pub(super) fn put_pong(out: &mut Vec<u8>, context: &[u8]) {
    put_header(out, 5 + context.len(), false, true);
    out.extend(b"\x04PONG");
    out.extend(context);
}

fn put_property(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
    out.extend(name.as_bytes());
    out.extend(u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(value);
}

/// Parses a command frame's body.
pub(super) fn parse_command(body: &Bytes) -> Result<Command, Malformed> {
    let mut rest = Cursor(body);
    let name_len = rest.byte()?;
    match rest.take(usize::from(name_len))? {
        b"READY" => parse_ready(rest).map(Command::Ready),
        b"ERROR" => {
            let len = rest.byte()?;
            let reason = String::from_utf8_lossy(rest.take(usize::from(len))?);
            Ok(Command::Error(reason.chars().filter(|c| !c.is_control()).collect()))
        }
        b"PING" => {
            rest.take(2)?; // how long the peer waits for us; it decides that itself
            // The standard bounds the context at 16 bytes.
            if rest.0.len() > 16 {
                return Err(Malformed::Command);
            }
            Ok(Command::Ping(body.slice_ref(rest.0)))
        }
        _ => Ok(Command::Other),
    }
}

fn parse_ready(mut rest: Cursor<'_>) -> Result<Ready, Malformed> {
    let mut ready = Ready { socket_type: None, offer: None };
    while !rest.0.is_empty() {
        let name_len = rest.byte()?;
        let name = rest.take(usize::from(name_len))?;
        let value_len = rest.take(4)?.try_into().map(u32::from_be_bytes);
        let value_len = value_len.ok().and_then(|len| usize::try_from(len).ok());
        let value = rest.take(value_len.ok_or(Malformed::Command)?)?;
        // Property names ignore case.
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            ready.socket_type = match value {
                b"DEALER" => Some(SocketType::Dealer),
                b"ROUTER" => Some(SocketType::Router),
                _ => None,
            };
        } else if name.eq_ignore_ascii_case(OFFER_PROPERTY.as_bytes()) {
            ready.offer = Some(parse_offer(value)?);
        }
    }
    Ok(ready)
}

fn parse_offer(value: &[u8]) -> Result<Offer, Malformed> {
    let (&flags, nonce) = value.split_first().ok_or(Malformed::Command)?;
    let nonce = <[u8; NONCE_LEN]>::try_from(nonce).map_err(|_| Malformed::Command)?;
    Ok(Offer { nonce, required: flags & REQUIRED != 0 })
}

/// Takes bytes off the front; running out is a broken command.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed::Command)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }
}
