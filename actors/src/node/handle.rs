//! The embedding API: cheap, cloneable, usable from every thread.

use super::config::NodeConfig;
use super::registration::{Memory, new_grant};
use super::start::{NodeError, start_actors};
use crate::decode_receiver::{AskReceiver, DecodeReceiver, DropLoads, ReceiverStatus, StartLoads};
use crate::events::{Event, EventQueue};
use crate::layout_cache::{AskLayouts, LayoutCache};
use crate::lifecycle_manager::{
    AskLifecycle, Cancel, Commit, LifecycleManager, Prepare, Register, RegistrationError, Restore,
    Unregister,
};
use crate::prefill_sender::{AskSender, FromEngine, HoldError, PrefillSender, SenderStatus};
use crate::transport::{Capabilities, DataCounters, DataPlane, TransportFactory};
use crate::{decode_receiver, prefill_sender, runtime};
use actix::prelude::*;
use futures_executor::block_on;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{
    EngineId, Generation, RequestId, SessionAddress, TransferId, WeightVersion,
};
use kvbaton_core::lifecycle::State;
use kvbaton_core::receiver::{LoadError, LoadKind, LoadSpec};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often it is looked whether holds have ended.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A node's handle. Async forms; each completes when the node's actors have taken the
/// order, not when it is carried out: that comes as an [`Event`].
#[derive(Clone)]
pub struct NodeHandle {
    sender: Addr<PrefillSender>,
    receiver: Addr<DecodeReceiver>,
    lifecycle: Addr<LifecycleManager>,
    layouts: Addr<LayoutCache>,
    data: Arc<dyn DataPlane>,
    events: EventQueue,
    address: Option<String>,
}

/// How a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its registration.
    pub registration: State,
    /// P's side.
    pub sender: SenderStatus,
    /// D's side.
    pub receiver: ReceiverStatus,
    /// Layouts of D ranks that P's side stores; at most `peer_layouts` `[L08]`.
    pub layouts: usize,
    /// The data plane's counters.
    pub data: DataCounters,
}

impl NodeStatus {
    /// Generation of the current registration, if any.
    #[must_use]
    pub const fn generation(&self) -> Option<Generation> {
        match self.registration.names() {
            Some(names) => Some(names.generation),
            None => None,
        }
    }
}

/// One load, as D's engine asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// D's request.
    pub request: RequestId,
    /// The transfer, as the router named it.
    pub transfer: TransferId,
    /// P's engine.
    pub engine: EngineId,
    /// Where P's ranks are listed (`http://host:port`).
    pub bootstrap: Arc<str>,
    /// Logical blocks per group in token order; none at all is a full prefix hit `[P10]`.
    pub blocks: Vec<BlockList>,
    /// Tokens of the request up to the end of `blocks`, if known `[A06]`.
    pub end_token: Option<u32>,
}

impl NodeHandle {
    pub(super) fn new(
        sender: Addr<PrefillSender>,
        receiver: Addr<DecodeReceiver>,
        lifecycle: Addr<LifecycleManager>,
        layouts: Addr<LayoutCache>,
        data: Arc<dyn DataPlane>,
        events: EventQueue,
        address: Option<String>,
    ) -> Self {
        Self { sender, receiver, lifecycle, layouts, data, events, address }
    }

    /// Control-plane address that a sending node listens on.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    /// Where the node's data plane is reached.
    #[must_use]
    pub fn session(&self) -> SessionAddress {
        self.data.session()
    }

    /// Registers KV memory; a sending node then announces itself.
    ///
    /// # Safety
    /// Until [`Self::unregister`] has returned `Ok` or the node has been dropped, every
    /// storage of `memory` must stay mapped, readable and writable, and the engine must
    /// not rely on the bytes of blocks that it has given to a load.
    ///
    /// # Errors
    /// When memory is registered already, or the transport or bootstrap server refuses.
    pub async unsafe fn register(&self, memory: Memory) -> Result<(), RegistrationError> {
        self.lifecycle.send(Register(Arc::new(memory))).await.unwrap_or(Err(stopped()))
    }

    /// Ends the registration once no held request, pull, write or load uses memory; within
    /// `drain` `[S01]`. Afterwards the memory may be unmapped. Idempotent `[S02]`.
    ///
    /// # Errors
    /// [`RegistrationError::InUse`] at the end of `drain`: the node stays registered.
    pub async fn unregister(&self, drain: Duration) -> Result<(), RegistrationError> {
        self.lifecycle.send(Unregister(drain)).await.unwrap_or(Err(stopped()))
    }

