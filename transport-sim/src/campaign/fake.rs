//! A made-up world for the tests of the campaign: a pure function of the plan that makes a
//! small history, and objects when a restart meets a request of family 7.

use super::suite::{Bug, Scenario, Suite};
use crate::history::{
    ConnectionId, Event, Failure, History, Lane, LoadFact, NodeId, PullFacts, ReplyFacts, SendFact,
    What, WriteEnd, WriteName,
};
use crate::oracles::Violation;
use crate::plan::{
    Bounds, EnginePlan, Fleet, Happening, ModelPlan, Odds, Plan, Planned, Quirk, RequestPlan, Side,
};
use crate::world::{Outcome, RunOptions};
use kvbaton_core::ids::{
    Address, Bytes, Generation, Grant, LayoutId, RequestId, SessionAddress, TransferId,
};
use kvbaton_core::region::MemoryRange;
use kvbaton_core::wire::Status;
use std::sync::Arc;

/// Two scenarios, of which only the first fails.
pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "mixed", about: "all faults at once", rules: &["L04"], make: plan },
    Scenario { name: "quiet", about: "no faults", rules: &[], make: quiet },
];

/// Two sites, of which only the first fires.
pub const SITES: &[&str] = &["fires", "never-fires"];

/// Two bugs, of which only the first is found.
pub const BUGS: &[Bug] = &[Bug { name: "found", rule: "L03" }, Bug { name: "hidden", rule: "G01" }];

/// All of it.
#[must_use]
pub fn suite() -> Suite<'static> {
    Suite { run: &run, scenarios: SCENARIOS, sites: SITES, bugs: BUGS }
}

/// A plan with faults: two engines, ten requests, six happenings.
#[must_use]
pub fn plan(seed: u64) -> Plan {
    let mut prefill = EnginePlan::new(Side::Prefill);
    prefill.tp = 2;
    let engines = vec![prefill, EnginePlan::new(Side::Decode)];
    let request = |id: u32| RequestPlan {
        id,
        at_ms: 40 * u64::from(id),
        family: (seed as u32).wrapping_mul(3).wrapping_add(id * 5) % 23,
        prompt_len: 24,
        shared_len: 8,
        max_tokens: 4,
        prefill: 0,
        decode: 1,
        leaves_at_ms: None,
        retries: 1,
        quirk: Quirk::None,
    };
    let restart = Happening::Kill { engine: 0, down_ms: Some(200), moves: false };
    let planned = |at_ms, what| Planned { at_ms, what };
    Plan {
        seed,
        scenario: "mixed".into(),
        fleet: Fleet { model: ModelPlan::Dense, engines },
        bounds: Bounds::default(),
        data: crate::plan::DataKind::Grants,
        odds: Odds { loss: 40, delay_ms: 30, ..Odds::default() },
        sites: ["fires".to_owned()].into(),
        concurrency: 0,
        requests: (0..10).map(request).collect(),
        happenings: vec![
            planned(20, Happening::Stop { engine: 1, for_ms: 50 }),
            planned(100, Happening::Cut { from: 0, to: 1, for_ms: 80 }),
            planned(150, Happening::ReleaseAll { engine: 0 }),
            planned(210, restart),
            planned(300, Happening::sleep(1, 100)),
            planned(500, Happening::Reset { from: 0, to: 1 }),
        ],
    }
}

fn quiet(seed: u64) -> Plan {
    let plan = plan(seed);
    Plan { scenario: "quiet".into(), happenings: Vec::new(), odds: Odds::default(), ..plan }
}

/// Objects when the plan restarts an engine and has a request of family 7; with the bug
/// `found`, when a request has family 3.
#[must_use]
pub fn run(plan: &Plan, options: &RunOptions) -> Outcome {
    let mut history = History::default();
    let mut world = World { history: &mut history, now: 0 };
    world.start(plan);
    let restarts = plan.happenings.iter().any(|it| it.what.name() == "restart");
    let bug = options.plant.as_deref() == Some("found");
    let mut violation = None;
    for (index, it) in plan.happenings.iter().enumerate() {
        let text: Arc<str> = it.what.name().into();
        world.push(Lane::World, What::Happens { index, begins: true, text });
    }
    for request in &plan.requests {
        world.request(request, plan.seed);
        if (restarts && request.family == 7) || (bug && request.family == 3) {
            let event = world.history.events().len() - 1;
            let text = format!("request {} got <other> bytes", request.id);
            violation = Some(Violation { oracle: "bytes", rules: &["L04", "A07"], text, event });
            break;
        }
    }
    if plan.sites.contains("fires") {
        world.push(Lane::Engine(0), What::SiteFired("fires"));
    }
    world.push(Lane::World, What::Ended);
    let virtual_ns = world.now;
    Outcome { hash: history.hash(), events: history.events().to_vec(), virtual_ns, violation }
}

