//! The TCP transport as a node opens it.

use crate::bootstrap::{BootstrapClientConfig, HttpBootstrap};
use crate::control::{ControlConfig, TcpControl};
use crate::data::{DataConfig, TcpDataPlane};
use crate::key::{ClusterKey, warn_if_exposed};
use crate::network::AllowedNetworks;
use futures_util::future::LocalBoxFuture;
use kvbaton_actors::transport::{DataPlane, Transport, TransportError, TransportFactory};
use std::net::ToSocketAddrs;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Configuration of a node's TCP transport.
#[derive(Debug, Clone)]
pub struct TcpConfig {
    /// Interface to listen on, control and data: an address or a host name of this machine.
    pub host: String,
    /// Host that peers are told; required when `host` is a wildcard.
    pub advertise_host: Option<String>,
    /// Port of the control plane; 0 takes any free one.
    pub control_port: u16,
    /// Port of the data plane's session; 0 takes any free one.
    pub data_port: u16,
    /// Data connections to each peer, 1–1024.
    pub connections_per_peer: usize,
    /// The cluster key, if peers must prove it `[Z04]`.
    pub key: Option<ClusterKey>,
    /// Whether stock peers are served; by default only when there is no key `[Z02, Z04]`.
    pub allow_stock_peers: Option<bool>,
    /// Where peers and bootstrap servers may live `[Z05]`.
    pub networks: AllowedNetworks,
    /// How long a bootstrap server that does not answer is asked again; loads wait meanwhile.
    pub query_within: Duration,
}

impl Default for TcpConfig {
    /// Loopback, any ports, two connections, no key, private networks.
    fn default() -> Self {
        Self {
            host: "127.0.0.1".into(),
            advertise_host: None,
            control_port: 0,
            data_port: 0,
            connections_per_peer: 2,
            key: None,
            allow_stock_peers: None,
            networks: AllowedNetworks::default(),
            query_within: BootstrapClientConfig::default().query_within,
        }
    }
}

/// Opens the TCP transport: ZeroMQ control plane, TCP data plane, HTTP bootstrap client.
#[derive(Debug, Clone, Default)]
pub struct TcpTransport {
    config: TcpConfig,
}

impl TcpTransport {
    /// A transport that will be opened with `config`.
    #[must_use]
    pub const fn new(config: TcpConfig) -> Self {
        Self { config }
    }

    fn open_planes(self) -> Result<Transport, TransportError> {
        let TcpConfig { host, key, networks, .. } = &self.config;
        warn_when_exposed(host, key.as_ref());
        let check = networks.clone();
        let data = TcpDataPlane::open(DataConfig {
            bind_host: host.clone(),
            port: self.config.data_port,
            advertise_host: self.config.advertise_host.clone(),
            connections_per_peer: self.config.connections_per_peer,
            cluster_key: key.as_ref().map(ClusterKey::bytes),
            allow_stock_peers: self.config.allow_stock_peers.unwrap_or(key.is_none()),
            check_address: Arc::new(move |ip| check.permits(ip)),
            allowed_networks: networks.to_string(),
            ..DataConfig::default()
        })?;
        Ok(self.config.with_data_plane(data))
    }
}

impl TcpConfig {
    /// A transport whose control plane and bootstrap client are these, and whose data plane
    /// is another one.
    #[must_use]
    pub fn with_data_plane(&self, data: Arc<dyn DataPlane>) -> Transport {
        let control = TcpControl::new(ControlConfig {
            host: self.host.clone(),
            port: self.control_port,
            advertise_host: self.advertise_host.clone(),
            networks: self.networks.clone(),
            key: self.key.clone(),
            allow_stock_peers: self.allow_stock_peers,
            ..ControlConfig::default()
        });
        let bootstrap = HttpBootstrap::new(BootstrapClientConfig {
            networks: self.networks.clone(),
            query_within: self.query_within,
            ..BootstrapClientConfig::default()
        });
        Transport { control: Rc::new(control), data, bootstrap: Rc::new(bootstrap) }
    }
}

fn warn_when_exposed(host: &str, key: Option<&ClusterKey>) {
    let Ok(addresses) = (host, 0).to_socket_addrs() else { return };
    for address in addresses {
        warn_if_exposed(address.ip(), key);
    }
}

impl TransportFactory for TcpTransport {
    fn open(self: Box<Self>) -> LocalBoxFuture<'static, Result<Transport, TransportError>> {
        Box::pin(async move { self.open_planes() })
    }
}