    /// First phase of a release that several ranks do together `[S06]`: returns once nothing
    /// uses memory, within `drain`. From then on nothing can, but memory stays registered until
    /// [`Self::commit_release`] or [`Self::cancel_release`]; after `lease` the node is usable
    /// again by itself. Idempotent.
    ///
    /// # Errors
    /// [`RegistrationError::InUse`] at the end of `drain`: the node is as it was.
    pub async fn prepare_release(
        &self,
        drain: Duration,
        lease: Duration,
    ) -> Result<(), RegistrationError> {
        self.lifecycle.send(Prepare { drain, lease }).await.unwrap_or(Err(stopped()))
    }

    /// Second phase of a release: unregisters. Afterwards the memory may be unmapped.
    /// Idempotent.
    ///
    /// # Errors
    /// When it is not prepared, or the transport refuses: the node is usable then.
    pub async fn commit_release(&self) -> Result<(), RegistrationError> {
        self.lifecycle.send(Commit).await.unwrap_or(Err(stopped()))
    }

    /// Takes the first phase of a release back, also one that still drains: the node is as it
    /// was. Fine when there is none.
    pub async fn cancel_release(&self) {
        let _ = self.lifecycle.send(Cancel).await;
    }

    /// Registers the same memory again, at the same addresses `[S02]`. Idempotent.
    ///
    /// # Safety
    /// As for [`Self::register`].
    ///
    /// # Errors
    /// When nothing was registered before, or the transport refuses.
    pub async unsafe fn restore(&self) -> Result<(), RegistrationError> {
        self.lifecycle.send(Restore).await.unwrap_or(Err(stopped()))
    }

    /// P gives back what it holds, and D its loads in flight: each comes back with its event,
    /// as cut short by a reset `[R03, R04]`.
    pub async fn abort_transfers(&self) {
        let _ = self.sender.send(prefill_sender::AbortTransfers).await;
        let _ = self.receiver.send(decode_receiver::AbortTransfers).await;
    }

    /// From now on holds and loads are of these weights; what is of others ends `[R07]`.
    pub async fn set_weights(&self, version: WeightVersion) {
        let _ = self.sender.send(prefill_sender::SetWeights(version)).await;
        let _ = self.receiver.send(decode_receiver::SetWeights(version)).await;
    }

    /// P: returns once no request is held for D `[R03]`. Drop it to stop waiting.
    pub async fn await_holds(&self) {
        while self.sender.send(AskSender).await.is_ok_and(|status| status.held > 0) {
            runtime::sleep(LOOK_AGAIN).await;
        }
    }

    /// What uses the node's memory: which request, which peer, since when.
    pub async fn in_use(&self) -> Vec<String> {
        let mut users = self.sender.send(prefill_sender::AskInUse).await.unwrap_or_default();
        users.extend(self.receiver.send(decode_receiver::AskInUse).await.unwrap_or_default());
        users
    }

