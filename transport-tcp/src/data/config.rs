//! What a node configures about its data plane.

use kvbaton_actors::transport::TransportError;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

/// Tells whether a resolved address may be connected to `[Z05]`.
pub type AddressCheck = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// Configuration of a [`super::TcpDataPlane`].
#[derive(Clone)]
pub struct DataConfig {
    /// Host name or address to listen on. Default `127.0.0.1`.
    pub bind_host: String,
    /// Port of the session that pulls name; 0 takes any free one (default).
    pub port: u16,
    /// Host that peers are told; needed when `bind_host` is a wildcard. Default: `bind_host`.
    pub advertise_host: Option<String>,
    /// Connections to each peer over which a large write is spread, 1–1024. Default 2.
    pub connections_per_peer: usize,
    /// Send and receive buffer of each socket in bytes, 16 KiB–256 MiB. Default 4 MiB; the
    /// system caps it at `net.core.wmem_max` and `net.core.rmem_max`.
    pub socket_buffer: usize,
    /// Blocks that one system call moves at most, 1–1024. Default 64.
    pub iovecs_per_call: usize,
    /// Key that both ends of a connection must prove `[Z04]`. Default none.
    pub cluster_key: Option<[u8; 32]>,
    /// Whether stock Mooncake peers are served: their writes land only inside rows of a
    /// live grant that allows it `[Z02]`. They cannot prove a cluster key. Default true.
    pub allow_stock_peers: bool,
    /// Port of Mooncake's data protocol; 0 takes any free one (default).
    pub mooncake_port: u16,
    /// Inbound connections at a time; beyond it the longest idle one is closed. Default 1024.
    pub max_connections: usize,
    /// Peers that connections are kept to; beyond it the longest idle one is dropped.
    /// Default 1024.
    pub max_peers: usize,
    /// Writes towards one peer at a time; more fail at once. Default 1024.
    pub max_writes_per_peer: usize,
    /// Bound on resolving, connecting and greeting a peer. Default 5 s.
    pub connect_timeout: Duration,
    /// Bound on a client's greeting. Default 5 s.
    pub handshake_timeout: Duration,
    /// An outbound connection is closed after this long without a write. Default 120 s.
    pub idle_timeout: Duration,
    /// How long after some activity a connection's thread looks again before it sleeps, and
    /// how long the first poll of a small write (64 KiB) looks for its acknowledgement; at
    /// most 1 ms, 0 never spins. Default 50 µs.
    pub spin: Duration,
    /// Which addresses may be connected to `[Z05]`. Default: loopback and private networks.
    pub check_address: AddressCheck,
    /// The same in words, for error messages.
    pub allowed_networks: String,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            bind_host: "127.0.0.1".into(),
            port: 0,
            advertise_host: None,
            connections_per_peer: 2,
            socket_buffer: 4 << 20,
            iovecs_per_call: 64,
            cluster_key: None,
            allow_stock_peers: true,
            mooncake_port: 0,
            max_connections: 1024,
            max_peers: 1024,
            max_writes_per_peer: 1024,
            connect_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(120),
            spin: Duration::from_micros(50),
            check_address: Arc::new(is_loopback_or_private),
            allowed_networks: "loopback and private networks".into(),
        }
    }
}

impl DataConfig {
    /// Checks every bound.
    ///
    /// # Errors
    /// Names the first field that is out of bounds and what it may be.
    pub fn validate(&self) -> Result<(), TransportError> {
        within("connections_per_peer", self.connections_per_peer, 1, 1024)?;
        within("socket_buffer", self.socket_buffer, 16 << 10, 256 << 20)?;
        within("iovecs_per_call", self.iovecs_per_call, 1, 1024)?;
        within("max_connections", self.max_connections, 1, 1 << 20)?;
        within("max_peers", self.max_peers, 1, 1 << 20)?;
        within("max_writes_per_peer", self.max_writes_per_peer, 1, 1 << 20)?;
        for (name, timeout) in [
            ("connect_timeout", self.connect_timeout),
            ("handshake_timeout", self.handshake_timeout),
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
        if wildcard && self.advertise_host.is_none() {
            let what = format!("is needed because bind_host is {}", self.bind_host);
            return Err(invalid("advertise_host", what));
        }
        if self.advertise_host.as_deref() == Some("") {
            return Err(invalid("advertise_host", "must not be empty".into()));
        }
        Ok(())
    }

    /// The host that peers are told.
    pub(super) fn advertised(&self) -> &str {
        self.advertise_host.as_deref().unwrap_or(&self.bind_host)
    }
}

impl fmt::Debug for DataConfig {
    /// Without the key, which must never reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataConfig")
            .field("bind_host", &self.bind_host)
            .field("port", &self.port)
            .field("advertise_host", &self.advertise_host)
            .field("connections_per_peer", &self.connections_per_peer)
            .field("cluster_key", &self.cluster_key.map(|_| "set"))
            .field("allow_stock_peers", &self.allow_stock_peers)
            .finish_non_exhaustive()
    }
}

fn within(name: &str, value: usize, least: usize, most: usize) -> Result<(), TransportError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(invalid(name, format!("is {value}, must be {least} to {most}")))
}

fn invalid(name: &str, reason: String) -> TransportError {
    TransportError::Local { what: format!("data plane configuration `{name}`"), reason }
}

/// What may be connected to unless configured otherwise `[Z05]`.
#[must_use]
pub fn is_loopback_or_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => is_loopback_or_private(IpAddr::V4(v4)),
            None => v6.is_loopback() || is_local_v6(v6),
        },
    }
}

fn is_local_v6(v6: Ipv6Addr) -> bool {
    v6.is_unique_local() || v6.is_unicast_link_local()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_out_of_bounds_is_named() {
        type Spoil = fn(&mut DataConfig);
        let bad: [(&str, Spoil); 7] = [
            ("connections_per_peer", |c| c.connections_per_peer = 0),
            ("socket_buffer", |c| c.socket_buffer = 1),
            ("iovecs_per_call", |c| c.iovecs_per_call = 1025),
            ("connect_timeout", |c| c.connect_timeout = Duration::ZERO),
            ("spin", |c| c.spin = Duration::from_secs(1)),
            ("advertise_host", |c| c.bind_host = "0.0.0.0".into()),
            ("bind_host", |c| c.bind_host.clear()),
        ];
        DataConfig::default().validate().expect("the default is valid");
        for (name, spoil) in bad {
            let mut config = DataConfig::default();
            spoil(&mut config);
            let error = config.validate().expect_err(name);
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn z05_the_default_allows_loopback_and_private_networks_only() {
        for (address, allowed) in [
            ("127.0.0.1", true),
            ("10.1.2.3", true),
            ("192.168.0.9", true),
            ("8.8.8.8", false),
            ("::1", true),
            ("fd00::2", true),
            ("2001:4860::1", false),
            ("::ffff:8.8.8.8", false),
        ] {
            let address: IpAddr = address.parse().expect("an address");
            assert_eq!(is_loopback_or_private(address), allowed, "{address}");
        }
    }
}
