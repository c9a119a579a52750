//! Operations of engines' lifecycles, as an operator or a trainer asks for them.

use super::super::engine::Order;
use super::Chaos;
use crate::history::{Lane, What};
use crate::plan::{Happening, PauseMode, Planned, WakeOrder};
use crate::sites;
use futures_channel::oneshot;
use kvbaton_actors::engine::EngineHandle;
use kvbaton_actors::runtime;
use kvbaton_core::ids::WeightVersion;
use kvbaton_core::lifecycle::engine::{
    self, Compute, Operation, OperationError, Outcome, Parts, SleepLevel, WeightsAt,
};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long an operator waits before asking again.
const AGAIN: Duration = Duration::from_millis(100);

/// How long nodes that know of new weights are left to themselves.
const TO_ITSELF: Duration = Duration::from_millis(200);

impl Chaos {
    fn lifecycle(&self, engine: u16) -> Option<EngineHandle> {
        self.doors.get(engine)?.lifecycle
    }

    /// Asks an engine's process; `None` when there is none.
    pub(super) async fn ask(
        &self,
        engine: u16,
        operation: Operation,
    ) -> Option<Result<Outcome, OperationError>> {
        Some(self.ask_process(engine, &self.lifecycle(engine)?, operation).await)
    }

    async fn ask_process(
        &self,
        engine: u16,
        process: &EngineHandle,
        operation: Operation,
    ) -> Result<Outcome, OperationError> {
        let id = self.operations.fetch_add(1, Ordering::Relaxed);
        let what = operation.clone();
        self.sim.note(Lane::Engine(engine), What::OperationAsked { id, what });
        let end = process.ask(operation).await;
        self.sim.note(Lane::Engine(engine), What::OperationEnded { id, end: end.clone() });
        end
    }

    pub(super) async fn pause_and_resume(
        &self,
        engine: u16,
        mode: PauseMode,
        clear: bool,
        lasts: Duration,
    ) {
        let _turn = self.turns[&engine].lock().await;
        if self.lifecycle(engine).is_some() {
            self.sim.note(Lane::Engine(engine), What::Paused { mode: mode.name().into() });
        }
        self.ask(engine, Operation::Pause { mode: mode.into(), clear }).await;
        runtime::sleep(lasts).await;
        self.bring_back(engine).await;
    }

    pub(super) async fn sleep_and_wake(
        &self,
        engine: u16,
        operation: Operation,
        wake: WakeOrder,
        lasts: Duration,
    ) {
        let _turn = self.turns[&engine].lock().await;
        let asleep = self.fall_asleep(engine, operation).await;
        runtime::sleep(lasts).await;
        if let Some(process) = asleep {
            let parts = match wake {
                WakeOrder::All => vec![Parts::ALL],
                WakeOrder::WeightsFirst => vec![Parts::WEIGHTS, Parts::KV],
                WakeOrder::KvFirst => vec![Parts::KV, Parts::WEIGHTS],
            };
            for parts in parts {
                self.wake(engine, &process, parts).await;
            }
        }
        self.bring_back(engine).await;
    }

    /// Which process sleeps then.
    async fn fall_asleep(&self, engine: u16, operation: Operation) -> Option<EngineHandle> {
        let process = self.lifecycle(engine)?;
        let memory = !matches!(operation, Operation::Sleep { level: SleepLevel::Compute, .. });
        if memory {
            self.sim.note(Lane::Engine(engine), What::SleepAsked);
        }
        match self.ask_process(engine, &process, operation).await {
            Ok(_) => Some(process),
            Err(OperationError::NotUndone { .. }) => None,
            Err(error) => {
                if matches!(error, OperationError::Resumed { .. }) {
                    // It says so at once, and goes on to take back what it has done.
                    let _ = self.ask_process(engine, &process, Operation::Resume).await;
                }
                let why = error.to_string().into();
                if memory {
                    self.sim.note(Lane::Engine(engine), What::SleepFailed { why });
                }
                None
            }
        }
    }

    /// As an engine does it that has a lifecycle of its own: with the parts.
    pub(super) async fn reregister(&self, engine: u16, lasts: Duration) {
        let _turn = self.turns[&engine].lock().await;
        let mode = engine::PauseMode::Keep;
        self.ask(engine, Operation::Pause { mode, clear: false }).await;
        if let Some(process) = self.doors.get(engine) {
            let note = |what| self.sim.note(Lane::Engine(engine), what);
            note(What::SleepAsked);
            process.order(Order::GiveBack);
            let (reply, answer) = oneshot::channel();
            process.order(Order::Unregister(reply));
            match answer.await {
                Ok(Ok(())) => {
                    note(What::Slept);
                    runtime::sleep(lasts).await;
                    let (reply, answer) = oneshot::channel();
                    process.order(Order::Restore(reply));
                    if answer.await.is_ok() {
                        note(What::Woke);
                    }
                }
                Ok(Err(why)) => note(What::SleepFailed { why: why.into() }),
                Err(_) => note(What::SleepFailed { why: "its process has died".into() }),
            }
        }
        self.bring_back(engine).await;
    }

