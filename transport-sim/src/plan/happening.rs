//! Faults and operations. Each says when it begins and how long it lasts, so that it can be
//! taken out of a plan whole.

use kvbaton_core::lifecycle::engine;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One fault or operation at its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// When it begins, in virtual milliseconds.
    pub at_ms: u64,
    /// What.
    pub what: Happening,
}

/// How an engine is paused `[R01]`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum PauseMode {
    /// End what runs.
    Abort,
    /// Let it finish.
    Wait,
    /// Freeze it.
    #[default]
    Keep,
}

impl PauseMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Abort, Self::Wait, Self::Keep];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Abort => "abort",
            Self::Wait => "wait",
            Self::Keep => "keep",
        }
    }
}

impl From<PauseMode> for engine::PauseMode {
    fn from(mode: PauseMode) -> Self {
        match mode {
            PauseMode::Abort => Self::Abort,
            PauseMode::Wait => Self::Wait,
            PauseMode::Keep => Self::Keep,
        }
    }
}

/// In which order an engine's memory wakes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum WakeOrder {
    /// All at once.
    #[default]
    All,
    /// The weights, then the KV cache.
    WeightsFirst,
    /// The KV cache, then the weights.
    KvFirst,
}

/// The level of sleeps that say none.
const fn offload() -> u8 {
    1
}

/// What is done to the world. Engines are named by their index in the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Happening {
    /// An engine's process is killed, and perhaps started again.
    Kill {
        /// Which.
        engine: u16,
        /// How long it is down; `None`: for good.
        down_ms: Option<u64>,
        /// Whether it comes back at another address.
        moves: bool,
    },
    /// An engine's process is killed and started again at another address, under the engine
    /// id that it had: what a deployment with fixed ids does when it moves a pod.
    Move {
        /// Which.
        engine: u16,
        /// How long it is down.
        down_ms: u64,
    },
    /// An engine's process is stopped (SIGSTOP) for a while.
    Stop {
        /// Which.
        engine: u16,
        /// How long.
        for_ms: u64,
    },
    /// Messages from one engine to another vanish; connections seem to live.
    Cut {
        /// Sender.
        from: u16,
        /// Receiver.
        to: u16,
        /// How long.
        for_ms: u64,
    },
    /// Everything between two engines takes longer.
    Slow {
        /// One.
        from: u16,
        /// The other.
        to: u16,
        /// So many times longer.
        times: u32,
        /// How long.
        for_ms: u64,
    },
    /// Every connection between two engines breaks.
    Reset {
        /// One.
        from: u16,
        /// The other.
        to: u16,
    },
    /// The bootstrap server of a prefill engine forgets everything.
    ForgetDirectory {
        /// Which.
        engine: u16,
    },
    /// An engine is paused and resumed.
    Pause {
        /// Which.
        engine: u16,
        /// How.
        mode: PauseMode,
        /// Whether held and loading KV is given back too `[R03]`.
        clear: bool,
        /// How long.
        for_ms: u64,
    },
    /// An engine sleeps, and wakes.
    Sleep {
        /// Which.
        engine: u16,
        /// How long it sleeps.
        for_ms: u64,
        /// 0, 1 or 2. After level 2 it gets the weights that the others run.
        #[serde(default = "offload")]
        level: u8,
        /// How it is paused before.
        #[serde(default)]
        mode: PauseMode,
        /// How it wakes.
        #[serde(default)]
        wake: WakeOrder,
    },
    /// An engine gives the KV cache's memory up, and takes it back.
    ReleaseKv {
        /// Which.
        engine: u16,
        /// How it is paused before.
        mode: PauseMode,
        /// How long its memory stays unmapped.
        for_ms: u64,
    },
    /// An engine is resumed, whatever it is at `[R05]`.
    Resume {
        /// Which.
        engine: u16,
    },
    /// An engine gives its transfers up `[R03]`.
    AbortTransfers {
        /// Which.
        engine: u16,
    },
    /// An engine ends all its requests.
    AbortRequests {
        /// Which.
        engine: u16,
    },
    /// An engine's prefix cache is emptied `[R06]`.
    ResetCache {
        /// Which.
        engine: u16,
        /// Whether requests that run give their blocks back first.
        running: bool,
    },
    /// An order of an engine's lifecycle fails: whoever it is for cannot do it.
    FailOrder {
        /// Which engine.
        engine: u16,
        /// Which of its orders, to itself and its ranks, from 0.
        order: u32,
        /// How long it is waited for.
        within_ms: u64,
    },
    /// Something happens while an order of an engine's lifecycle is carried out.
    AtOrder {
        /// Which engine.
        engine: u16,
        /// Which of its orders, to itself and its ranks, from 0.
        order: u32,
        /// How long it is waited for.
        within_ms: u64,
        /// What happens.
        then: Box<Happening>,
    },
    /// An engine with a lifecycle of its own gives its transfers up, unregisters its memory, and
    /// registers it again.
    Reregister {
        /// Which.
        engine: u16,
        /// How long it stays unregistered.
        for_ms: u64,
    },
    /// The trainer pauses all engines, updates their weights, and resumes them.
    UpdateWeights {
        /// How long they stay paused.
        for_ms: u64,
        /// Whether memory sleeps meanwhile.
        sleep: bool,
    },
    /// A prefill engine gives every held request's blocks back.
    ReleaseAll {
        /// Which.
        engine: u16,
    },
}

