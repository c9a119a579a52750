//! Which transport a command's nodes use.

use clap::ValueEnum;
use kvbaton_actors::transport::{Transport, TransportError, TransportFactory};
use kvbaton_transport_rdma::{RdmaConfig, RdmaTransport};
use kvbaton_transport_tcp::{TcpConfig, TcpTransport};
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::pin::Pin;

/// How KV travels. Control messages go over TCP either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransportKind {
    /// TCP.
    #[default]
    Tcp,
    /// RDMA writes, over every device that has an active port and a routable address.
    Rdma,
}

impl TransportKind {
    /// The transport, opened when a node starts.
    #[must_use]
    pub fn with(self, config: TcpConfig) -> AnyTransport {
        match self {
            Self::Tcp => AnyTransport::Tcp(TcpTransport::new(config)),
            Self::Rdma => {
                let rdma = RdmaConfig {
                    queue_pairs: config.connections_per_peer.clamp(1, 64),
                    ..RdmaConfig::default()
                };
                AnyTransport::Rdma(Box::new(RdmaTransport::new(config, rdma)))
            }
        }
    }
}

/// One of the transports.
#[derive(Debug, Clone)]
pub enum AnyTransport {
    /// TCP.
    Tcp(TcpTransport),
    /// RDMA.
    Rdma(Box<RdmaTransport>),
}

impl TransportFactory for AnyTransport {
    fn open(self: Box<Self>) -> Pin<Box<dyn Future<Output = Result<Transport, TransportError>>>> {
        match *self {
            Self::Tcp(tcp) => Box::new(tcp).open(),
            Self::Rdma(rdma) => rdma.open(),
        }
    }
}