    async fn wake(&self, engine: u16, process: &EngineHandle, parts: Parts) {
        let was = process.status().await.is_some_and(|it| it.standing.kv);
        if self.ask_process(engine, process, Operation::Wake(parts)).await.is_ok()
            && parts.kv
            && !was
        {
            self.sim.note(Lane::Engine(engine), What::Woke);
            // Nobody waits for what is left over now: tables are noted.
            self.order(engine, Order::Inspect(oneshot::channel().0));
        }
    }

    /// Does what it takes until the engine runs again, or its process is gone.
    async fn bring_back(&self, engine: u16) {
        let mut tries = 0;
        while let Some(process) = self.lifecycle(engine) {
            let Some(status) = process.status().await else { break };
            let standing = status.standing;
            let runs = standing.is_whole() && standing.compute == Compute::Running;
            if runs && status.doing.is_none() {
                self.sim.note(Lane::Engine(engine), What::Resumed);
                return;
            }
            if tries > 0 {
                runtime::sleep(AGAIN).await;
            }
            tries += 1;
            if !standing.is_whole() {
                self.wake(engine, &process, Parts::ALL).await;
            }
            if process.status().await.is_some_and(|it| it.standing.weights == WeightsAt::Blank) {
                let version = WeightVersion(self.doors.weights());
                let mode = engine::PauseMode::Keep;
                let update = Operation::UpdateWeights { version, mode };
                let _ = self.ask_process(engine, &process, update).await;
            }
            let _ = self.ask_process(engine, &process, Operation::Resume).await;
        }
    }

    /// Pauses every engine, then updates each, then resumes all.
    pub(super) async fn update_weights(&self, lasts: Duration, sleep: bool) {
        let engines: Vec<u16> = self.processes.keys().copied().collect();
        let mut turns = Vec::new();
        for &engine in &engines {
            turns.push(self.turns[&engine].lock().await);
            self.freeze(engine).await;
        }
        if sleep {
            for &engine in &engines {
                let (level, mode) = (SleepLevel::Discard, engine::PauseMode::Keep);
                self.fall_asleep(engine, Operation::Sleep { level, mode }).await;
            }
        }
        runtime::sleep(lasts).await;
        let version = self.doors.weights() + 1;
        self.doors.set_weights(version);
        let mut order = engines.clone();
        if self.sim.plan.sites.contains(sites::WEIGHTS_FIRST) {
            order.reverse(); // D's before P's: what P gives up is D's no more.
        }
        for engine in order {
            self.update_one(engine, WeightVersion(version)).await;
        }
        for &engine in &engines {
            self.bring_back(engine).await;
        }
    }

    /// Whether something may let an engine run whose nodes know of weights that it has not.
    fn is_resumed_by_chance(&self) -> bool {
        let resumes =
            |it: &Planned| matches!(it.what, Happening::Resume { .. } | Happening::AtOrder { .. });
        self.sim.plan.happenings.iter().any(resumes)
    }

    /// Stops it from computing: nothing of other weights may come of it.
    async fn freeze(&self, engine: u16) {
        let mode = engine::PauseMode::Keep;
        loop {
            match self.ask(engine, Operation::Pause { mode, clear: false }).await {
                None | Some(Ok(_) | Err(OperationError::Stopped)) => return,
                Some(Err(_)) => runtime::sleep(AGAIN).await,
            }
        }
    }

    /// Tries until the engine has the weights; a process that starts meanwhile has them.
    async fn update_one(&self, engine: u16, version: WeightVersion) {
        let mode = engine::PauseMode::Keep;
        while let Some(process) = self.lifecycle(engine) {
            self.freeze(engine).await;
            if process.status().await.is_some_and(|it| !it.standing.is_whole()) {
                self.wake(engine, &process, Parts::ALL).await;
            }
            if !self.is_resumed_by_chance() && self.sim.fires(sites::WEIGHTS_FIRST, engine) {
                self.order(engine, Order::SetWeights(version));
                runtime::sleep(TO_ITSELF).await;
            }
            let update = Operation::UpdateWeights { version, mode };
            match self.ask_process(engine, &process, update).await {
                Ok(_) => return,
                Err(_) if process.status().await.is_none() => {}
                Err(_) => runtime::sleep(AGAIN).await,
            }
        }
    }
}
