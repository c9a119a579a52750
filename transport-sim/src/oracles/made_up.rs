//! Histories that tests make up.

use super::Oracle;
use crate::history::{
    ConnectionId, Event, Failure, Lane, LoadFact, NodeId, PullFacts, ReplyFacts, SendFact, What,
    WriteEnd, WriteName,
};
use crate::plan::{Bounds, EnginePlan, Fleet, ModelPlan, Odds, Plan, Side};
use kvbaton_core::ids::{Address, Bytes, Generation, Grant, LayoutId, SessionAddress};
use kvbaton_core::lifecycle::engine::{Operation, OperationError, Outcome};
use kvbaton_core::region::MemoryRange;
use kvbaton_core::wire::Status;
use std::collections::BTreeSet;

/// A prefill's node.
pub(super) const P: NodeId = NodeId { engine: 0, rank: 0, life: 0 };
/// A decode's.
pub(super) const D: NodeId = NodeId { engine: 1, rank: 0, life: 0 };
/// P's address.
pub(super) const ADDRESS: &str = "tcp://p:1";
/// Generations of P and D.
pub(super) const OF_P: Generation = Generation(1);
pub(super) const OF_D: Generation = Generation(2);

/// One prefill, one decode, nothing goes wrong.
pub(super) fn plan() -> Plan {
    Plan {
        seed: 1,
        scenario: "made up".into(),
        fleet: Fleet {
            model: ModelPlan::Dense,
            engines: vec![EnginePlan::new(Side::Prefill), EnginePlan::new(Side::Decode)],
        },
        bounds: Bounds::default(),
        data: crate::plan::DataKind::Grants,
        odds: Odds::default(),
        sites: BTreeSet::new(),
        concurrency: 0,
        requests: Vec::new(),
        happenings: Vec::new(),
    }
}

/// Events in order.
#[derive(Debug, Clone)]
pub(super) struct Story {
    events: Vec<Event>,
    now: u64,
}

impl Story {
    /// Nothing yet.
    pub fn empty() -> Self {
        Self { events: Vec::new(), now: 0 }
    }

    /// P and D run and are registered.
    pub fn new() -> Self {
        let story = Self::empty().p(started(false, "p")).d(started(false, "d"));
        story.p(What::Registered { generation: OF_P }).d(What::Registered { generation: OF_D })
    }

    /// What follows happens at this time, in milliseconds.
    pub fn at(mut self, ms: u64) -> Self {
        self.now = ms * 1_000_000;
        self
    }

    fn push(mut self, lane: Lane, what: What) -> Self {
        self.events.push(Event { at: self.now, lane, what });
        self
    }

    pub fn node(self, node: NodeId, what: What) -> Self {
        self.push(Lane::Node(node), what)
    }

    pub fn p(self, what: What) -> Self {
        self.node(P, what)
    }

    pub fn d(self, what: What) -> Self {
        self.node(D, what)
    }

    pub fn engine(self, engine: u16, what: What) -> Self {
        self.push(Lane::Engine(engine), what)
    }

    pub fn clients(self, what: What) -> Self {
        self.push(Lane::Clients, what)
    }

    pub fn world(self, what: What) -> Self {
        self.push(Lane::World, what)
    }

    pub fn events(self) -> Vec<Event> {
        self.events
    }

    fn judge(self, oracle: &mut dyn Oracle) -> Result<(), String> {
        self.events.iter().try_for_each(|event| oracle.observe(event))?;
        oracle.end()
    }
}

/// The oracle has nothing to say.
#[track_caller]
pub(super) fn legal(mut oracle: impl Oracle, story: Story) {
    assert_eq!(story.judge(&mut oracle), Ok(()));
}

/// The oracle objects, in such words.
#[track_caller]
pub(super) fn caught(mut oracle: impl Oracle, story: Story, words: &str) {
    let said = story.judge(&mut oracle).expect_err("nothing was found");
    assert!(said.contains(words), "{said:?} does not say {words:?}");
}

pub(super) fn asked(id: u64, what: Operation) -> What {
    What::OperationAsked { id, what }
}

pub(super) fn ended(id: u64) -> What {
    What::OperationEnded { id, end: Ok(Outcome::Done) }
}

/// It failed, and all is as it was.
pub(super) fn failed(id: u64) -> What {
    let (operation, step) = ("sleep", "unregistering memory");
    What::OperationEnded { id, end: Err(OperationError::Resumed { operation, step }) }
}

pub(super) fn session(host: &str) -> SessionAddress {
    SessionAddress { host: host.into(), port: 1 }
}

pub(super) fn started(stock: bool, host: &str) -> What {
    let address = Some(format!("tcp://{host}:1").into());
    What::Started { stock, session: session(host), address }
}

