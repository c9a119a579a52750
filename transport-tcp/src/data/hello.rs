//! The greeting of our own protocol, and the proof of the cluster key `[Z04]`.
//!
//! Both sides send a fresh challenge; each proves the key by a keyed hash over its role
//! and both challenges, so that neither a replayed nor a reflected proof is of any use.

use super::net::{receive_exact, send_all};
use kvbaton_actors::transport::TransportError;
use std::io;
use std::os::fd::RawFd;
use std::time::Instant;

/// The first eight bytes of a client of ours. As a Mooncake frame length it would be far
/// above the bound, so the two cannot be mistaken for each other.
pub const MAGIC: [u8; 8] = *b"kvbaton\x01";
const VERSION: u16 = 1;
const KEYED: u16 = 1;
const CHALLENGE_LEN: usize = 32;
/// Magic, version, flags, four bytes of zero, challenge.
const GREETING_LEN: usize = 16 + CHALLENGE_LEN;
const WELCOME: [u8; 8] = *b"kvb-okay";

type Challenge = [u8; CHALLENGE_LEN];

struct Greeting {
    version: u16,
    keyed: bool,
    challenge: Challenge,
}

impl Greeting {
    fn fresh(keyed: bool) -> Self {
        Self { version: VERSION, keyed, challenge: rand::random() }
    }

    fn encode(&self) -> [u8; GREETING_LEN] {
        let mut bytes = [0; GREETING_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.version.to_le_bytes());
        bytes[10..12].copy_from_slice(&(if self.keyed { KEYED } else { 0 }).to_le_bytes());
        bytes[16..].copy_from_slice(&self.challenge);
        bytes
    }

    /// Decodes what follows the magic.
    fn decode(rest: &[u8; GREETING_LEN - 8]) -> Self {
        Self {
            version: u16::from_le_bytes([rest[0], rest[1]]),
            keyed: u16::from_le_bytes([rest[2], rest[3]]) & KEYED != 0,
            challenge: rest[8..].try_into().expect("32 bytes"),
        }
    }
}

fn proof(key: &[u8; 32], role: &[u8], client: &Challenge, server: &Challenge) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(b"kvbaton data plane 1 ").update(role).update(client).update(server);
    hasher.finalize()
}

/// Greets a server and proves the key to it; `peer` names it in errors.
///
/// # Errors
/// When it is no kvbaton data plane, does not prove the key, or goes away.
pub fn greet(
    socket: RawFd,
    key: Option<&[u8; 32]>,
    peer: &str,
    deadline: Instant,
) -> Result<(), TransportError> {
    let broken = |error: io::Error| broken(peer, &error);
    let foreign = |what: String| TransportError::Malformed { peer: peer.into(), what };
    let not_authentic = |what| TransportError::NotAuthentic { peer: peer.into(), what };

    let ours = Greeting::fresh(key.is_some());
    send_all(socket, &ours.encode(), deadline).map_err(broken)?;
    let mut magic = [0; 8];
    receive_exact(socket, &mut magic, deadline).map_err(broken)?;
    if magic != MAGIC {
        return Err(foreign("a greeting that is not kvbaton's".into()));
    }
    let mut rest = [0; GREETING_LEN - 8];
    receive_exact(socket, &mut rest, deadline).map_err(broken)?;
    let theirs = Greeting::decode(&rest);
    if theirs.version != VERSION {
        let what = format!("data protocol version {}, this is {VERSION}", theirs.version);
        return Err(foreign(what));
    }
    match (key, theirs.keyed) {
        (None, false) => {}
        (None, true) => return Err(not_authentic("it requires a key and none is set here")),
        (Some(_), false) => return Err(not_authentic("it has no key set")),
        (Some(key), true) => {
            let mut claimed = [0; 32];
            receive_exact(socket, &mut claimed, deadline).map_err(broken)?;
            if proof(key, b"server", &ours.challenge, &theirs.challenge) != claimed {
                return Err(not_authentic("its key is another one"));
            }
            let mine = proof(key, b"client", &ours.challenge, &theirs.challenge);
            send_all(socket, mine.as_bytes(), deadline).map_err(broken)?;
        }
    }
    let mut welcome = [0; 8];
    receive_exact(socket, &mut welcome, deadline).map_err(broken)?;
    if welcome == WELCOME { Ok(()) } else { Err(foreign("no welcome".into())) }
}

fn broken(peer: &str, error: &io::Error) -> TransportError {
    let reason = if error.kind() == io::ErrorKind::UnexpectedEof {
        "it closed during the greeting".into()
    } else {
        format!("during the greeting: {error}")
    };
    TransportError::Disconnected { peer: peer.into(), reason }
}

/// Answers a client whose magic was read, and makes it prove the key.
///
/// # Errors
/// When it is of another version, does not prove the key, or goes away.
pub fn answer(
    socket: RawFd,
    key: Option<&[u8; 32]>,
    peer: &str,
    deadline: Instant,
) -> Result<(), TransportError> {
    let broken = |error: io::Error| broken(peer, &error);
    let not_authentic = |what| Err(TransportError::NotAuthentic { peer: peer.into(), what });

    let mut rest = [0; GREETING_LEN - 8];
    receive_exact(socket, &mut rest, deadline).map_err(broken)?;
    let theirs = Greeting::decode(&rest);
    let ours = Greeting::fresh(key.is_some());
    send_all(socket, &ours.encode(), deadline).map_err(broken)?;
    if theirs.version != VERSION {
        let what = format!("data protocol version {}, this is {VERSION}", theirs.version);
        return Err(TransportError::Malformed { peer: peer.into(), what });
    }
    match (key, theirs.keyed) {
        (None, false) => {}
        (None, true) => return not_authentic("it requires a key and none is set here"),
        (Some(_), false) => return not_authentic("it has no key set"),
        (Some(key), true) => {
            let mine = proof(key, b"server", &theirs.challenge, &ours.challenge);
            send_all(socket, mine.as_bytes(), deadline).map_err(broken)?;
            let mut claimed = [0; 32];
            if receive_exact(socket, &mut claimed, deadline).is_err() {
                return not_authentic("it went away instead of proving the same key");
            }
            if proof(key, b"client", &theirs.challenge, &ours.challenge) != claimed {
                return not_authentic("its key is another one");
            }
        }
    }
    send_all(socket, &WELCOME, deadline).map_err(broken)
}
