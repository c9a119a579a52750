//! Operations of an engine's lifecycle as JSON: what a parent process or an HTTP client sends.

use kvbaton_core::ids::WeightVersion;
use kvbaton_core::lifecycle::engine::{Operation, Parts, PauseMode, SleepLevel, Which};
use serde::{Deserialize, Serialize};

/// What a pause does with requests that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// They end.
    Abort,
    /// They finish.
    Wait,
    /// They stand still.
    #[default]
    Keep,
}

impl From<Mode> for PauseMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Abort => Self::Abort,
            Mode::Wait => Self::Wait,
            Mode::Keep => Self::Keep,
        }
    }
}

/// What wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Awake {
    /// Everything.
    #[default]
    All,
    /// The weights.
    Weights,
    /// The KV cache.
    Kv,
}

/// One operation; `{"operation": "pause", "mode": "wait", "clear": true}`. What is left out
/// has the default that its type or field says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "operation", deny_unknown_fields)]
pub enum Operate {
    /// Stop computing.
    Pause {
        /// What becomes of requests that run.
        #[serde(default)]
        mode: Mode,
        /// Whether every block comes back.
        #[serde(default)]
        clear: bool,
    },
    /// Compute again.
    Resume,
    /// Give memory up.
    Sleep {
        /// 0, 1 or 2.
        #[serde(default = "one")]
        level: u8,
        /// What becomes of requests that run.
        #[serde(default)]
        mode: Mode,
    },
    /// Take memory back.
    Wake {
        /// Which.
        #[serde(default)]
        parts: Awake,
    },
    /// Give the KV cache's memory up.
    ReleaseKv {
        /// What becomes of requests that run.
        #[serde(default)]
        mode: Mode,
    },
    /// Go over to other weights.
    UpdateWeights {
        /// Their version.
        version: u64,
        /// What becomes of requests that run.
        #[serde(default)]
        mode: Mode,
    },
    /// Holds are released, loads are dropped.
    AbortTransfers,
    /// Every request ends.
    AbortRequests,
    /// Empty the prefix cache.
    ResetPrefixCache {
        /// Whether running requests give their blocks back first.
        #[serde(default)]
        running: bool,
    },
}

const fn one() -> u8 {
    1
}

impl TryFrom<Operate> for Operation {
    type Error = String;

    fn try_from(operate: Operate) -> Result<Self, String> {
        Ok(match operate {
            Operate::Pause { mode, clear } => Self::Pause { mode: mode.into(), clear },
            Operate::Resume => Self::Resume,
            Operate::Sleep { level, mode } => {
                let level = SleepLevel::of(level)
                    .ok_or_else(|| format!("sleep level {level} is none: use 0, 1 or 2"))?;
                Self::Sleep { level, mode: mode.into() }
            }
            Operate::Wake { parts } => Self::Wake(match parts {
                Awake::All => Parts::ALL,
                Awake::Weights => Parts::WEIGHTS,
                Awake::Kv => Parts::KV,
            }),
            Operate::ReleaseKv { mode } => Self::ReleaseKv(mode.into()),
            Operate::UpdateWeights { version, mode } => {
                Self::UpdateWeights { version: WeightVersion(version), mode: mode.into() }
            }
            Operate::AbortTransfers => Self::AbortTransfers,
            Operate::AbortRequests => Self::AbortRequests(Which::All),
            Operate::ResetPrefixCache { running } => Self::ResetPrefixCache { running },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(json: &str) -> Result<Operation, String> {
        serde_json::from_str::<Operate>(json).map_err(|error| error.to_string())?.try_into()
    }

    #[test]
    fn what_is_left_out_has_its_default_and_what_is_unknown_is_refused() {
        let (level, mode) = (SleepLevel::Offload, PauseMode::Keep);
        assert_eq!(operation(r#"{"operation":"sleep"}"#), Ok(Operation::Sleep { level, mode }));
        assert_eq!(operation(r#"{"operation":"wake"}"#), Ok(Operation::Wake(Parts::ALL)));
        assert_eq!(
            operation(r#"{"operation":"pause","mode":"wait","clear":true}"#),
            Ok(Operation::Pause { mode: PauseMode::Wait, clear: true })
        );
        assert!(operation(r#"{"operation":"sleep","level":3}"#).unwrap_err().contains("0, 1 or 2"));
        assert!(operation(r#"{"operation":"pause","clean":true}"#).is_err());
        assert!(operation(r#"{"operation":"update_weights"}"#).is_err());
    }
}
