//! Frames of the side channel; `PROTOCOL.md` describes them.

use crate::config::{MAX_QUEUE_PAIRS, MAX_RAILS};
use crate::verbs::{Endpoint, Gid};
use kvbaton_actors::transport::Rejection;
use kvbaton_core::ids::{Address, Bytes, Generation, Grant};
use kvbaton_core::region::MemoryRange;

/// First bytes after the greeting: which protocol, and its version.
pub(crate) const MAGIC: [u8; 8] = *b"kvbrdma\x01";
/// Longest frame after its length, in bytes.
pub(crate) const MAX_FRAME: usize = 1 << 20;
/// Most ranges of one [`ToReceiver::Open`].
pub(crate) const MAX_RANGES: usize = 32_768;
const MAX_TEXT: usize = 1024;

/// What a sender asks for when it connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Connect {
    /// The sender's data plane; new after a restart.
    pub(crate) instance: u64,
    /// Grows with each try of the instance; a receiver serves the latest `[F70]`.
    pub(crate) attempt: u64,
    /// The registration it wants to write to.
    pub(crate) generation: Generation,
    pub(crate) endpoints: Vec<Endpoint>,
}

/// A receiver's end of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AcceptedEndpoint {
    pub(crate) endpoint: Endpoint,
    /// Which of the remote keys it takes.
    pub(crate) rail: u8,
    /// Eight bytes to try a write on.
    pub(crate) scratch: u64,
    pub(crate) scratch_key: u32,
}

/// Why a receiver does not connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    StaleGeneration,
    /// A later attempt of the same sender is served.
    Late,
    /// It lacks a device, a queue pair, …
    Resources,
}

/// Frames towards the side that is written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToReceiver {
    Connect(Connect),
    /// Asks whether a write may begin. Its destinations may take several frames.
    Open {
        number: u64,
        grant: Grant,
        last: bool,
        ranges: Vec<MemoryRange>,
    },
    /// A write is over: nothing of it can land any more. `bytes` landed.
    Close {
        number: u64,
        bytes: u64,
    },
    Ping(u64),
    /// Asks that every queue pair of this connection be fenced.
    Bye,
}

/// Frames towards the side that writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToSender {
    Accept {
        attempt: u64,
        endpoints: Vec<AcceptedEndpoint>,
    },
    Refuse {
        attempt: u64,
        why: Refusal,
        text: String,
    },
    Opened {
        number: u64,
        verdict: Result<(), Rejection>,
    },
    Pong(u64),
    /// A grant is about to end: stop what is under way under it.
    Stop(Grant),
    /// Every queue pair of this connection is fenced.
    Fenced,
}

impl ToReceiver {
    /// Appends the frame, with its length.
    pub(crate) fn put(&self, to: &mut Vec<u8>) {
        frame(to, |to| match self {
            Self::Connect(connect) => {
                to.push(1);
                put_u64(to, connect.instance);
                put_u64(to, connect.attempt);
                put_u64(to, connect.generation.0);
                to.push(connect.endpoints.len() as u8);
                connect.endpoints.iter().for_each(|it| put_endpoint(to, it));
            }
            Self::Open { number, grant, last, ranges } => {
                to.push(2);
                put_u64(to, *number);
                put_u64(to, grant.0);
                to.push(u8::from(*last));
                let mut end = 0_u64;
                for range in ranges {
                    put_varint(to, zigzag(range.start.0.wrapping_sub(end) as i64));
                    put_varint(to, range.len.0);
                    end = range.start.0.wrapping_add(range.len.0);
                }
            }
            Self::Close { number, bytes } => {
                to.push(3);
                put_u64(to, *number);
                put_u64(to, *bytes);
            }
            Self::Ping(number) => {
                to.push(4);
                put_u64(to, *number);
            }
            Self::Bye => to.push(5),
        });
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Result<Self, &'static str> {
        let rest = &mut bytes;
        let frame = match take_u8(rest)? {
            1 => {
                let (instance, attempt) = (take_u64(rest)?, take_u64(rest)?);
                let generation = Generation(take_u64(rest)?);
                let count = usize::from(take_u8(rest)?);
                if count == 0 || count > MAX_QUEUE_PAIRS {
                    return Err("a number of queue pairs out of bounds");
                }
                let endpoints =
                    (0..count).map(|_| take_endpoint(rest)).collect::<Result<_, _>>()?;
                Self::Connect(Connect { instance, attempt, generation, endpoints })
            }
            2 => {
                let (number, grant) = (take_u64(rest)?, Grant(take_u64(rest)?));
                let last = take_u8(rest)? != 0;
                let mut ranges = Vec::new();
                let mut end = 0_u64;
                while !rest.is_empty() {
                    if ranges.len() == MAX_RANGES {
                        return Err("too many ranges in one frame");
                    }
                    let start = end.wrapping_add(unzigzag(take_varint(rest)?) as u64);
                    let len = take_varint(rest)?;
                    end = start.wrapping_add(len);
                    ranges.push(MemoryRange { start: Address(start), len: Bytes(len) });
                }
                Self::Open { number, grant, last, ranges }
            }
            3 => Self::Close { number: take_u64(rest)?, bytes: take_u64(rest)? },
            4 => Self::Ping(take_u64(rest)?),
            5 => Self::Bye,
            _ => return Err("a frame of an unknown kind"),
        };
        if rest.is_empty() { Ok(frame) } else { Err("a frame that is too long for its kind") }
    }
}

