//! Follows a run's events to know what each engine is at.

use super::cells::MESSAGE_LOST;
use super::states::State;
use crate::history::{ConnectionId, Event, Lane, NodeId, What, WriteName};
use crate::plan::{Happening, Kind, Plan};
use kvbaton_core::ids::{Grant, RequestId, SessionAddress, TransferId};
use kvbaton_core::wire::Status;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
struct Node {
    down: bool,
    stopped: bool,
    fresh: bool,
    session: Option<SessionAddress>,
    /// P: requests of pulls without an answer.
    pulls: BTreeMap<ConnectionId, BTreeMap<RequestId, TransferId>>,
    held: BTreeSet<TransferId>,
    writes: BTreeMap<WriteName, SessionAddress>,
    /// P: answers that D has not seen yet, by connection.
    answers: BTreeMap<ConnectionId, u32>,
    /// D: loads; whether the last pull carried the layout.
    loads: BTreeMap<RequestId, Option<bool>>,
    dropped: BTreeSet<RequestId>,
    revoking: BTreeSet<Grant>,
}

#[derive(Debug, Default)]
struct Engine {
    draining: bool,
    asleep: bool,
    paused: bool,
    stock: bool,
    nodes: BTreeMap<u16, Node>,
}

/// What each engine is at.
#[derive(Debug)]
pub(super) struct Tracker {
    engines: Vec<Engine>,
    /// Who spoke on a connection.
    speakers: BTreeMap<ConnectionId, BTreeSet<NodeId>>,
}

impl Tracker {
    pub fn new(plan: &Plan) -> Self {
        let fleet = &plan.fleet.engines;
        let engine = |side| {
            let meets_stock = fleet.iter().any(|it| it.side != side && it.kind != Kind::Ours);
            Engine { stock: meets_stock, ..Engine::default() }
        };
        let engines = fleet.iter().map(|it| {
            let stock = it.kind != Kind::Ours;
            let meets = engine(it.side);
            Engine { stock: stock || meets.stock, ..meets }
        });
        Self { engines: engines.collect(), speakers: BTreeMap::new() }
    }

    /// The fault that an event begins, and the engines that it touches.
    pub fn fault(&self, plan: &Plan, event: &Event) -> Option<(&'static str, BTreeSet<u16>)> {
        match &event.what {
            What::Happens { index, begins: true, .. } => {
                let what = &plan.happenings.get(*index)?.what;
                Some((what.name(), touched(what, self.engines.len() as u16)))
            }
            What::MessageLost { connection } => {
                let nodes = self.speakers.get(connection)?;
                Some((MESSAGE_LOST, nodes.iter().map(|it| it.engine).collect()))
            }
            _ => None,
        }
    }

    /// The states that these engines are in.
    pub fn states(&self, engines: &BTreeSet<u16>) -> BTreeSet<State> {
        let mut states = BTreeSet::new();
        let touched = engines.iter().filter_map(|it| self.engines.get(usize::from(*it)));
        let mut stock = false;
        for engine in touched {
            stock |= engine.stock;
            let flags = [
                (engine.draining, State::Draining),
                (engine.asleep, State::Asleep),
                (engine.paused, State::Paused),
            ];
            states.extend(flags.iter().filter(|it| it.0).map(|it| it.1));
            for node in engine.nodes.values() {
                let written = node.session.as_ref().is_some_and(|it| self.is_written(it));
                node.states(written, &mut states);
            }
        }
        if states.is_empty() {
            states.insert(State::Idle);
        }
        if stock {
            states.insert(State::Stock);
        }
        states
    }

    fn is_written(&self, session: &SessionAddress) -> bool {
        let nodes = self.engines.iter().flat_map(|it| it.nodes.values());
        nodes.flat_map(|it| it.writes.values()).any(|it| it == session)
    }

    pub fn observe(&mut self, event: &Event) {
        match event.lane {
            Lane::Engine(engine) => {
                if let Some(engine) = self.engines.get_mut(usize::from(engine)) {
                    engine.observe(&event.what);
                }
            }
            Lane::Node(id) => {
                if let Some(connection) = connection(&event.what) {
                    self.speakers.entry(connection).or_default().insert(id);
                }
                if let What::ReplyReceived { connection, .. } = event.what {
                    self.arrived(connection, false);
                }
                if let What::ConnectionClosed { connection }
                | What::ConnectionBroken { connection } = event.what
                {
                    self.arrived(connection, true);
                }
                if let Some(engine) = self.engines.get_mut(usize::from(id.engine)) {
                    engine.nodes.entry(id.rank).or_default().observe(id, &event.what);
                }
            }
            Lane::World | Lane::Clients => {
                if let What::MessageLost { connection } = event.what {
                    self.arrived(connection, false);
                }
            }
        }
    }

