//! The simulated control plane: connections between nodes, messages that take their time,
//! get lost, come twice, overtake each other; connections that break.

mod facts;
mod plane;

pub use facts::{inbound, reply};
pub use plane::SimControl;

use crate::history::{ConnectionId, Lane, NodeId, What};
use crate::sim::{Fate, Sim, names};
use crate::sites;
use bytes::Bytes;
use futures_channel::mpsc::UnboundedSender;
use kvbaton_actors::transport::TransportError;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What comes back on a connection.
type Returned = Result<Bytes, TransportError>;

/// All control-plane connections of a run, and who listens where.
#[derive(Default)]
pub struct Wires {
    listeners: BTreeMap<Arc<str>, Listener>,
    connections: BTreeMap<ConnectionId, Connection>,
    next: u64,
}

struct Listener {
    node: NodeId,
    arrivals: UnboundedSender<(ConnectionId, Bytes)>,
}

struct Connection {
    from: NodeId,
    /// The node that took it.
    to: Option<NodeId>,
    address: Arc<str>,
    /// When the last answer arrives: answers keep their order.
    last: u64,
    back: UnboundedSender<Returned>,
}

impl Wires {
    /// Connections of a node that are open, made or taken.
    #[must_use]
    pub fn open(&self, node: NodeId) -> u64 {
        let mine = |it: &&Connection| it.from == node || it.to == Some(node);
        self.connections.values().filter(mine).count() as u64
    }
}

impl Sim {
    /// Connections of a node that are open.
    #[must_use]
    pub fn open_connections(&self, node: NodeId) -> u64 {
        self.wires().open(node)
    }