pub(super) fn rows(rows: &[(u64, u64)]) -> Vec<MemoryRange> {
    let range = |&(start, len): &(u64, u64)| MemoryRange { start: Address(start), len: Bytes(len) };
    rows.iter().map(range).collect()
}

pub(super) fn held(name: &str, of: &[(u64, u64)]) -> What {
    What::Held { request: name.into(), transfer: name.into(), rows: rows(of), weights: 1 }
}

pub(super) fn hold_refused(name: &str) -> What {
    What::HoldRefused { request: name.into(), transfer: name.into(), why: "full".into() }
}

pub(super) fn send_ended(name: &str, ended: Result<(), &str>) -> What {
    let ended = ended.map_or_else(|why| SendFact::Failed(why.into()), |()| SendFact::Sent);
    What::SendEnded { request: name.into(), transfer: name.into(), ended }
}

pub(super) fn load(name: &str, of: &[(u64, u64)]) -> What {
    What::LoadAsked { request: name.into(), transfer: name.into(), rows: rows(of), weights: 1 }
}

pub(super) fn load_refused(name: &str) -> What {
    What::LoadRefused { request: name.into(), transfer: name.into(), why: "full".into() }
}

pub(super) fn load_ended(name: &str, end: LoadFact) -> What {
    What::LoadEnded { request: name.into(), transfer: name.into(), end }
}

pub(super) fn loaded(name: &str) -> What {
    load_ended(name, LoadFact::Loaded)
}

pub(super) fn load_failed(name: &str, reason: &str, message: &str) -> What {
    let failure = Failure { reason: reason.into(), message: message.into() };
    load_ended(name, LoadFact::Failed(failure))
}

pub(super) fn grant(grant: u64, of: &[(u64, u64)], ungranted: bool) -> What {
    What::GrantOpened { grant: Grant(grant), generation: OF_D, rows: rows(of), ungranted }
}

pub(super) fn write_name(number: u64) -> WriteName {
    WriteName { from: P, number }
}

pub(super) fn write(number: u64, grant: u64, reads: &[(u64, u64)]) -> What {
    What::WriteStarted {
        write: write_name(number),
        to: session("d"),
        grant: Some(Grant(grant)),
        generation: Some(OF_D),
        reads: rows(reads),
        bytes: reads.iter().map(|(_, len)| len).sum(),
    }
}

pub(super) fn write_ended(number: u64, how: WriteEnd) -> What {
    What::WriteEnded { write: write_name(number), how }
}

pub(super) fn write_failed(settled: bool) -> WriteEnd {
    WriteEnd::Failed { settled, why: "cut".into() }
}

pub(super) fn landed(number: u64, grant: Option<u64>, at: &[(u64, u64)]) -> What {
    What::Landed {
        write: write_name(number),
        grant: grant.map(Grant),
        generation: grant.map(|_| OF_D),
        ranges: rows(at),
        seen: true,
    }
}

/// Our D's pull: requests with their grants; the transfer is named like the request.
pub(super) fn pull(layout: u64, with_layout: bool, requests: &[(&str, u64)]) -> PullFacts {
    PullFacts {
        session: session("d"),
        layout_id: LayoutId(layout),
        with_layout,
        ours: true,
        generation: Some(OF_D),
        incarnation: None,
        weights: Some(1),
        timeout_ms: 8_000,
        requests: requests
            .iter()
            .map(|(name, grant)| ((*name).into(), (*name).into(), 1, Some(Grant(*grant))))
            .collect(),
    }
}

/// The same as a stock D sends it.
pub(super) fn stock_pull(with_layout: bool, requests: &[&str]) -> PullFacts {
    let requests = requests.iter().map(|name| ((*name).into(), (*name).into(), 1, None));
    PullFacts {
        ours: false,
        generation: None,
        weights: None,
        timeout_ms: 0,
        requests: requests.collect(),
        ..pull(0, with_layout, &[])
    }
}

pub(super) fn pull_sent(connection: u64, pull: PullFacts) -> What {
    What::PullSent { connection: ConnectionId(connection), to: ADDRESS.into(), pull }
}

pub(super) fn pull_received(connection: u64, pull: PullFacts) -> What {
    What::PullReceived { connection: ConnectionId(connection), pull }
}

pub(super) fn reply(status: Status, ok: &[&str], failed: &[&str], layout: u64) -> ReplyFacts {
    ReplyFacts {
        status,
        ok: ok.iter().map(|it| (*it).into()).collect(),
        failed: failed.iter().map(|it| (*it).into()).collect(),
        layout_id: LayoutId(layout),
        incarnation: None,
        message: None,
    }
}

pub(super) fn reply_sent(connection: u64, reply: ReplyFacts) -> What {
    What::ReplySent { connection: ConnectionId(connection), reply }
}

pub(super) fn reply_received(connection: u64, reply: ReplyFacts) -> What {
    What::ReplyReceived { connection: ConnectionId(connection), from: ADDRESS.into(), reply }
}