struct World<'a> {
    history: &'a mut History,
    now: u64,
}

impl World<'_> {
    fn push(&mut self, lane: Lane, what: What) {
        self.now += 1_300_000;
        self.history.push(Event { at: self.now, lane, what });
    }

    fn start(&mut self, plan: &Plan) {
        for (engine, it) in plan.fleet.engines.iter().enumerate() {
            for rank in 0..it.ranks() {
                let lane = Lane::Node(node(engine as u16, rank as u16));
                let session = session(engine as u16, rank as u16);
                self.push(lane, What::Started { stock: false, session, address: None });
                self.push(lane, What::Registered { generation: Generation(1) });
            }
        }
    }

    /// One transfer that goes well.
    fn request(&mut self, it: &RequestPlan, seed: u64) {
        let (p, d) = (Lane::Node(node(it.prefill, 0)), Lane::Node(node(it.decode, 0)));
        let request = RequestId::from(format!("r{}", it.id));
        let transfer = TransferId::from(format!("t{}", it.id));
        let (connection, grant) = (ConnectionId(u64::from(it.id)), Grant(seed << 8));
        let rows = vec![MemoryRange { start: Address(0x1000), len: Bytes(64) }];
        let write = WriteName { from: node(it.prefill, 0), number: u64::from(it.id) };
        let pull = PullFacts {
            session: session(it.decode, 0),
            layout_id: LayoutId(5),
            with_layout: it.id == 0,
            ours: true,
            generation: Some(Generation(1)),
            incarnation: None,
            weights: None,
            timeout_ms: 100,
            requests: vec![(request.clone(), transfer.clone(), 2, Some(grant))],
        };
        let reply = ReplyFacts {
            status: Status::Finish,
            ok: vec![request.clone()],
            failed: Vec::new(),
            layout_id: LayoutId(5),
            incarnation: None,
            message: None,
        };
        let load = What::LoadAsked {
            request: request.clone(),
            transfer: transfer.clone(),
            rows: rows.clone(),
            weights: 1,
        };
        self.push(d, load);
        let opened = What::GrantOpened {
            grant,
            generation: Generation(1),
            rows: rows.clone(),
            ungranted: false,
        };
        self.push(d, opened);
        self.push(d, What::PullSent { connection, to: "tcp://p:1".into(), pull: pull.clone() });
        if it.id == 2 {
            self.push(Lane::World, What::MessageLost { connection });
            let why = Failure { reason: "TimedOut".into(), message: "nothing was heard".into() };
            let end = LoadFact::Failed(why);
            self.push(d, What::LoadEnded { request, transfer, end });
            return;
        }
        self.push(p, What::PullReceived { connection, pull });
        let held = What::Held {
            request: request.clone(),
            transfer: transfer.clone(),
            rows: rows.clone(),
            weights: 1,
        };
        self.push(p, held);
        let started = What::WriteStarted {
            write,
            to: session(it.decode, 0),
            grant: Some(grant),
            generation: Some(Generation(1)),
            reads: rows.clone(),
            bytes: 64,
        };
        self.push(p, started);
        let landed = What::Landed {
            write,
            grant: Some(grant),
            generation: Some(Generation(1)),
            ranges: rows,
            seen: true,
        };
        self.push(d, landed);
        self.push(p, What::WriteEnded { write, how: WriteEnd::Written });
        self.push(p, What::ReplySent { connection, reply: reply.clone() });
        let sent = SendFact::Sent;
        self.push(
            p,
            What::SendEnded { request: request.clone(), transfer: transfer.clone(), ended: sent },
        );
        self.push(d, What::ReplyReceived { connection, from: "tcp://p:1".into(), reply });
        self.push(d, What::RevokeAsked { grant });
        self.push(d, What::Revoked { grant });
        self.push(d, What::LoadEnded { request, transfer, end: LoadFact::Loaded });
    }
}

fn node(engine: u16, rank: u16) -> NodeId {
    NodeId { engine, rank, life: 0 }
}

fn session(engine: u16, rank: u16) -> SessionAddress {
    SessionAddress { host: format!("10.0.{engine}.{rank}").into(), port: 1 }
}
