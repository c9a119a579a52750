//! The segment descriptor: which memory a node has registered, and its data port.

use super::super::frame::word;
use super::super::lane::Target;
use super::super::net;
use super::super::outgoing::Dialect;
use super::super::plane::Shared;
use super::control;
use kvbaton_actors::transport::TransportError;
use kvbaton_core::ids::{Address, Bytes, SessionAddress};
use kvbaton_core::region::{Copy, MemoryRange};
use serde::Deserialize;
use serde_json::{Value, json};
use std::os::fd::AsRawFd;
use std::time::Instant;

/// Most buffers that a peer's descriptor may list `[Z01]`.
const MAX_BUFFERS: usize = 1 << 16;

/// Our descriptor, as stock peers ask for it.
pub(super) fn ours(shared: &Shared) -> Value {
    let name = shared.session.to_string();
    let buffers: Vec<Value> = shared
        .memory
        .ranges()
        .into_iter()
        .map(|range| json!({"name": name, "addr": range.start.0, "length": range.len.0}))
        .collect();
    json!({
        "name": name,
        "protocol": "tcp",
        "tcp_data_port": shared.mooncake_port,
        "tcp_proto_version": 2,
        "buffers": buffers,
    })
}

#[derive(Deserialize)]
struct Raw {
    protocol: String,
    #[serde(default)]
    tcp_data_port: u16,
    #[serde(default)]
    tcp_proto_version: Option<u32>,
    #[serde(default)]
    tcp_data_host: Option<String>,
    #[serde(default)]
    buffers: Vec<RawBuffer>,
}

#[derive(Deserialize)]
struct RawBuffer {
    addr: u64,
    length: u64,
}

/// What a stock peer told about itself.
pub(in crate::data) struct Descriptor {
    /// Where its data goes.
    pub(in crate::data) target: Target,
    /// Its registered memory, sorted.
    buffers: Vec<MemoryRange>,
}

impl Descriptor {
    /// Fetches a peer's descriptor over its control port; blocks.
    pub(in crate::data) fn fetch(
        session: &SessionAddress,
        shared: &Shared,
    ) -> Result<Self, TransportError> {
        let peer = session.to_string();
        let deadline = Instant::now() + shared.config.connect_timeout;
        let stream = shared.dial(&session.host, session.port, deadline)?;
        let gone = |error: std::io::Error| TransportError::Disconnected {
            peer: peer.clone(),
            reason: format!("while it was asked for its descriptor: {error}"),
        };
        let malformed = |what: String| TransportError::Malformed { peer: peer.clone(), what };
        let request = control::encode(control::METADATA, &ours(shared));
        net::send_all(stream.as_raw_fd(), &request, deadline).map_err(gone)?;
        let mut len = [0; 8];
        net::receive_exact(stream.as_raw_fd(), &mut len, deadline).map_err(gone)?;
        let len = word(&len, 0);
        if len == 0 || len > control::MAX_FRAME {
            return Err(malformed(format!("a control frame of {len} bytes")));
        }
        let mut frame = vec![0; usize::try_from(len).expect("at most a mebibyte")];
        net::receive_exact(stream.as_raw_fd(), &mut frame, deadline).map_err(gone)?;
        if frame[0] != control::METADATA {
            return Err(malformed(format!("an answer of type {}", frame[0])));
        }
        Self::decode(&frame[1..], session).map_err(malformed)
    }

    fn decode(json: &[u8], session: &SessionAddress) -> Result<Self, String> {
        let raw: Raw = serde_json::from_slice(json)
            .map_err(|error| format!("a segment descriptor that is not understood ({error})"))?;
        if raw.protocol != "tcp" {
            return Err(format!("a descriptor for {}, this node needs tcp", raw.protocol));
        }
        if raw.tcp_data_port == 0 || raw.buffers.len() > MAX_BUFFERS {
            return Err("a descriptor without a data port, or with too many buffers".into());
        }
        let range = |b: &RawBuffer| MemoryRange { start: Address(b.addr), len: Bytes(b.length) };
        let mut buffers: Vec<_> = raw.buffers.iter().map(range).collect();
        buffers.sort_unstable();
        let statuses = raw.tcp_proto_version.unwrap_or(1) >= 2;
        let host = raw.tcp_data_host.filter(|host| !host.is_empty());
        let target = Target {
            host: host.map_or_else(|| session.host.clone(), Into::into),
            port: raw.tcp_data_port,
            dialect: Dialect::Mooncake { statuses },
        };
        Ok(Self { target, buffers })
    }

    /// Whether every destination lies inside one of its buffers.
    pub(in crate::data) fn covers(&self, copies: &[Copy]) -> bool {
        copies.iter().all(|copy| {
            let after = self.buffers.partition_point(|b| b.start <= copy.destination);
            copy.len.0 > 0
                && after > 0
                && self.buffers[after - 1].contains(copy.destination, copy.len)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> SessionAddress {
        SessionAddress { host: "10.0.0.2".into(), port: 15000 }
    }

    #[test]
    fn a_descriptor_without_a_version_speaks_version_1_at_the_sessions_host() {
        let json = br#"{"protocol":"tcp","tcp_data_port":7,"buffers":[],"name":"x"}"#;
        let descriptor = Descriptor::decode(json, &session()).expect("decodes");
        let dialect = Dialect::Mooncake { statuses: false };
        assert_eq!(descriptor.target, Target { host: "10.0.0.2".into(), port: 7, dialect });
    }

    #[test]
    fn z01_a_descriptor_of_another_kind_is_refused() {
        for json in [r#"{"protocol":"rdma"}"#, r#"{"protocol":"tcp"}"#, "[]", "{", "\u{0}"] {
            assert!(Descriptor::decode(json.as_bytes(), &session()).is_err(), "{json}");
        }
    }

    #[test]
    fn a_destination_must_lie_inside_one_buffer() {
        let json = br#"{"protocol":"tcp","tcp_data_port":7,"tcp_proto_version":2,
            "buffers":[{"addr":200,"length":10},{"addr":100,"length":50}]}"#;
        let descriptor = Descriptor::decode(json, &session()).expect("decodes");
        let covers = |at, len| {
            let destination = Address(at);
            descriptor.covers(&[Copy { source: Address(1), destination, len: Bytes(len) }])
        };
        assert!(covers(100, 50) && covers(209, 1));
        assert!(!covers(99, 1) && !covers(149, 2) && !covers(150, 1) && !covers(200, 0));
        assert!(!covers(u64::MAX, 2));
    }
}
