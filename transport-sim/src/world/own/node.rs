//! A node whose engine is watched.

use super::Process;
use crate::data::SimData;
use crate::history::{NodeId, What};
use crate::memory::SimMemory;
use crate::world::engine::started;
use crate::world::process;
use crate::world::witness::Witness;
use kvbaton_actors::events::Event;
use kvbaton_actors::lifecycle_manager::RegistrationError;
use kvbaton_actors::node::registration::Memory;
use kvbaton_actors::node::{Load, NodeHandle};
use kvbaton_actors::prefill_sender::HoldError;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{RequestId, TransferId};
use kvbaton_core::plan::LocalLayout;
use kvbaton_core::receiver::LoadError;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// A node as its engine sees it: the calls of [`NodeHandle`], each noted as oracles rely on
/// it. An engine that goes around it is not judged.
#[derive(Clone)]
pub struct ObservedNode {
    handle: NodeHandle,
    witness: Witness,
    data: Arc<SimData>,
    memory: SimMemory,
    weights: u64,
    /// Taken from the node, and not yet by the engine.
    pending: Arc<Mutex<Vec<Event>>>,
}

impl ObservedNode {
    /// Starts a rank's node, with the bounds of the plan, and registers its memory, again and
    /// again until it works.
    ///
    /// # Panics
    /// When the engine has no such rank, or the layout lies outside the memory.
    pub async fn start(
        process: &Process,
        rank: u16,
        memory: SimMemory,
        layout: LocalLayout,
    ) -> Self {
        let (handle, data) = process.start_node(rank, memory.clone()).await;
        let registered = Memory::new(layout.clone()).expect("a layout of this memory");
        let witness = Witness::new(process.sim().clone(), process.node_id(rank), layout);
        witness.note(started(&handle));
        process::register(handle.clone(), registered).await;
        Self { handle, witness, data, memory, weights: process.weights(), pending: Arc::default() }
    }

    /// Its name in the history.
    #[must_use]
    pub const fn node_id(&self) -> NodeId {
        self.witness.node()
    }

    /// What is not watched: status, metrics.
    #[must_use]
    pub const fn handle(&self) -> &NodeHandle {
        &self.handle
    }

    /// Its memory, to compute in.
    #[must_use]
    pub const fn memory(&self) -> &SimMemory {
        &self.memory
    }

    /// P: a request that D will pull is scheduled. Optional.
    ///
    /// # Errors
    /// As [`NodeHandle::prefill_started`].
    pub async fn prefill_started(
        &self,
        request: RequestId,
        transfer: TransferId,
    ) -> Result<(), HoldError> {
        self.handle.prefill_started(request.clone(), transfer.clone()).await?;
        self.witness.prefill_started(&request, &transfer);
        Ok(())
    }

    /// P: hands a finished request's blocks over, one list for each group.
    ///
    /// # Errors
    /// As [`NodeHandle::hold`]; the blocks are the engine's then.
    pub async fn hold(
        &self,
        request: RequestId,
        transfer: TransferId,
        blocks: Vec<BlockList>,
        end_token: Option<u32>,
    ) -> Result<(), HoldError> {
        self.witness.held(&request, &transfer, &blocks, self.weights);
        let taken = self.handle.hold(request.clone(), transfer.clone(), blocks, end_token).await;
        if let Err(why) = &taken {
            self.witness.hold_refused(&request, &transfer, &why.to_string());
        }
        taken
    }

    /// P: wants a held request's blocks back; they come with [`Event::SendEnded`].
    pub async fn release(&self, transfer: TransferId) {
        self.witness.release_asked(&transfer);
        self.handle.release(transfer).await;
    }

    /// P: gives a request up that is not held.
    pub async fn abort(&self, transfer: TransferId) {
        self.witness.release_asked(&transfer);
        self.handle.abort(transfer).await;
    }

    /// D: starts loads. Those that are taken end with [`Event::LoadEnded`].
    ///
    /// # Errors
    /// As [`NodeHandle::load`], one for each.
    pub async fn load(&self, loads: Vec<Load>) -> Vec<Result<(), LoadError>> {
        for load in &loads {
            self.witness.load_asked(load, self.weights);
        }
        let taken = self.handle.load(loads.clone()).await;
        for (load, taken) in loads.iter().zip(&taken) {
            if let Err(why) = taken {
                self.witness.load_refused(load, &why.to_string());
            }
        }
        taken
    }

    /// D: gives loads up; their blocks come back with [`Event::LoadEnded`].
    pub async fn drop_loads(&self, requests: Vec<RequestId>) {
        requests.iter().for_each(|request| self.witness.load_dropped(request));
        self.handle.drop_loads(requests).await;
    }

    /// D: tells P that these need nothing `[P10]`.
    ///
    /// # Errors
    /// As [`NodeHandle::release_remote`], one for each.
    pub async fn release_remote(&self, loads: Vec<Load>) -> Vec<Result<(), LoadError>> {
        loads.iter().for_each(|load| self.witness.remote_release_asked(load));
        self.handle.release_remote(loads).await
    }

    /// The events that are next, at least one; empty when the node has stopped. Dropped before
    /// its end, it loses none.
    pub async fn events(&self) -> Vec<Event> {
        if self.pending().is_empty() {
            let events = self.handle.events().await;
            self.pending().extend(events);
            self.witness.dawdle().await;
        }
        let events = std::mem::take(&mut *self.pending());
        events.iter().for_each(|event| self.witness.told(event));
        events
    }

    fn pending(&self) -> MutexGuard<'_, Vec<Event>> {
        self.pending.lock().expect("no panic under the lock")
    }

    /// Ends the registration `[S01]`.
    ///
    /// # Errors
    /// As [`NodeHandle::unregister`].
    pub async fn unregister(&self, drain: Duration) -> Result<(), RegistrationError> {
        self.handle.unregister(drain).await
    }

    /// Takes the pages away. Call it unregistered, with nothing of the engine in them.
    pub fn unmap(&self) {
        self.memory.unmap();
        self.witness.note(What::Unmapped);
    }

    /// Maps new pages, full of garbage, and registers them `[S02]`.
    ///
    /// # Errors
    /// As [`NodeHandle::restore`]; the pages are mapped all the same.
    pub async fn restore(&self) -> Result<(), RegistrationError> {
        if self.memory.pages().is_none() {
            self.memory.map();
            self.witness.note(What::Mapped);
        }
        // SAFETY: simulated addresses name no memory of this process.
        unsafe { self.handle.restore() }.await
    }

    /// Notes how full its tables are, and says what has not come back.
    pub(super) async fn left_over(&self) -> Vec<Arc<str>> {
        let tables = self.witness.tables(&self.handle, &self.data).await;
        tables.map(|it| self.witness.left_over(it)).unwrap_or_default()
    }
}
