//! What a node configures about its RDMA data plane.

use crate::verbs::Timing;
use kvbaton_actors::transport::TransportError;
use kvbaton_transport_tcp::data::{AddressCheck, is_loopback_or_private};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// One device to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceChoice {
    /// Its name, as `rdma link` shows it.
    pub name: String,
    /// Its port. Default 1.
    pub port: u8,
    /// Entry of the port's GID table; `None` takes one that peers can reach `[F68]`.
    pub gid_index: Option<u8>,
}

impl DeviceChoice {
    /// Port 1 of a device, any usable GID.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), port: 1, gid_index: None }
    }
}

/// Configuration of a [`crate::RdmaDataPlane`].
#[derive(Clone)]
pub struct RdmaConfig {
    /// Devices to use, as rails that writes are spread over, at most 16. Empty: those with an
    /// active port and a usable GID that are nearest to `numa_node`, or all of them.
    pub devices: Vec<DeviceChoice>,
    /// The NUMA node that the memory is on, to choose devices by; `None` takes all.
    pub numa_node: Option<u32>,
    /// Host or address where the side channel listens. Default `127.0.0.1`.
    pub bind_host: String,
    /// Port of the side channel, the session that pulls name; 0 takes any free one (default).
    pub port: u16,
    /// Host that peers are told; needed when `bind_host` is a wildcard. Default: `bind_host`.
    pub advertise_host: Option<String>,
    /// Queue pairs towards each peer, over all rails, 1–64. Default 2; at least one a rail.
    pub queue_pairs: usize,
    /// Requests posted to a queue pair at a time, 4–16,384. Default 128; devices may take fewer.
    pub queue_depth: u32,
    /// Pieces gathered by one request, 1–64. Default 16; devices may take fewer.
    pub pieces_per_request: u32,
    /// Bytes of one request, 4 KiB–1 GiB. Default 1 MiB: more are spread over queue pairs.
    pub request_bytes: u32,
    /// Writes up to so many bytes ride in the request itself, 0–1024. Default 128; devices may
    /// take fewer.
    pub inline_bytes: u32,
    /// Longest memory region, in bytes; longer memory is registered in several. Default: what
    /// the devices take `[F72]`.
    pub region_bytes: u64,
    /// How long a silent peer's adapter is waited for. Default: code 14 (67 ms), 3 retries.
    pub timing: Timing,
    /// A peer whose process says nothing for this long is given up while a write is under
    /// way, 10 ms or more. Default 1 s.
    pub dead_after: Duration,
    /// How long ending a write or a grant waits for what is in flight before queue pairs are
    /// fenced; other transfers of that peer then have to be sent again. Default 50 ms.
    pub grace: Duration,
    /// Times that a write is tried again over new queue pairs. Default 5 `[F71]`.
    pub retries: u32,
    /// Key that both ends of a side channel must prove `[Z04]`. Default none.
    pub cluster_key: Option<[u8; 32]>,
    /// Inbound side channels at a time. Default 1024.
    pub max_connections: usize,
    /// Peers that queue pairs are kept to. Default 1024.
    pub max_peers: usize,
    /// Writes towards one peer at a time; more fail at once. Default 1024.
    pub max_writes_per_peer: usize,
    /// Bound on connecting and exchanging queue pairs; a dead peer that queue pairs are not
    /// kept to costs so much. Default 1 s.
    pub connect_timeout: Duration,
    /// Queue pairs are given back after this long without a write. Default 120 s.
    pub idle_timeout: Duration,
    /// How long completions are polled for before the thread sleeps, at most 1 ms. Default
    /// 50 µs.
    pub spin: Duration,
    /// Which addresses may be connected to `[Z05]`. Default: loopback and private networks.
    pub check_address: AddressCheck,
    /// The same in words, for error messages.
    pub allowed_networks: String,
}

impl Default for RdmaConfig {
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            numa_node: None,
            bind_host: "127.0.0.1".into(),
            port: 0,
            advertise_host: None,
            queue_pairs: 2,
            queue_depth: 128,
            pieces_per_request: 16,
            request_bytes: 1 << 20,
            inline_bytes: 128,
            region_bytes: u64::MAX,
            timing: Timing { ack_timeout: 14, retries: 3 },
            dead_after: Duration::from_secs(1),
            grace: Duration::from_millis(50),
            retries: 5,
            cluster_key: None,
            max_connections: 1024,
            max_peers: 1024,
            max_writes_per_peer: 1024,
            connect_timeout: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(120),
            spin: Duration::from_micros(50),
            check_address: Arc::new(is_loopback_or_private),
            allowed_networks: "loopback and private networks".into(),
        }
    }
}

