//! An engine's lifecycle on a thread of its own, for hosts that are not asynchronous.

use super::handle::{EngineConfig, EngineError, EngineHandle, EngineStatus};
use super::port::{EnginePort, RankPort};
use crate::runtime;
use actix::prelude::*;
use futures_executor::block_on;
use kvbaton_core::lifecycle::engine::{Operation, OperationError, Outcome};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::sync::Arc;
use std::thread::JoinHandle;

/// The lifecycle of one engine. Blocking forms; [`Self::handle`] gives the async ones.
/// Dropping it ends what runs with [`OperationError::Stopped`] and joins the thread; drop it
/// before the engine's nodes.
pub struct Engine {
    handle: EngineHandle,
    metrics: PrometheusHandle,
    stop: Option<futures_channel::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts the lifecycle of an engine that runs.
    ///
    /// # Errors
    /// As [`EngineHandle::start`], and when the thread cannot be made.
    pub fn start(
        config: EngineConfig,
        port: Arc<dyn EnginePort>,
        ranks: Vec<Arc<dyn RankPort>>,
    ) -> Result<Self, EngineError> {
        let builder = PrometheusBuilder::new().set_buckets(&crate::metric::SECONDS);
        let builder = builder.map_err(|error| EngineError::Config(error.to_string()))?;
        let recorder = builder.build_recorder();
        let metrics = recorder.handle();
        let kept_up = metrics.clone();
        let (started, starting) = std::sync::mpsc::channel();
        let (stop, stopped) = futures_channel::oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("kvbaton-engine".into())
            .spawn(move || {
                let _recording = metrics::set_default_local_recorder(&recorder);
                crate::metric::describe();
                System::new().block_on(async move {
                    runtime::spawn_local(crate::metric::upkeep(kept_up));
                    let handle = EngineHandle::start(config, port, ranks);
                    let running = handle.is_ok();
                    if started.send(handle).is_ok() && running {
                        let _ = stopped.await;
                    }
                });
            })
            .map_err(|error| EngineError::Thread(error.to_string()))?;
        let handle = starting
            .recv()
            .unwrap_or_else(|_| Err(EngineError::Thread("it ended at once".into())))?;
        Ok(Self { handle, metrics, stop: Some(stop), thread: Some(thread) })
    }

    /// The cloneable, async handle.
    #[must_use]
    pub fn handle(&self) -> EngineHandle {
        self.handle.clone()
    }

    /// [`EngineHandle::ask`], blocking: an engine must not call it on the thread that carries
    /// its orders out.
    ///
    /// # Errors
    /// As there.
    pub fn ask(&self, operation: Operation) -> Result<Outcome, OperationError> {
        block_on(self.handle.ask(operation))
    }

    /// [`EngineHandle::status`], blocking.
    #[must_use]
    pub fn status(&self) -> Option<EngineStatus> {
        block_on(self.handle.status())
    }

    /// The lifecycle's metrics in Prometheus' text format; each node has its own.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.metrics.render()
    }

    /// Renders the metrics from any thread, also after the lifecycle has stopped.
    #[must_use]
    pub fn metrics_source(&self) -> Arc<dyn Fn() -> String + Send + Sync> {
        let metrics = self.metrics.clone();
        Arc::new(move || metrics.render())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the lifecycle's thread panicked; see the panic's message above");
        }
    }
}