    /// What the transport can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.data.capabilities()
    }

    /// P: a request that D will pull is scheduled. Optional.
    ///
    /// # Errors
    /// As for [`Self::hold`].
    pub async fn prefill_started(
        &self,
        request: RequestId,
        transfer: TransferId,
    ) -> Result<(), HoldError> {
        self.tell(FromEngine::Started { request, transfer }).await
    }

    /// P: a request is finished and its KV is complete in memory; its blocks wait for D
    /// until [`Event::SendEnded`]. `blocks` are logical, per group; `end_token` is the
    /// number of tokens they cover, if known `[A06]`.
    ///
    /// # Errors
    /// When the transfer id is in use, too many transfers are known, or memory is not
    /// registered: the blocks stay with the engine.
    pub async fn hold(
        &self,
        request: RequestId,
        transfer: TransferId,
        blocks: Vec<BlockList>,
        end_token: Option<u32>,
    ) -> Result<(), HoldError> {
        self.tell(FromEngine::Hold { request, transfer, blocks, end_token }).await
    }

    /// P: a request ended before it was held; whoever pulls it is told at once.
    pub async fn abort(&self, transfer: TransferId) {
        let _ = self.tell(FromEngine::Abort(transfer)).await;
    }

    /// P: a held request's blocks are wanted back; they come with [`Event::SendEnded`].
    pub async fn release(&self, transfer: TransferId) {
        let _ = self.tell(FromEngine::Release(transfer)).await;
    }

    /// P: every held request's blocks are wanted back.
    pub async fn release_all(&self) {
        let _ = self.tell(FromEngine::ReleaseAll).await;
    }

    async fn tell(&self, what: FromEngine) -> Result<(), HoldError> {
        let request = match &what {
            FromEngine::Started { request, .. } | FromEngine::Hold { request, .. } => {
                Some(request.clone())
            }
            _ => None,
        };
        match self.sender.send(what).await {
            Ok(result) => result,
            Err(_) => request.map_or(Ok(()), |it| Err(HoldError::NotRegistered(it))),
        }
    }

    /// D: starts loads together. Each that is taken ends with one [`Event::LoadEnded`].
    ///
    /// # Errors
    /// Per load: when its request is loading already, memory is not registered, or too
    /// many loads run.
    pub async fn load(&self, loads: Vec<Load>) -> Vec<Result<(), LoadError>> {
        self.start_loads(loads, LoadKind::Load).await
    }

    /// D: tells P that requests which were never loaded need their KV no more `[P10]`.
    /// Nothing is reported. Blocks of these loads are not looked at.
    ///
    /// # Errors
    /// As for [`Self::load`].
    pub async fn release_remote(&self, loads: Vec<Load>) -> Vec<Result<(), LoadError>> {
        self.start_loads(loads, LoadKind::Release).await
    }

    async fn start_loads(&self, loads: Vec<Load>, kind: LoadKind) -> Vec<Result<(), LoadError>> {
        let requests: Vec<RequestId> = loads.iter().map(|load| load.request.clone()).collect();
        let specs = loads
            .into_iter()
            .map(|load| LoadSpec {
                grant: new_grant(&load.request),
                request: load.request,
                transfer: load.transfer,
                engine: load.engine,
                bootstrap: load.bootstrap,
                blocks: load.blocks,
                end_token: load.end_token,
                kind,
            })
            .collect();
        match self.receiver.send(StartLoads(specs)).await {
            Ok(results) => results,
            Err(_) => requests
                .into_iter()
                .map(|request| Err(LoadError::NotRegistered { request }))
                .collect(),
        }
    }

    /// D: these loads are not wanted any more; their blocks come back with
    /// [`Event::LoadEnded`], without P's help. Unknown requests are fine `[P13]`.
    pub async fn drop_loads(&self, requests: Vec<RequestId>) {
        let _ = self.receiver.send(DropLoads(requests)).await;
    }

    /// Takes the events that are there, without waiting.
    #[must_use]
    pub fn poll(&self) -> Vec<Event> {
        self.events.drain()
    }

    /// Completes once there are events, or the node has stopped (then empty).
    pub async fn events(&self) -> Vec<Event> {
        self.events.next().await
    }

    /// How the node stands; `None` once it has stopped.
    pub async fn status(&self) -> Option<NodeStatus> {
        Some(NodeStatus {
            registration: self.lifecycle.send(AskLifecycle).await.ok()?.0,
            sender: self.sender.send(AskSender).await.ok()?,
            receiver: self.receiver.send(AskReceiver).await.ok()?,
            layouts: self.layouts.send(AskLayouts).await.ok()?,
            data: self.data.counters(),
        })
    }
}

fn stopped() -> RegistrationError {
    RegistrationError::Transport(crate::transport::TransportError::Local {
        what: "the node's actors".into(),
        reason: "the node has stopped".into(),
    })
}

/// A node on a thread of its own. Blocking forms; [`Self::handle`] gives the async ones.
/// Dropping it waits for what runs, within `drain_on_stop`, and joins the thread.
pub struct Node {
    handle: NodeHandle,
    metrics: PrometheusHandle,
    drain: Duration,
    stop: Option<futures_channel::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    /// Starts a node.
    ///
    /// # Errors
    /// When the configuration makes no sense, the transport cannot be opened, or the
    /// thread cannot be made.
    pub fn start(config: NodeConfig, transport: impl TransportFactory) -> Result<Self, NodeError> {
        let builder = PrometheusBuilder::new().set_buckets(&crate::metric::SECONDS);
        let builder = builder.map_err(|error| NodeError::Config(error.to_string()))?;
        let recorder = builder.build_recorder();
        let metrics = recorder.handle();
        let kept_up = metrics.clone();
        let drain = config.drain_on_stop;
        let (started, starting) = std::sync::mpsc::channel();
        let (stop, stopped) = futures_channel::oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("kvbaton".into())
            .spawn(move || {
                let _recording = metrics::set_default_local_recorder(&recorder);
                System::new().block_on(async move {
                    runtime::spawn_local(crate::metric::upkeep(kept_up));
                    let actors = start_actors(config, Box::new(transport)).await;
                    let running = actors.is_ok();
                    if started.send(actors).is_ok() && running {
                        let _ = stopped.await;
                    }
                });
            })
            .map_err(|error| NodeError::Thread(error.to_string()))?;
        let handle = starting.recv().map_err(|_| NodeError::Stopped)??;
        Ok(Self { handle, metrics, drain, stop: Some(stop), thread: Some(thread) })
    }