impl ToSender {
    /// Appends the frame, with its length.
    pub(crate) fn put(&self, to: &mut Vec<u8>) {
        frame(to, |to| match self {
            Self::Accept { attempt, endpoints } => {
                to.push(1);
                put_u64(to, *attempt);
                to.push(endpoints.len() as u8);
                for it in endpoints {
                    put_endpoint(to, &it.endpoint);
                    to.push(it.rail);
                    put_u64(to, it.scratch);
                    put_u32(to, it.scratch_key);
                }
            }
            Self::Refuse { attempt, why, text } => {
                to.push(2);
                put_u64(to, *attempt);
                to.push(match why {
                    Refusal::StaleGeneration => 1,
                    Refusal::Late => 2,
                    Refusal::Resources => 3,
                });
                to.extend(text.bytes().take(MAX_TEXT));
            }
            Self::Opened { number, verdict } => {
                to.push(3);
                put_u64(to, *number);
                to.push(match verdict {
                    Ok(()) => 0,
                    Err(Rejection::UnknownGrant) => 1,
                    Err(Rejection::StaleGeneration) => 2,
                    Err(Rejection::OutsideGrant) => 3,
                    Err(Rejection::OutsideMemory) => 4,
                    Err(Rejection::GrantRequired) => 5,
                });
            }
            Self::Pong(number) => {
                to.push(4);
                put_u64(to, *number);
            }
            Self::Stop(grant) => {
                to.push(5);
                put_u64(to, grant.0);
            }
            Self::Fenced => to.push(6),
        });
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Result<Self, &'static str> {
        let rest = &mut bytes;
        let frame = match take_u8(rest)? {
            1 => {
                let (attempt, count) = (take_u64(rest)?, usize::from(take_u8(rest)?));
                if count > MAX_QUEUE_PAIRS {
                    return Err("a number of queue pairs out of bounds");
                }
                let mut endpoints = Vec::with_capacity(count);
                for _ in 0..count {
                    let (endpoint, rail) = (take_endpoint(rest)?, take_u8(rest)?);
                    if usize::from(rail) >= MAX_RAILS {
                        return Err("a rail out of bounds");
                    }
                    let (scratch, scratch_key) = (take_u64(rest)?, take_u32(rest)?);
                    endpoints.push(AcceptedEndpoint { endpoint, rail, scratch, scratch_key });
                }
                Self::Accept { attempt, endpoints }
            }
            2 => {
                let attempt = take_u64(rest)?;
                let why = match take_u8(rest)? {
                    1 => Refusal::StaleGeneration,
                    2 => Refusal::Late,
                    3 => Refusal::Resources,
                    _ => return Err("a refusal of an unknown kind"),
                };
                let text = std::mem::take(rest);
                let text = String::from_utf8_lossy(&text[..text.len().min(MAX_TEXT)]).into_owned();
                Self::Refuse { attempt, why, text }
            }
            3 => {
                let number = take_u64(rest)?;
                let verdict = match take_u8(rest)? {
                    0 => Ok(()),
                    1 => Err(Rejection::UnknownGrant),
                    2 => Err(Rejection::StaleGeneration),
                    3 => Err(Rejection::OutsideGrant),
                    4 => Err(Rejection::OutsideMemory),
                    5 => Err(Rejection::GrantRequired),
                    _ => return Err("a verdict of an unknown kind"),
                };
                Self::Opened { number, verdict }
            }
            4 => Self::Pong(take_u64(rest)?),
            5 => Self::Stop(Grant(take_u64(rest)?)),
            6 => Self::Fenced,
            _ => return Err("a frame of an unknown kind"),
        };
        if rest.is_empty() { Ok(frame) } else { Err("a frame that is too long for its kind") }
    }
}

fn frame(to: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = to.len();
    to.extend([0; 4]);
    body(to);
    let len = (to.len() - start - 4) as u32;
    to[start..start + 4].copy_from_slice(&len.to_le_bytes());
}