/// Most rails of a node; bounds what travels with each layout.
pub(crate) const MAX_RAILS: usize = 16;
/// Most queue pairs of a connection.
pub(crate) const MAX_QUEUE_PAIRS: usize = 64;

impl RdmaConfig {
    /// Checks every bound.
    ///
    /// # Errors
    /// Names the first field that is out of bounds and what it may be.
    pub fn validate(&self) -> Result<(), TransportError> {
        let within = |name: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(invalid(name, format!("is {value}, must be {least} to {most}")))
        };
        within("devices", self.devices.len() as u64, 0, MAX_RAILS as u64)?;
        within("queue_pairs", self.queue_pairs as u64, 1, MAX_QUEUE_PAIRS as u64)?;
        within("queue_depth", self.queue_depth.into(), 4, 16_384)?;
        within("pieces_per_request", self.pieces_per_request.into(), 1, 64)?;
        within("request_bytes", self.request_bytes.into(), 4096, 1 << 30)?;
        within("inline_bytes", self.inline_bytes.into(), 0, 1024)?;
        within("region_bytes", self.region_bytes, 4096, u64::MAX)?;
        within("timing.ack_timeout", self.timing.ack_timeout.into(), 1, 31)?;
        within("timing.retries", self.timing.retries.into(), 0, 6)?;
        within("max_connections", self.max_connections as u64, 1, 1 << 20)?;
        within("max_peers", self.max_peers as u64, 1, 1 << 20)?;
        within("max_writes_per_peer", self.max_writes_per_peer as u64, 1, 1 << 20)?;
        if self.dead_after < Duration::from_millis(10) {
            return Err(invalid("dead_after", "must be at least 10 ms".into()));
        }
        for (name, timeout) in [
            ("grace", self.grace),
            ("connect_timeout", self.connect_timeout),
            ("idle_timeout", self.idle_timeout),
        ] {
            if timeout.is_zero() {
                return Err(invalid(name, "must be longer than zero".into()));
            }
        }
        if self.spin > Duration::from_millis(1) {
            return Err(invalid("spin", "must be at most 1 ms".into()));
        }
        if self.bind_host.is_empty() {
            return Err(invalid("bind_host", "must name a host or an address".into()));
        }
        let wildcard = self.bind_host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
        if self.advertise_host.is_none() && wildcard {
            let what = format!("is needed because bind_host is {}", self.bind_host);
            return Err(invalid("advertise_host", what));
        }
        if self.advertise_host.as_deref() == Some("") {
            return Err(invalid("advertise_host", "must not be empty".into()));
        }
        Ok(())
    }

    /// The host that peers are told.
    pub(crate) fn advertised(&self) -> &str {
        self.advertise_host.as_deref().unwrap_or(&self.bind_host)
    }
}

impl fmt::Debug for RdmaConfig {
    /// Without the key, which must never reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaConfig")
            .field("devices", &self.devices)
            .field("bind_host", &self.bind_host)
            .field("port", &self.port)
            .field("queue_pairs", &self.queue_pairs)
            .field("cluster_key", &self.cluster_key.map(|_| "set"))
            .finish_non_exhaustive()
    }
}

fn invalid(name: &str, reason: String) -> TransportError {
    TransportError::Local { what: format!("RDMA configuration `{name}`"), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_out_of_bounds_is_named() {
        type Spoil = fn(&mut RdmaConfig);
        let bad: [(&str, Spoil); 9] = [
            ("queue_pairs", |c| c.queue_pairs = 0),
            ("queue_depth", |c| c.queue_depth = 3),
            ("pieces_per_request", |c| c.pieces_per_request = 65),
            ("timing.retries", |c| c.timing.retries = 7),
            ("dead_after", |c| c.dead_after = Duration::ZERO),
            ("grace", |c| c.grace = Duration::ZERO),
            ("spin", |c| c.spin = Duration::from_secs(1)),
            ("advertise_host", |c| c.bind_host = "0.0.0.0".into()),
            ("bind_host", |c| c.bind_host.clear()),
        ];
        RdmaConfig::default().validate().expect("the default is valid");
        for (name, spoil) in bad {
            let mut config = RdmaConfig::default();
            spoil(&mut config);
            let error = config.validate().expect_err(name);
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
