//! Configuration of the control plane.

use crate::key::ClusterKey;
use crate::network::AllowedNetworks;
use std::time::Duration;

/// How the control plane listens, connects, and whom it trusts.
#[derive(Debug, Clone)]
pub struct ControlConfig {
    /// Interface to listen on: an address or a host name of this machine.
    pub host: String,
    /// Port to listen on; 0 takes any free one.
    pub port: u16,
    /// Host to advertise instead of `host`; required when that is `0.0.0.0` or `::`.
    pub advertise_host: Option<String>,
    /// Where peers may live `[Z05]`.
    pub networks: AllowedNetworks,
    /// The cluster key, if peers must prove it `[Z04]`.
    pub key: Option<ClusterKey>,
    /// Whether peers without proof may talk to us; by default only when there is no
    /// key. Without a key it has no effect: there is nothing to tell peers apart by.
    pub allow_stock_peers: Option<bool>,
    /// Bound for resolving, connecting and shaking hands, on both sides.
    pub connect_timeout: Duration,
    /// Bounds on what peers can make us hold.
    pub limits: ControlLimits,
}

impl Default for ControlConfig {
    /// Loopback, any port, no key, private networks, 5 s to connect.
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 0,
            advertise_host: None,
            networks: AllowedNetworks::default(),
            key: None,
            allow_stock_peers: None,
            connect_timeout: Duration::from_secs(5),
            limits: ControlLimits::default(),
        }
    }
}

impl ControlConfig {
    /// Whether a peer that proves nothing is served.
    pub(super) fn admits_unproven(&self) -> bool {
        self.key.is_none() || self.allow_stock_peers.unwrap_or(false)
    }
}

/// Bounds on what peers can make a node hold `[Z01]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlLimits {
    /// Largest frame, in bytes; a larger one costs its sender the connection.
    pub max_frame: usize,
    /// Connections at a time. When full, a new one takes the place of the oldest that
    /// is silent (nothing delivered yet, or nothing waiting for an answer); it is refused
    /// when all wait for answers. A D holds one for each pull that is not answered yet.
    pub max_connections: usize,
    /// Messages of one connection that wait for an answer; more are left unread.
    pub max_unanswered: usize,
    /// Bytes of answers that one connection does not read before it is closed.
    pub max_queued_answers: usize,
    /// Bytes of unfinished messages over all connections; beyond it, the connection
    /// whose unfinished message is oldest is closed.
    pub max_buffered: usize,
    /// Bound from the first byte of a frame to its last.
    pub frame_timeout: Duration,
}

impl Default for ControlLimits {
    fn default() -> Self {
        Self {
            max_frame: 16 << 20,
            max_connections: 8192,
            max_unanswered: 64,
            max_queued_answers: 64 << 20,
            max_buffered: 256 << 20,
            frame_timeout: Duration::from_secs(30),
        }
    }
}
