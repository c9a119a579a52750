//! One node's data plane: what is registered, what is granted, what flies.

use super::flight::Flight;
use super::ranges::merged;
use crate::history::{NodeId, What, WriteEnd, WriteName};
use crate::memory::{Pages, SimMemory};
use crate::sim::Sim;
use crate::sites;
use futures_util::future::BoxFuture;
use kvbaton_actors::runtime;
use kvbaton_actors::transport::{
    Capabilities, DataCounters, DataPlane, GrantedRows, PeerKind, Registration, Revoked,
    TransportError, Write, WriteId, WriteOutcome,
};
use kvbaton_core::ids::{Generation, Grant, SessionAddress};
use kvbaton_core::planted::{self, Bug};
use kvbaton_core::region::MemoryRange;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// What a data plane checks of what comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checks {
    /// Ours over TCP: grant, generation and rows of each piece.
    Grants,
    /// Ours on an adapter: remote keys only; a grant is ended by fencing what carries it.
    Keys,
    /// A stock engine's: registered memory only.
    Memory,
}

/// The data plane of one node's life.
pub struct SimData {
    pub(super) sim: Arc<Sim>,
    pub(super) node: NodeId,
    pub(super) checks: Checks,
    pub(super) memory: SimMemory,
    session: SessionAddress,
    pub(super) state: Mutex<State>,
}

/// Memory under one registration.
#[derive(Debug, Clone)]
pub(super) struct Pinned {
    pub generation: Generation,
    pub keys: Vec<u8>,
    pub ranges: Vec<MemoryRange>,
    pub pages: Arc<Pages>,
}

/// A peer's registration, as a write names it.
pub(super) type Named = (Generation, Arc<[u8]>);

#[derive(Default)]
pub(super) struct State {
    pub current: Option<Pinned>,
    /// Ended registrations: adapters of the old kind still write through them.
    pub old: Vec<Pinned>,
    pub grants: BTreeMap<Grant, (GrantedRows, u64)>,
    /// Adapters: grants whose queue pairs were taken down on this side, so that nothing that
    /// still flies lands, whoever sent it and whether or not that process lives.
    pub fenced: BTreeSet<Grant>,
    pub flights: BTreeMap<WriteId, Arc<Flight>>,
    /// The last registration that writes to each session named, and the one before.
    pub named: BTreeMap<SessionAddress, [Option<Named>; 2]>,
    pub counters: DataCounters,
}

impl SimData {
    /// The data plane of a node with this memory; it can be reached once it is made.
    #[must_use]
    pub fn new(
        sim: Arc<Sim>,
        node: NodeId,
        session: SessionAddress,
        memory: SimMemory,
        checks: Checks,
    ) -> Arc<Self> {
        let data = Arc::new(Self {
            sim: sim.clone(),
            node,
            checks,
            memory,
            session: session.clone(),
            state: Mutex::default(),
        });
        sim.people().sessions.insert(session, data.clone());
        data
    }

    /// Whose it is.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.node
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under the lock")
    }

    /// Grants that are live.
    #[must_use]
    pub fn live_grants(&self) -> u64 {
        self.state().grants.len() as u64
    }

    fn note(&self, what: What) {
        self.sim.note_at(self.node, what);
    }

    /// Registers memory: what the trait's method does, for stock nodes too.
    ///
    /// # Errors
    /// When the memory is unmapped, or a site refuses.
    pub fn pin(&self, ranges: &[MemoryRange]) -> Result<Registration, TransportError> {
        let first = ranges.first().copied().unwrap_or_default();
        let refused = |what: &str| TransportError::memory(first.start, first.len, what);
        if self.sim.fires(sites::REGISTER_REFUSED, self.node.engine) {
            return Err(refused("cannot be pinned now; try again"));
        }
        let inside = |range: &MemoryRange| self.memory.contains(range.start, range.len);
        let Some(pages) = self.memory.pages().filter(|_| ranges.iter().all(inside)) else {
            return Err(refused("is not mapped; map it before it is registered"));
        };
        let generation = Generation(rand::random());
        let keys = generation.0.to_le_bytes().to_vec();
        let mut state = self.state();
        let pages = match state.old.first() {
            Some(first) if planted::is(Bug::PagesKeptOverWake) => first.pages.clone(),
            _ => pages,
        };
        let pinned = Pinned { generation, keys: keys.clone(), ranges: ranges.to_vec(), pages };
        state.current = Some(pinned);
        drop(state);
        self.note(What::Registered { generation });
        Ok(Registration { generation, keys })
    }

    /// Ends every grant of a registration and the registration itself.
    fn unpin(&self, generation: Generation) {
        let mut state = self.state();
        if state.current.as_ref().is_some_and(|it| it.generation == generation)
            && let Some(ended) = state.current.take()
        {
            state.old.push(ended);
        }
        state.grants.retain(|_, (rows, _)| rows.generation != generation);
    }
}

