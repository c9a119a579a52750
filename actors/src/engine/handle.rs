//! The handle on an engine's lifecycle.

use super::manager::{Ask, AskStanding, EngineManager};
use super::port::{EnginePort, RankPort};
use crate::runtime;
use actix::prelude::*;
use kvbaton_core::ids::WeightVersion;
use kvbaton_core::lifecycle::engine::{
    Bounds, EngineLifecycle, Operation, OperationError, Outcome, Parts, PauseMode, SleepLevel,
    Standing, Which,
};
use std::sync::Arc;
use std::time::Duration;

/// What an engine's lifecycle is started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// How long the parts of operations may take.
    pub bounds: Bounds,
    /// Whether memory may sleep: refused at the start where a rank's transport cannot `[S03]`.
    pub sleep: bool,
    /// The weights at the start; 0 where nobody updates them: that fits any `[R07]`. Ranks are
    /// told, but an engine that holds or loads at once tells its nodes itself before.
    pub weights: WeightVersion,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self { bounds: Bounds::default(), sleep: true, weights: WeightVersion(0) }
    }
}

/// Why a lifecycle was not started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The configuration makes no sense.
    #[error("the engine's lifecycle: {0}")]
    Config(String),
    /// A rank's memory cannot sleep `[S03]`.
    #[error(
        "sleep is enabled, but rank {rank} cannot: {why}; use a transport that can, or start \
         without sleep"
    )]
    CannotSleep {
        /// The rank.
        rank: usize,
        /// Its transport's reason.
        why: String,
    },
    /// Its thread could not be made.
    #[error("the thread of the engine's lifecycle cannot be started: {0}")]
    Thread(String),
}

/// How an engine stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineStatus {
    /// As far as operations have come.
    pub standing: Standing,
    /// For how long.
    pub state_for: Duration,
    /// What runs, if anything: the operation, its step, and for how long it has been running.
    pub doing: Option<(&'static str, &'static str, Duration)>,
}

/// A handle on an engine's lifecycle: cheap, cloneable, usable from every thread. Every call
/// ends within the bounds, with the engine as it was where it failed.
#[derive(Clone)]
pub struct EngineHandle {
    manager: Addr<EngineManager>,
    sleep: bool,
}

impl EngineHandle {
    /// Starts the lifecycle of an engine that runs, on the current runtime: the one that the
    /// nodes are on, or any other.
    ///
    /// # Errors
    /// When the bounds make no sense, or sleep is enabled and a rank cannot.
    pub fn start(
        config: EngineConfig,
        port: Arc<dyn EnginePort>,
        ranks: Vec<Arc<dyn RankPort>>,
    ) -> Result<Self, EngineError> {
        config.bounds.check().map_err(EngineError::Config)?;
        if config.sleep {
            let cannot = |(rank, it): (usize, &Arc<dyn RankPort>)| Some((rank, it.cannot_sleep()?));
            if let Some((rank, why)) = ranks.iter().enumerate().find_map(cannot) {
                return Err(EngineError::CannotSleep { rank, why });
            }
        }
        let EngineConfig { bounds, sleep, weights } = config;
        let machine = EngineLifecycle::new(ranks.len(), bounds.clone(), weights);
        let manager = runtime::start(EngineManager::new(machine, bounds, port, ranks));
        Ok(Self { manager, sleep })
    }

    /// Asks for any operation.
    ///
    /// # Errors
    /// [`OperationError`] says what happened, to whom, and what to do.
    pub async fn ask(&self, operation: Operation) -> Result<Outcome, OperationError> {
        let sleeps = match operation {
            Operation::Sleep { level, .. } => level != SleepLevel::Compute,
            Operation::ReleaseKv(_) => true,
            _ => false,
        };
        if sleeps && !self.sleep {
            let why = "sleep is not enabled; start the engine's lifecycle with `sleep`";
            return Err(OperationError::NotPossible { operation: operation.name(), why });
        }
        self.manager.send(Ask(operation)).await.unwrap_or(Err(OperationError::Stopped))
    }

    /// Stops computing `[R01]`; with `clear` every block comes back too `[R02]`.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub async fn pause(&self, mode: PauseMode, clear: bool) -> Result<(), OperationError> {
        self.ask(Operation::Pause { mode, clear }).await.map(drop)
    }

    /// Computes again; what is still pending fails at once `[R05]`.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub async fn resume(&self) -> Result<(), OperationError> {
        self.ask(Operation::Resume).await.map(drop)
    }

    /// Gives memory up.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub async fn sleep(&self, level: SleepLevel, mode: PauseMode) -> Result<(), OperationError> {
        self.ask(Operation::Sleep { level, mode }).await.map(drop)
    }

    /// Takes memory back.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub async fn wake(&self, parts: Parts) -> Result<(), OperationError> {
        self.ask(Operation::Wake(parts)).await.map(drop)
    }

    /// Gives the KV cache's memory up; [`Self::wake`] takes it back.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub async fn release_kv(&self, mode: PauseMode) -> Result<(), OperationError> {
        self.ask(Operation::ReleaseKv(mode)).await.map(drop)
    }

    /// Goes over to other weights in place `[R07]`.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub async fn update_weights(
        &self,
        version: WeightVersion,
        mode: PauseMode,
    ) -> Result<(), OperationError> {
        self.ask(Operation::UpdateWeights { version, mode }).await.map(drop)
    }

    /// P stops holding, D drops its loads `[R03]`.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub async fn abort_transfers(&self) -> Result<(), OperationError> {
        self.ask(Operation::AbortTransfers).await.map(drop)
    }

    /// Ends requests.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub async fn abort_requests(&self, which: Which) -> Result<(), OperationError> {
        self.ask(Operation::AbortRequests(which)).await.map(drop)
    }

    /// Empties the prefix cache; false, and what was in the way, when it could not `[R06]`.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub async fn reset_prefix_cache(
        &self,
        running: bool,
    ) -> Result<(bool, Vec<String>), OperationError> {
        Ok(match self.ask(Operation::ResetPrefixCache { running }).await? {
            Outcome::Reset { done, users } => (done, users),
            Outcome::Done => (true, Vec::new()),
        })
    }

    /// How the engine stands; `None` once the lifecycle has stopped.
    pub async fn status(&self) -> Option<EngineStatus> {
        let stands = self.manager.send(AskStanding).await.ok()?;
        Some(EngineStatus {
            standing: stands.standing,
            state_for: stands.state_for,
            doing: stands.doing.map(|(doing, since)| (doing.operation, doing.step, since)),
        })
    }
}