    /// One answer on a connection is under way no more, or all of them.
    fn arrived(&mut self, connection: ConnectionId, all: bool) {
        for node in self.engines.iter_mut().flat_map(|it| it.nodes.values_mut()) {
            if let Some(count) = node.answers.get_mut(&connection) {
                *count = if all { 0 } else { *count - 1 };
                if *count == 0 {
                    node.answers.remove(&connection);
                }
            }
        }
    }
}

impl Engine {
    fn observe(&mut self, what: &What) {
        match what {
            What::SleepAsked => self.draining = true,
            What::Slept => (self.draining, self.asleep) = (false, true),
            What::SleepFailed { .. } => self.draining = false,
            What::Woke => self.asleep = false,
            What::Paused { .. } => self.paused = true,
            What::Resumed => self.paused = false,
            _ => {}
        }
    }
}

impl Node {
    fn states(&self, written: bool, states: &mut BTreeSet<State>) {
        let waits = |it: &TransferId| !self.held.contains(it);
        let loading = |with| self.loads.values().any(|it| *it == with);
        let flags = [
            (self.pulls.values().flat_map(BTreeMap::values).any(waits), State::Waiting),
            (!self.held.is_empty(), State::Held),
            (!self.writes.is_empty(), State::Writing),
            (!self.answers.is_empty(), State::Answering),
            (loading(None), State::Finding),
            (loading(Some(true)), State::LoadingWithLayout),
            (loading(Some(false)), State::LoadingWithout),
            (written, State::Written),
            (!self.revoking.is_empty() || !self.dropped.is_empty(), State::Revoking),
            (self.fresh && !self.down, State::Restarted),
            (self.stopped, State::Stopped),
            (self.down, State::Down),
        ];
        states.extend(flags.iter().filter(|it| it.0).map(|it| it.1));
    }

    fn observe(&mut self, id: NodeId, what: &What) {
        match what {
            What::Started { session, .. } => {
                let (fresh, session) = (id.life > 0, Some(session.clone()));
                *self = Self { fresh, session, ..Self::default() };
            }
            What::Killed => *self = Self { down: true, ..Self::default() },
            What::Stopped => self.stopped = true,
            What::Continued => self.stopped = false,
            What::PullReceived { connection, pull } => {
                let requests = pull.requests.iter().map(|it| (it.0.clone(), it.1.clone()));
                self.pulls.entry(*connection).or_default().extend(requests);
            }
            What::ReplySent { connection, reply } => {
                self.fresh = false;
                *self.answers.entry(*connection).or_default() += 1;
                if reply.status != Status::Continue {
                    self.pulls.remove(connection);
                } else if let Some(pull) = self.pulls.get_mut(connection) {
                    let answered = reply.ok.iter().chain(&reply.failed);
                    answered.for_each(|it| drop(pull.remove(it)));
                }
            }
            What::Held { transfer, .. } => drop(self.held.insert(transfer.clone())),
            What::SendEnded { transfer, .. } => drop(self.held.remove(transfer)),
            What::WriteStarted { write, to, .. } => drop(self.writes.insert(*write, to.clone())),
            What::WriteEnded { write, .. } => drop(self.writes.remove(write)),
            What::LoadAsked { request, .. } => drop(self.loads.insert(request.clone(), None)),
            What::PullSent { pull, .. } => {
                for (request, ..) in &pull.requests {
                    if let Some(load) = self.loads.get_mut(request) {
                        *load = Some(pull.with_layout);
                    }
                }
            }
            What::LoadDropped { request } if self.loads.contains_key(request) => {
                self.dropped.insert(request.clone());
            }
            What::LoadEnded { request, .. } => {
                self.fresh = false;
                self.loads.remove(request);
                self.dropped.remove(request);
            }
            What::RevokeAsked { grant } => drop(self.revoking.insert(*grant)),
            What::Revoked { grant } => drop(self.revoking.remove(grant)),
            _ => {}
        }
    }
}

fn touched(what: &Happening, engines: u16) -> BTreeSet<u16> {
    match what {
        Happening::UpdateWeights { .. } => (0..engines).collect(),
        Happening::AtOrder { then, .. } => touched(then, engines),
        _ => what.clone().engines_mut().into_iter().map(|it| *it).collect(),
    }
}

/// The connection of a control message.
fn connection(what: &What) -> Option<ConnectionId> {
    match *what {
        What::PullSent { connection, .. }
        | What::PullReceived { connection, .. }
        | What::DropSent { connection, .. }
        | What::DropReceived { connection, .. } => Some(connection),
        _ => None,
    }
}
