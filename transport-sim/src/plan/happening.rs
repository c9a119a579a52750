//! Faults and operations. Each says when it begins and how long it lasts, so that it can be
//! taken out of a plan whole.

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseMode {
    /// End what runs.
    Abort,
    /// Let it finish.
    Wait,
    /// Freeze it.
    Keep,
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
    /// An engine sleeps and wakes: pause, give everything back, unregister, unmap; then map
    /// new pages at the same addresses, register, resume.
    Sleep {
        /// Which.
        engine: u16,
        /// How long its memory stays unmapped.
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
    /// How long it lasts, in milliseconds.
    #[must_use]
    pub const fn lasts_ms(&self) -> u64 {
        match *self {
            Self::Kill { down_ms, .. } => match down_ms {
                Some(down) => down,
                None => 0,
            },
            Self::Move { down_ms: for_ms, .. }
            | Self::Stop { for_ms, .. }
            | Self::Cut { for_ms, .. }
            | Self::Slow { for_ms, .. }
            | Self::Pause { for_ms, .. }
            | Self::Sleep { for_ms, .. }
            | Self::UpdateWeights { for_ms, .. } => for_ms,
            Self::Reset { .. } | Self::ForgetDirectory { .. } | Self::ReleaseAll { .. } => 0,
        }
    }

    /// Its kind, for tables.
    #[must_use]
    pub const fn name(&self) -> &'static str {
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
            Self::Sleep { .. } => "sleep",
            Self::UpdateWeights { .. } => "update weights",
            Self::ReleaseAll { .. } => "release all",
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
            | Self::Sleep { engine, .. }
            | Self::ReleaseAll { engine } => write!(f, "{name} of e{engine}"),
            Self::Pause { engine, clear, .. } => {
                write!(f, "{name}{} of e{engine}", if *clear { " with clearing" } else { "" })
            }
            Self::Cut { from, to, .. } => write!(f, "{name} from e{from} to e{to}"),
            Self::Slow { from, to, times, .. } => {
                write!(f, "{name} (×{times}) between e{from} and e{to}")
            }
            Self::Reset { from, to } => write!(f, "{name} between e{from} and e{to}"),
            Self::UpdateWeights { sleep, .. } => {
                write!(f, "{name}{}", if *sleep { ", asleep" } else { "" })
            }
        }?;
        match self.lasts_ms() {
            0 => Ok(()),
            ms => write!(f, " for {ms} ms"),
        }
    }
}