fn put_u64(to: &mut Vec<u8>, value: u64) {
    to.extend(value.to_le_bytes());
}

fn put_u32(to: &mut Vec<u8>, value: u32) {
    to.extend(value.to_le_bytes());
}

fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

fn put_endpoint(to: &mut Vec<u8>, endpoint: &Endpoint) {
    put_u32(to, endpoint.number);
    put_u32(to, endpoint.first_packet);
    to.extend(endpoint.gid.0);
    to.extend(endpoint.lid.to_le_bytes());
    to.push(endpoint.mtu as u8);
}

const SHORT: &str = "a frame that is too short for its kind";

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], &'static str> {
    let (head, rest) = bytes.split_first_chunk::<N>().ok_or(SHORT)?;
    *bytes = rest;
    Ok(*head)
}

fn take_u8(bytes: &mut &[u8]) -> Result<u8, &'static str> {
    take::<1>(bytes).map(|it| it[0])
}

fn take_u32(bytes: &mut &[u8]) -> Result<u32, &'static str> {
    take(bytes).map(u32::from_le_bytes)
}

fn take_u64(bytes: &mut &[u8]) -> Result<u64, &'static str> {
    take(bytes).map(u64::from_le_bytes)
}

fn take_varint(bytes: &mut &[u8]) -> Result<u64, &'static str> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = take_u8(bytes)?;
        if shift == 63 && byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("a number that is too large")
}

fn take_endpoint(bytes: &mut &[u8]) -> Result<Endpoint, &'static str> {
    let (number, first_packet) = (take_u32(bytes)?, take_u32(bytes)?);
    let gid = Gid(take(bytes)?);
    let lid = u16::from_le_bytes(take(bytes)?);
    let mtu = u32::from(take_u8(bytes)?);
    if number > 0xff_ffff || first_packet > 0xff_ffff || !(1..=5).contains(&mtu) {
        return Err("a queue pair out of bounds");
    }
    Ok(Endpoint { number, first_packet, gid, lid, mtu })
}

const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn endpoint(number: u32) -> Endpoint {
        Endpoint { number, first_packet: 0xff_ffff, gid: Gid([7; 16]), lid: 3, mtu: 5 }
    }

    fn body(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes);
        assert_eq!(
            u32::from_le_bytes(bytes[..4].try_into().expect("four")) as usize,
            bytes.len() - 4
        );
        bytes.split_off(4)
    }

    #[test]
    fn every_frame_comes_back() {
        let range = |start, len| MemoryRange { start: Address(start), len: Bytes(len) };
        let to_receiver = [
            ToReceiver::Connect(Connect {
                instance: u64::MAX,
                attempt: 2,
                generation: Generation(3),
                endpoints: vec![endpoint(1), endpoint(0xff_ffff)],
            }),
            ToReceiver::Open {
                number: 7,
                grant: Grant(8),
                last: true,
                ranges: vec![range(1 << 47, 4096), range(12, 1), range(u64::MAX, u64::MAX)],
            },
            ToReceiver::Close { number: 7, bytes: 9 },
            ToReceiver::Ping(10),
            ToReceiver::Bye,
        ];
        for sent in to_receiver {
            assert_eq!(ToReceiver::decode(&body(|to| sent.put(to))), Ok(sent));
        }
        let accepted =
            AcceptedEndpoint { endpoint: endpoint(4), rail: 15, scratch: 5, scratch_key: 6 };
        let mut to_sender = vec![
            ToSender::Accept { attempt: 1, endpoints: vec![accepted] },
            ToSender::Opened { number: 7, verdict: Ok(()) },
            ToSender::Pong(10),
            ToSender::Stop(Grant(8)),
            ToSender::Fenced,
        ];
        for why in [Refusal::StaleGeneration, Refusal::Late, Refusal::Resources] {
            to_sender.push(ToSender::Refuse { attempt: 1, why, text: "no".into() });
        }
        use Rejection::{
            GrantRequired, OutsideGrant, OutsideMemory, StaleGeneration, UnknownGrant,
        };
        for why in [UnknownGrant, StaleGeneration, OutsideGrant, OutsideMemory, GrantRequired] {
            to_sender.push(ToSender::Opened { number: 1, verdict: Err(why) });
        }
        for sent in to_sender {
            assert_eq!(ToSender::decode(&body(|to| sent.put(to))), Ok(sent));
        }
    }

    proptest! {
        #[test]
        fn z01_any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = ToReceiver::decode(&bytes);
            if let Ok(frame) = ToSender::decode(&bytes)
                && !matches!(frame, ToSender::Refuse { .. })
            {
                prop_assert_eq!(body(|to| frame.put(to)), bytes);
            }
        }
    }
}
