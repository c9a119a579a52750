//! What all nodes of one run share: time, network, history, who is where.

mod clockwork;
mod dice;
mod links;
pub mod names;
mod orders;
mod record;

pub use dice::Dice;
pub use links::{Fate, Links};
pub use orders::{Orders, Strike};
pub use record::Record;

use crate::control::Wires;
use crate::data::SimData;
use crate::history::{Lane, NodeId, What};
use crate::oracles::Oracle;
use crate::plan::Plan;
use crate::sites;
use clockwork::Clockwork;
use kvbaton_actors::runtime::Instant;
use kvbaton_actors::transport::Directory;
use kvbaton_core::ids::SessionAddress;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// One run. Locks are held for moments only, and never one inside another but as
/// `people` → `record`.
pub struct Sim {
    /// What was decided before.
    pub plan: Plan,
    start: Instant,
    clockwork: Clockwork,
    record: Mutex<Record>,
    links: Mutex<Links>,
    people: Mutex<People>,
    orders: Mutex<Orders>,
    /// Control-plane connections.
    pub(crate) wires: Mutex<Wires>,
}

/// Who is there.
#[derive(Default)]
pub struct People {
    /// Current life of each engine that runs.
    pub lives: BTreeMap<u16, u16>,
    /// Engines that are stopped (SIGSTOP), and by how many faults.
    pub stopped: BTreeMap<u16, u32>,
    /// Data planes by session.
    pub sessions: BTreeMap<SessionAddress, Arc<SimData>>,
    /// Bootstrap servers by URL.
    pub directories: BTreeMap<Arc<str>, Directory>,
}

impl Sim {
    /// A run that starts now, inside the simulator's runtime; judged by all oracles and
    /// these.
    #[must_use]
    pub fn new(plan: Plan, oracles: Vec<Box<dyn Oracle + Send>>) -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            clockwork: Clockwork::default(),
            record: Mutex::new(Record::new(&plan, oracles)),
            links: Mutex::new(Links::new(plan.seed, plan.odds.clone())),
            people: Mutex::default(),
            orders: Mutex::default(),
            wires: Mutex::default(),
            plan,
        })
    }

    /// Virtual nanoseconds since the start.
    #[must_use]
    pub fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Does what is posted, for ever.
    pub async fn run_clockwork(self: Arc<Self>) {
        self.clockwork.run(|| self.now()).await;
    }

    /// Does something after `nanos`.
    pub fn after(&self, nanos: u64, deed: impl FnOnce() + Send + 'static) {
        self.clockwork.post(self.now() + nanos, deed);
    }

    /// Notes what happened.
    pub fn note(&self, lane: Lane, what: What) {
        let at = self.now();
        self.record().push(at, lane, what);
    }

    /// Notes what happened at a node, unless that life is over.
    pub fn note_at(&self, node: NodeId, what: What) {
        if self.is_alive(node) {
            self.note(Lane::Node(node), what);
        }
    }

    /// The history.
    pub fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().expect("no panic under the lock")
    }

    /// The network.
    pub fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().expect("no panic under the lock")
    }

    /// Who is there.
    pub fn people(&self) -> MutexGuard<'_, People> {
        self.people.lock().expect("no panic under the lock")
    }

    /// Orders of lifecycles.
    pub fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().expect("no panic under the lock")
    }

    /// Whether this life of a node goes on.
    #[must_use]
    pub fn is_alive(&self, node: NodeId) -> bool {
        self.people().lives.get(&node.engine) == Some(&node.life)
    }

    /// Whether an engine is stopped (SIGSTOP).
    #[must_use]
    pub fn is_stopped(&self, engine: u16) -> bool {
        self.people().stopped.get(&engine).is_some_and(|by| *by > 0)
    }

    /// Whether a named site misbehaves this time; it is noted when it does.
    #[must_use]
    pub fn fires(&self, site: &'static str, engine: u16) -> bool {
        debug_assert!(sites::ALL.contains(&site), "{site} is not in the list of sites");
        let armed = self.plan.sites.contains(site) && !self.record().healed();
        let fires = armed && self.links().dice().happens(site, u32::from(engine), 2_500);
        if fires {
            self.note(Lane::World, What::SiteFired(site));
        }
        fires
    }

    /// A number of milliseconds from `low` to `high`, in nanoseconds.
    #[must_use]
    pub fn some_ms(&self, purpose: &'static str, engine: u16, low: u64, high: u64) -> u64 {
        self.links().dice().between(purpose, u32::from(engine), low, high) * 1_000_000
    }
}