    fn wires(&self) -> std::sync::MutexGuard<'_, Wires> {
        self.wires.lock().expect("no panic under the lock")
    }

    /// Listens at an address, in the place of who did before.
    fn listen(
        &self,
        address: Arc<str>,
        node: NodeId,
        arrivals: UnboundedSender<(ConnectionId, Bytes)>,
    ) {
        self.wires().listeners.insert(address, Listener { node, arrivals });
    }

    fn connect(
        &self,
        from: NodeId,
        address: &str,
        back: UnboundedSender<Returned>,
    ) -> ConnectionId {
        let mut wires = self.wires();
        let id = ConnectionId(wires.next);
        wires.next += 1;
        let address = address.into();
        wires.connections.insert(id, Connection { from, to: None, address, last: 0, back });
        id
    }

    /// Sends a connection's only request.
    fn send_request(self: &Arc<Self>, id: ConnectionId, payload: &Bytes) {
        let (from, to) = {
            let wires = self.wires();
            let Some(connection) = wires.connections.get(&id) else { return };
            (connection.from.engine, names::engine_of(&connection.address))
        };
        let Some(to) = to else { return self.fail_after(id, 0, "no such host", false) };
        if self.fires(sites::CONNECT_REFUSED, to) {
            let soon = self.links().latency(from, to);
            return self.fail_after(id, soon, "connection refused", false);
        }
        match self.fate(from, to) {
            Fate::Lost => self.note(Lane::World, What::MessageLost { connection: id }),
            Fate::Breaks(after) => self.fail_after(id, after, "connection reset", true),
            Fate::Comes { after, .. } => {
                for nanos in after {
                    let (sim, payload) = (self.clone(), payload.clone());
                    self.after(nanos, move || sim.arrive(id, payload));
                }
            }
        }
    }

    /// What becomes of a message. Stock peers rely on what ZeroMQ over TCP promises: what
    /// comes, comes once and in order.
    fn fate(&self, from: u16, to: u16) -> Fate {
        let fate = self.links().message(from, to);
        let is_stock = |it: u16| self.plan.fleet.engines[usize::from(it)].kind.is_stock();
        match fate {
            Fate::Comes { mut after, .. } if is_stock(from) || is_stock(to) => {
                after.truncate(1);
                Fate::Comes { after, overtakes: false }
            }
            other => other,
        }
    }

    /// A request is at its address.
    fn arrive(self: &Arc<Self>, id: ConnectionId, payload: Bytes) {
        let mut wires = self.wires();
        let wires = &mut *wires;
        let Some(connection) = wires.connections.get_mut(&id) else { return };
        let listener = wires.listeners.get(&connection.address);
        match listener.filter(|it| connection.to.is_none_or(|to| to == it.node)) {
            Some(listener) => {
                connection.to = Some(listener.node);
                // Nobody takes it when the node dies in this very moment.
                let _ = listener.arrivals.unbounded_send((id, payload));
            }
            None => {
                let from = connection.from.engine;
                let Some(to) = names::engine_of(&connection.address) else { return };
                let sim = self.clone();
                // The refusal has to come back; a cut swallows it.
                self.after(1_000_000, move || {
                    if !sim.links().is_cut(to, from) {
                        sim.fail(id, "connection refused", false);
                    }
                });
            }
        }
    }

    /// P answers.
    fn answer(self: &Arc<Self>, id: ConnectionId, node: NodeId, payload: Bytes) {
        if !self.is_alive(node) {
            return;
        }
        self.note(
            Lane::Node(node),
            match reply(&payload) {
                Some(reply) => What::ReplySent { connection: id, reply },
                None => What::Unreadable { connection: id },
            },
        );
        let Some(to) = self.wires().connections.get(&id).map(|it| it.from.engine) else { return };
        match self.fate(node.engine, to) {
            Fate::Lost => self.note(Lane::World, What::MessageLost { connection: id }),
            Fate::Breaks(after) => self.fail_after(id, after, "connection reset", true),
            Fate::Comes { after, overtakes } => {
                for nanos in after {
                    let mut at = self.now() + nanos;
                    if !overtakes && let Some(it) = self.wires().connections.get_mut(&id) {
                        at = at.max(it.last);
                        it.last = at;
                    }
                    let (sim, payload) = (self.clone(), payload.clone());
                    self.after(at - self.now(), move || sim.give(id, Ok(payload)));
                }
            }
        }
    }

    fn give(&self, id: ConnectionId, what: Returned) {
        if let Some(connection) = self.wires().connections.get(&id) {
            // Whoever asked may have let go of it.
            let _ = connection.back.unbounded_send(what);
        }
    }

    /// Breaks a connection for the one who made it. `read` tells whether P may have read
    /// the request.
    fn fail(&self, id: ConnectionId, reason: &str, read: bool) {
        let Some(connection) = self.wires().connections.remove(&id) else { return };
        let (peer, reason) = (connection.address.to_string(), reason.to_owned());
        let error = if read {
            TransportError::Disconnected { peer, reason }
        } else {
            TransportError::Unreachable { peer, reason }
        };
        let _ = connection.back.unbounded_send(Err(error));
    }

    fn fail_after(
        self: &Arc<Self>,
        id: ConnectionId,
        nanos: u64,
        reason: &'static str,
        read: bool,
    ) {
        let sim = self.clone();
        self.after(nanos, move || sim.fail(id, reason, read));
    }

    fn close(&self, id: ConnectionId) {
        self.wires().connections.remove(&id);
    }

    /// Takes an engine's listeners away and breaks what leads to it; those behind a cut
    /// never learn.
    pub fn hang_up(self: &Arc<Self>, engine: u16) {
        let mut wires = self.wires();
        wires.listeners.retain(|_, it| it.node.engine != engine);
        wires.connections.retain(|_, it| it.from.engine != engine);
        let towards = |it: &Connection| it.to.is_some_and(|to| to.engine == engine);
        let broken: Vec<(ConnectionId, u16)> = wires
            .connections
            .iter()
            .filter(|(_, it)| towards(it))
            .map(|(id, it)| (*id, it.from.engine))
            .collect();
        drop(wires);
        for (id, peer) in broken {
            if !self.links().is_cut(engine, peer) {
                let soon = self.links().latency(engine, peer);
                self.fail_after(id, soon, "connection closed by the peer", true);
            }
        }
    }

    /// Breaks every connection between two engines.
    pub fn reset_between(self: &Arc<Self>, one: u16, other: u16) {
        let between = |it: &Connection| {
            let to = names::engine_of(&it.address);
            (it.from.engine, to) == (one, Some(other)) || (it.from.engine, to) == (other, Some(one))
        };
        let broken: Vec<ConnectionId> = {
            let wires = self.wires();
            let all = wires.connections.iter();
            all.filter(|(_, it)| between(it)).map(|(id, _)| *id).collect()
        };
        for id in broken {
            self.fail_after(id, 1_000_000, "connection reset", true);
        }
    }
}