    /// The cloneable, async handle.
    #[must_use]
    pub fn handle(&self) -> NodeHandle {
        self.handle.clone()
    }

    /// [`NodeHandle::register`], blocking.
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub unsafe fn register(&self, memory: Memory) -> Result<(), RegistrationError> {
        // SAFETY: the caller promises what `NodeHandle::register` asks.
        block_on(unsafe { self.handle.register(memory) })
    }

    /// [`NodeHandle::unregister`], blocking.
    ///
    /// # Errors
    /// As there.
    pub fn unregister(&self, drain: Duration) -> Result<(), RegistrationError> {
        block_on(self.handle.unregister(drain))
    }

    /// [`NodeHandle::restore`], blocking.
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub unsafe fn restore(&self) -> Result<(), RegistrationError> {
        // SAFETY: the caller promises what `NodeHandle::restore` asks.
        block_on(unsafe { self.handle.restore() })
    }

    /// [`NodeHandle::hold`], blocking.
    ///
    /// # Errors
    /// As there.
    pub fn hold(
        &self,
        request: RequestId,
        transfer: TransferId,
        blocks: Vec<BlockList>,
        end_token: Option<u32>,
    ) -> Result<(), HoldError> {
        block_on(self.handle.hold(request, transfer, blocks, end_token))
    }

    /// [`NodeHandle::abort`], blocking.
    pub fn abort(&self, transfer: TransferId) {
        block_on(self.handle.abort(transfer));
    }

    /// [`NodeHandle::release`], blocking.
    pub fn release(&self, transfer: TransferId) {
        block_on(self.handle.release(transfer));
    }

    /// [`NodeHandle::load`], blocking.
    ///
    /// # Errors
    /// As there.
    pub fn load(&self, loads: Vec<Load>) -> Vec<Result<(), LoadError>> {
        block_on(self.handle.load(loads))
    }

    /// [`NodeHandle::release_remote`], blocking.
    ///
    /// # Errors
    /// As there.
    pub fn release_remote(&self, loads: Vec<Load>) -> Vec<Result<(), LoadError>> {
        block_on(self.handle.release_remote(loads))
    }

    /// [`NodeHandle::drop_loads`], blocking.
    pub fn drop_loads(&self, requests: Vec<RequestId>) {
        block_on(self.handle.drop_loads(requests));
    }

    /// Takes the events that are there, without waiting.
    #[must_use]
    pub fn poll(&self) -> Vec<Event> {
        self.handle.poll()
    }

    /// Waits until there are events, or `bound` has passed (then empty).
    #[must_use]
    pub fn wait(&self, bound: Duration) -> Vec<Event> {
        self.handle.events.wait(bound)
    }

    /// [`NodeHandle::status`], blocking.
    #[must_use]
    pub fn status(&self) -> Option<NodeStatus> {
        block_on(self.handle.status())
    }

    /// All metrics in Prometheus' text format.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.metrics_source()()
    }

    /// Renders the metrics from any thread, also after the node has stopped.
    #[must_use]
    pub fn metrics_source(&self) -> Arc<dyn Fn() -> String + Send + Sync> {
        let (metrics, data) = (self.metrics.clone(), self.handle.data.clone());
        Arc::new(move || {
            let mut text = metrics.render();
            text.push_str(&crate::metric::data_text(data.counters()));
            text
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        block_on(self.handle.release_all());
        let generation = self.status().and_then(|status| status.generation());
        if let Err(error) = self.unregister(self.drain) {
            tracing::warn!(%error, "the node stops while its memory is in use");
        }
        self.handle.events.close();
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the node's thread panicked; see the panic's message above");
        }
        // Whatever the drain said: after this nothing reads or writes the engine's memory.
        if let Some(generation) = generation
            && let Err(error) = block_on(self.handle.data.unregister(generation))
        {
            tracing::error!(%error, "memory could not be unregistered");
        }
    }
}