impl SimData {
    /// Makes the write name the registration before the last that was named there, when the
    /// site for that fires.
    fn name_stale(&self, write: &mut Write) {
        let Some(generation) = write.generation else { return };
        let before = {
            let mut state = self.state();
            let known = state.named.entry(write.session.clone()).or_default();
            if known[0].as_ref().is_none_or(|(last, _)| *last != generation) {
                known[1] = known[0].replace((generation, write.keys.clone()));
            }
            known[1].clone()
        };
        if let Some((generation, keys)) = before
            && self.checks == Checks::Grants
            && self.sim.fires(sites::WRITE_STALE, self.node.engine)
        {
            (write.generation, write.keys) = (Some(generation), keys);
        }
    }
}

impl DataPlane for SimData {
    fn session(&self) -> SessionAddress {
        self.session.clone()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { reregister: true, per_write_grants: self.checks == Checks::Grants }
    }

    // Addresses here are names of simulated bytes: nothing of the process's is touched.
    unsafe fn register(&self, ranges: &[MemoryRange]) -> Result<Registration, TransportError> {
        self.pin(ranges)
    }

    fn unregister(&self, generation: Generation) -> BoxFuture<'static, Result<(), TransportError>> {
        self.note(What::Unregistering { generation });
        let engine = self.node.engine;
        let fails = self.sim.fires(sites::UNREGISTER_FAILS, engine);
        let slow = self.sim.fires(sites::UNREGISTER_SLOW, engine);
        let wait = if slow { self.sim.some_ms("unregister", engine, 1, 500) } else { 0 };
        let this = self.sim.people().sessions.get(&self.session).cloned();
        Box::pin(async move {
            if fails {
                let (what, reason) = ("unpinning memory".into(), "the device is busy".into());
                return Err(TransportError::Local { what, reason });
            }
            if wait > 0 {
                runtime::sleep(Duration::from_nanos(wait)).await;
            }
            if let Some(this) = this {
                this.unpin(generation);
                this.note(What::Unregistered { generation });
            }
            Ok(())
        })
    }

    fn open_grant(&self, rows: GrantedRows) -> Result<(), TransportError> {
        let refuse = |what: &str| {
            let first = rows.rows.first().copied().unwrap_or_default();
            Err(TransportError::memory(first.start, first.len, what))
        };
        if self.sim.fires(sites::GRANT_REFUSED, self.node.engine) {
            return refuse("its rows cannot be opened now");
        }
        let mut state = self.state();
        let current = state.current.as_ref().filter(|it| it.generation == rows.generation);
        let inside = |row: &MemoryRange| {
            current.is_some_and(|it| it.ranges.iter().any(|all| all.contains(row.start, row.len)))
        };
        if !rows.rows.iter().all(inside) {
            drop(state);
            return refuse("is not registered");
        }
        let opened = What::GrantOpened {
            grant: rows.grant,
            generation: rows.generation,
            rows: merged(rows.rows.clone()),
            ungranted: rows.allow_ungranted,
        };
        let landed = state.grants.get(&rows.grant).map_or(0, |(_, landed)| *landed);
        state.grants.insert(rows.grant, (rows, landed));
        drop(state);
        self.note(opened);
        Ok(())
    }

    fn revoke(&self, grant: Grant) -> BoxFuture<'static, Revoked> {
        self.note(What::RevokeAsked { grant });
        let engine = self.node.engine;
        let slow = self.sim.fires(sites::REVOKE_SLOW, engine);
        let wait = if slow { self.sim.some_ms("revoke", engine, 1, 200) } else { 0 };
        let this = self.sim.people().sessions.get(&self.session).cloned();
        Box::pin(async move {
            if wait > 0 {
                runtime::sleep(Duration::from_nanos(wait)).await;
            }
            let Some(this) = this else { return Revoked::default() };
            let ended = match planted::is(Bug::GrantOutlivesRevoke) {
                true => this.state().grants.get(&grant).cloned(),
                false => this.state().grants.remove(&grant),
            };
            if this.checks == Checks::Keys {
                this.state().fenced.insert(grant);
            }
            this.note(What::Revoked { grant });
            match ended {
                Some((_, bytes_landed)) => Revoked { was_live: true, bytes_landed },
                None => Revoked::default(),
            }
        })
    }

    fn write(&self, mut write: Write) -> BoxFuture<'static, WriteOutcome> {
        let meant = write.generation;
        self.name_stale(&mut write);
        let (id, bound) = (write.id, write.timeout);
        let name = WriteName { from: self.node, number: id.0 };
        let reads: Vec<MemoryRange> = write
            .copies
            .iter()
            .map(|copy| MemoryRange { start: copy.source, len: copy.len })
            .collect();
        self.note(What::WriteStarted {
            write: name,
            to: write.session.clone(),
            grant: write.grant,
            generation: meant,
            bytes: write.copies.iter().map(|copy| copy.len.0).sum(),
            reads: merged(reads),
        });
        debug_assert!(write.kind == PeerKind::Kvbaton || write.grant.is_none());
        let this = self.sim.people().sessions.get(&self.session).cloned();
        let this = this.filter(|it| it.node == self.node);
        let (sim, node) = (self.sim.clone(), self.node);
        Box::pin(async move {
            let Some(this) = this else {
                let (what, reason) = ("writing".into(), "this process is gone".into());
                let error = TransportError::Local { what, reason };
                return WriteOutcome::Failed { error, settled: true };
            };
            let (flight, landed) = Flight::start(&this, write, name);
            this.state().flights.insert(id, flight.clone());
            let outcome = match runtime::timeout(bound, landed).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) => flight.give_up("it was given up", bound),
                Err(_) => flight.give_up("the write", bound),
            };
            let mut state = this.state();
            state.flights.remove(&id);
            if outcome == WriteOutcome::Written {
                state.counters.bytes_sent.0 += flight.bytes();
            }
            drop(state);
            sim.note_at(node, What::WriteEnded { write: name, how: how(&outcome) });
            outcome
        })
    }

    fn cancel(&self, write: WriteId) {
        let flight = self.state().flights.get(&write).cloned();
        if let Some(flight) = flight
            && !self.sim.fires(sites::CANCEL_IGNORED, self.node.engine)
        {
            flight.cancel();
        }
    }

    fn counters(&self) -> DataCounters {
        self.state().counters
    }
}

fn how(outcome: &WriteOutcome) -> WriteEnd {
    match outcome {
        WriteOutcome::Written => WriteEnd::Written,
        WriteOutcome::Rejected(why) => WriteEnd::Rejected(why.to_string().into()),
        WriteOutcome::Failed { error, settled } => {
            WriteEnd::Failed { settled: *settled, why: error.to_string().into() }
        }
    }
}

impl State {
    pub(super) fn landed(&mut self, grant: Option<Grant>, bytes: u64) {
        self.counters.bytes_received.0 += bytes;
        if let Some((_, landed)) = grant.and_then(|grant| self.grants.get_mut(&grant)) {
            *landed += bytes;
        }
    }
}
