//! The RDMA transport as a node opens it.

use crate::config::RdmaConfig;
use crate::plane::RdmaDataPlane;
use futures_util::future::LocalBoxFuture;
use kvbaton_actors::transport::{Transport, TransportError, TransportFactory};
use kvbaton_transport_tcp::TcpConfig;
use kvbaton_transport_tcp::key::ClusterKey;
use std::sync::Arc;

/// Opens the RDMA transport: control plane and bootstrap client over TCP, data over RDMA.
#[derive(Debug, Clone, Default)]
pub struct RdmaTransport {
    tcp: TcpConfig,
    rdma: RdmaConfig,
}

impl RdmaTransport {
    /// A transport that will be opened with this. Hosts, data port, cluster key and allowed
    /// networks are those of `tcp`; whatever else `rdma` says is taken from there.
    #[must_use]
    pub fn new(tcp: TcpConfig, rdma: RdmaConfig) -> Self {
        let check = tcp.networks.clone();
        let rdma = RdmaConfig {
            bind_host: tcp.host.clone(),
            port: tcp.data_port,
            advertise_host: tcp.advertise_host.clone(),
            cluster_key: tcp.key.as_ref().map(ClusterKey::bytes),
            check_address: Arc::new(move |ip| check.permits(ip)),
            allowed_networks: tcp.networks.to_string(),
            ..rdma
        };
        Self { tcp, rdma }
    }
}

impl TransportFactory for RdmaTransport {
    fn open(self: Box<Self>) -> LocalBoxFuture<'static, Result<Transport, TransportError>> {
        Box::pin(async move {
            let data = RdmaDataPlane::open(self.rdma)?;
            Ok(self.tcp.with_data_plane(data))
        })
    }
}