impl Happening {
    /// An engine sleeps at level 1 for so long.
    #[must_use]
    pub const fn sleep(engine: u16, for_ms: u64) -> Self {
        let (level, mode, wake) = (offload(), PauseMode::Keep, WakeOrder::All);
        Self::Sleep { engine, for_ms, level, mode, wake }
    }

    /// How long it lasts, in milliseconds.
    #[must_use]
    pub fn lasts_ms(&self) -> u64 {
        match self {
            Self::Kill { down_ms, .. } => down_ms.unwrap_or(0),
            Self::Move { down_ms: for_ms, .. }
            | Self::Stop { for_ms, .. }
            | Self::Cut { for_ms, .. }
            | Self::Slow { for_ms, .. }
            | Self::Pause { for_ms, .. }
            | Self::Sleep { for_ms, .. }
            | Self::ReleaseKv { for_ms, .. }
            | Self::Reregister { for_ms, .. }
            | Self::FailOrder { within_ms: for_ms, .. }
            | Self::UpdateWeights { for_ms, .. } => *for_ms,
            Self::AtOrder { within_ms, then, .. } => within_ms + then.lasts_ms(),
            Self::Reset { .. }
            | Self::ForgetDirectory { .. }
            | Self::Resume { .. }
            | Self::AbortTransfers { .. }
            | Self::AbortRequests { .. }
            | Self::ResetCache { .. }
            | Self::ReleaseAll { .. } => 0,
        }
    }

    /// Its kind, for tables.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Kill { down_ms: None, .. } => "kill for good",
            Self::Kill { moves: true, .. } => "restart elsewhere",
            Self::Kill { .. } => "restart",
            Self::Move { .. } => "move",
            Self::Stop { .. } => "stop",
            Self::Cut { .. } => "cut",
            Self::Slow { .. } => "slow",
            Self::Reset { .. } => "reset",
            Self::ForgetDirectory { .. } => "forget directory",
            Self::Pause { mode: PauseMode::Abort, .. } => "pause abort",
            Self::Pause { mode: PauseMode::Wait, .. } => "pause wait",
            Self::Pause { mode: PauseMode::Keep, .. } => "pause keep",
            Self::Sleep { level: 0, .. } => "sleep 0",
            Self::Sleep { level: 1, .. } => "sleep",
            Self::Sleep { .. } => "sleep 2",
            Self::ReleaseKv { .. } => "release kv",
            Self::Reregister { .. } => "reregister",
            Self::UpdateWeights { .. } => "update weights",
            Self::Resume { .. } => "resume",
            Self::AbortTransfers { .. } => "abort transfers",
            Self::AbortRequests { .. } => "abort requests",
            Self::ResetCache { .. } => "reset cache",
            Self::ReleaseAll { .. } => "release all",
            Self::FailOrder { .. } => "failed order",
            Self::AtOrder { then, .. } => then.name(),
        }
    }

    /// The engines whose names it has.
    pub fn engines_mut(&mut self) -> Vec<&mut u16> {
        match self {
            Self::Kill { engine, .. }
            | Self::Move { engine, .. }
            | Self::Stop { engine, .. }
            | Self::ForgetDirectory { engine }
            | Self::Pause { engine, .. }
            | Self::Sleep { engine, .. }
            | Self::ReleaseKv { engine, .. }
            | Self::Reregister { engine, .. }
            | Self::Resume { engine }
            | Self::AbortTransfers { engine }
            | Self::AbortRequests { engine }
            | Self::ResetCache { engine, .. }
            | Self::FailOrder { engine, .. }
            | Self::ReleaseAll { engine } => vec![engine],
            Self::Cut { from, to, .. } | Self::Slow { from, to, .. } | Self::Reset { from, to } => {
                vec![from, to]
            }
            Self::UpdateWeights { .. } => Vec::new(),
            Self::AtOrder { engine, then, .. } => {
                let mut all = then.engines_mut();
                all.push(engine);
                all
            }
        }
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::Kill { engine, .. }
            | Self::Move { engine, .. }
            | Self::Stop { engine, .. }
            | Self::ForgetDirectory { engine }
            | Self::Resume { engine }
            | Self::Reregister { engine, .. }
            | Self::AbortTransfers { engine }
            | Self::AbortRequests { engine }
            | Self::ReleaseAll { engine } => write!(f, "{name} of e{engine}"),
            Self::ReleaseKv { engine, mode, .. } | Self::Sleep { engine, mode, .. } => {
                write!(f, "{name} ({}) of e{engine}", mode.name())
            }
            Self::Pause { engine, clear, .. } => {
                write!(f, "{name}{} of e{engine}", if *clear { " with clearing" } else { "" })
            }
            Self::ResetCache { engine, running } => {
                write!(f, "{name}{} of e{engine}", if *running { ", whatever runs," } else { "" })
            }
            Self::Cut { from, to, .. } => write!(f, "{name} from e{from} to e{to}"),
            Self::Slow { from, to, times, .. } => {
                write!(f, "{name} (×{times}) between e{from} and e{to}")
            }
            Self::Reset { from, to } => write!(f, "{name} between e{from} and e{to}"),
            Self::UpdateWeights { sleep, .. } => {
                write!(f, "{name}{}", if *sleep { ", asleep" } else { "" })
            }
            Self::FailOrder { engine, order, .. } => write!(f, "{name} {order} of e{engine}"),
            Self::AtOrder { engine, order, then, .. } => {
                write!(f, "at order {order} of e{engine}: {then}")
            }
        }?;
        match self.lasts_ms() {
            0 => Ok(()),
            ms => write!(f, " for {ms} ms"),
        }
    }
}
