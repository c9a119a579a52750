//! What a node needs to know at start.

use kvbaton_core::ids::EngineId;
use kvbaton_core::receiver::ReceiverConfig;
use kvbaton_core::sender::SenderConfig;
use kvbaton_core::topology::Topology;
use kvbaton_core::wire::Limits;
use std::sync::Arc;
use std::time::Duration;

/// Which sides a node plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// Sends KV: listens and announces itself.
    Prefill,
    /// Receives KV.
    Decode,
    /// Both.
    #[default]
    Both,
}

impl Role {
    /// Whether the node sends KV.
    #[must_use]
    pub const fn sends(self) -> bool {
        matches!(self, Self::Prefill | Self::Both)
    }
}

/// Configuration of one node: one rank of one engine.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// The engine; a restarted engine must use a new id.
    pub engine_id: EngineId,
    /// Which sides it plays.
    pub role: Role,
    /// Its rank among the engine's.
    pub topology: Topology,
    /// Data-parallel rank of the engine.
    pub dp_rank: u32,
    /// Where a sending rank announces itself (`http://host:port`). A node that sends
    /// needs one, unless its peers learn its address another way.
    pub bootstrap: Option<Arc<str>>,
    /// How often the announcement is repeated, for bootstrap servers that restart.
    pub announce_every: Duration,
    /// P's bounds.
    pub sender: SenderConfig,
    /// D's bounds.
    pub receiver: ReceiverConfig,
    /// Layouts of D ranks kept on P `[L08]`.
    pub peer_layouts: usize,
    /// Bounds of inbound messages `[Z01]`.
    pub limits: Limits,
    /// How long dropping the node waits for writes and loads to end.
    pub drain_on_stop: Duration,
    /// Whether the engine's memory may sleep: the node does not start on a transport that
    /// cannot register memory again `[S03]`.
    pub sleep: bool,
}

impl NodeConfig {
    /// A node of one unsharded engine, with the defaults.
    #[must_use]
    pub fn new(engine_id: EngineId, role: Role) -> Self {
        Self {
            engine_id,
            role,
            topology: Topology { tp_rank: 0, tp_size: 1, pp_rank: 0, pp_size: 1 },
            dp_rank: 0,
            bootstrap: None,
            announce_every: Duration::from_secs(15),
            sender: SenderConfig::default(),
            receiver: ReceiverConfig::default(),
            peer_layouts: 1024,
            limits: Limits::default(),
            drain_on_stop: Duration::from_secs(5),
            sleep: false,
        }
    }

    /// Whether the numbers make sense.
    ///
    /// # Errors
    /// A sentence that names the value and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        let Topology { tp_rank, tp_size, pp_rank, pp_size } = self.topology;
        if tp_rank >= tp_size {
            return Err(format!("tp_rank {tp_rank} must be below tp_size {tp_size}"));
        }
        if pp_rank >= pp_size {
            return Err(format!("pp_rank {pp_rank} must be below pp_size {pp_size}"));
        }
        if self.sender.senders == 0 {
            return Err("`senders` must be at least 1: no write could ever start".into());
        }
        if self.peer_layouts == 0 {
            return Err("`peer_layouts` must be at least 1".into());
        }
        if self.receiver.load_timeout.is_zero() || self.sender.hold_timeout.is_zero() {
            return Err("`load_timeout` and `hold_timeout` must be above zero".into());
        }
        Ok(())
    }
}
