//! What an engine process is started with.

use super::model::Model;
use crate::transport::{AnyTransport, TransportKind};
use anyhow::{Context, Result};
use kvbaton_actors::engine::EngineConfig;
use kvbaton_actors::node::{NodeConfig, Role};
use kvbaton_core::ids::{EngineId, WeightVersion};
use kvbaton_core::lifecycle::engine::Bounds;
use kvbaton_model_engine::{OnLoadFailure, RankPlace, Weights};
use kvbaton_transport_tcp::TcpConfig;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The weights that engines of a demo run with: of no stated version, since nobody updates
/// them `[R07]`.
pub const WEIGHTS: Weights = Weights { model: 1, version: 0 };

/// Which side an engine plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// P: prefills and sends.
    Prefill,
    /// D: loads and decodes.
    Decode,
}

impl Side {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// One engine: one process, one node per rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineSpec {
    /// The engine's id; new after every restart.
    pub id: String,
    /// Which side it plays.
    pub side: Side,
    /// The model.
    pub model: Model,
    /// TP ranks.
    pub tp: u32,
    /// Pipeline stages.
    pub pp: u32,
    /// Blocks of each rank, the null block included.
    pub blocks: u32,
    /// How KV travels.
    pub transport: TransportKind,
    /// Data connections to each peer.
    pub connections: usize,
    /// Whether a request whose load failed is computed here instead.
    pub recompute: bool,
    /// How long a load may take, in milliseconds.
    pub load_timeout_ms: u64,
    /// How long finished requests wait for D, in milliseconds.
    pub hold_timeout_ms: u64,
    /// How long a write may take, in milliseconds.
    pub write_timeout_ms: u64,
    /// How long a pause that waits lets D pull what is held, in milliseconds.
    pub drain_ms: u64,
    /// Weights of each rank, in bytes.
    pub weight_bytes: usize,
    /// Their version at the start; 0 where nobody updates them.
    pub weight_version: u64,
}

impl EngineSpec {
    /// The configuration of the node at `place`; `bootstrap` is where P's ranks announce
    /// themselves.
    #[must_use]
    pub fn node(&self, place: RankPlace, bootstrap: Option<&str>) -> NodeConfig {
        let role = match self.side {
            Side::Prefill => Role::Prefill,
            Side::Decode => Role::Decode,
        };
        let mut config = NodeConfig::new(EngineId::from(self.id.as_str()), role);
        config.topology = place.into();
        config.bootstrap = bootstrap.map(Into::into);
        config.sleep = true;
        config.receiver.load_timeout = Duration::from_millis(self.load_timeout_ms);
        config.sender.hold_timeout = Duration::from_millis(self.hold_timeout_ms);
        config.sender.pull_timeout = Duration::from_millis(self.hold_timeout_ms);
        config.sender.write_timeout = Duration::from_millis(self.write_timeout_ms);
        config
    }

    /// The weights at the start.
    #[must_use]
    pub const fn weights(&self) -> Weights {
        Weights { version: self.weight_version, ..WEIGHTS }
    }

    /// The configuration of its lifecycle.
    #[must_use]
    pub fn lifecycle(&self) -> EngineConfig {
        let drain = Duration::from_millis(self.drain_ms);
        let weights = WeightVersion(self.weight_version);
        EngineConfig { bounds: Bounds { drain, ..Bounds::default() }, sleep: true, weights }
    }

    /// The transport of each of its nodes: loopback, free ports.
    #[must_use]
    pub fn transport(&self) -> AnyTransport {
        self.transport
            .with(TcpConfig { connections_per_peer: self.connections, ..TcpConfig::default() })
    }

    /// What becomes of a request whose load failed.
    #[must_use]
    pub const fn on_load_failure(&self) -> OnLoadFailure {
        if self.recompute { OnLoadFailure::Recompute } else { OnLoadFailure::Fail }
    }

    /// As one command-line argument.
    ///
    /// # Errors
    /// Never in practice: every field is plain.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).context("an engine's specification cannot be written")
    }
}
