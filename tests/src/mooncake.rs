//! Real Mooncake transfer engines in processes of their own.

use crate::peer::Peer;
use crate::python;
use kvbaton_core::ids::SessionAddress;
use serde_json::{Value, json};

/// A Mooncake transfer engine with registered memory: a stock node's data plane.
pub struct Mooncake {
    peer: Peer,
    /// Where it is reached.
    pub session: SessionAddress,
    /// Address of its memory, in its process.
    pub address: u64,
}

impl Mooncake {
    /// One that others write into, with `len` bytes of zeroes.
    #[must_use]
    pub fn target(len: u64) -> Self {
        Self::of(python::script("mooncake_target.py", &[&len.to_string()]))
    }

    /// One that writes into others, with `len` bytes of zeroes. A write of its gives up
    /// after a few seconds.
    #[must_use]
    pub fn initiator(len: u64) -> Self {
        let bound = [("MC_TRANSFER_TIMEOUT", "10")];
        Self::of(python::script_with("mooncake_initiator.py", &[&len.to_string()], &bound))
    }

    fn of((peer, greeting): (Peer, Value)) -> Self {
        let session = greeting["session"].as_str().expect("a session");
        let (host, port) = session.rsplit_once(':').expect("host:port");
        let port = port.parse().expect("a port");
        let address = greeting["address"].as_u64().expect("an address");
        Self { peer, session: SessionAddress { host: host.into(), port }, address }
    }

    /// A copy of some of its memory.
    pub fn get(&mut self, offset: u64, len: u64) -> Vec<u8> {
        let answer = self.peer.ask(json!({"op": "get", "offset": offset, "len": len}));
        bytes(answer["hex"].as_str().expect("hex"))
    }

    /// How often a byte value occurs in some of its memory.
    pub fn count(&mut self, offset: u64, len: u64, byte: u8) -> u64 {
        let answer = self.peer.ask(json!({"op": "count", "offset": offset, "len": len}));
        answer["counts"][byte.to_string()].as_u64().unwrap_or(0)
    }

    /// Overwrites some of its memory with one value.
    pub fn fill(&mut self, offset: u64, len: u64, byte: u8) {
        self.peer.ask(json!({"op": "fill", "offset": offset, "len": len, "byte": byte}));
    }

    /// Overwrites some of its memory.
    pub fn put(&mut self, offset: u64, data: &[u8]) {
        self.peer.ask(json!({"op": "put", "offset": offset, "hex": hex(data)}));
    }

    /// An initiator writes to a peer's address; its return code, 0 when the peer took it.
    pub fn write(&mut self, session: &str, offset: u64, address: u64, len: u64) -> i64 {
        let command = json!({
            "op": "write", "session": session, "offset": offset, "address": address, "len": len,
        });
        self.peer.ask(command)["rc"].as_i64().expect("a return code")
    }

    /// An initiator writes (offset, address, length) in one batch; its return code.
    pub fn write_batch(&mut self, session: &str, copies: &[(u64, u64, u64)]) -> i64 {
        let command = json!({"op": "batch", "session": session, "copies": copies});
        self.peer.ask(command)["rc"].as_i64().expect("a return code")
    }

    /// The process, to stop and kill it.
    pub const fn process(&mut self) -> &mut Peer {
        &mut self.peer
    }
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn hex(data: &[u8]) -> String {
    data.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hexadecimal digits as bytes.
///
/// # Panics
/// When they are none.
#[must_use]
pub fn bytes(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2), "an odd number of digits");
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits"))
        .collect()
}
