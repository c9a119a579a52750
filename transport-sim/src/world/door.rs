//! How everybody outside reaches an engine: its current process, if it has one.

use super::engine::{Input, Order};
use futures_channel::mpsc::UnboundedSender;
use kvbaton_actors::engine::EngineHandle;
use kvbaton_core::ids::EngineId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// One engine's process.
#[derive(Clone)]
pub struct Door {
    /// The engine's id: new in each life that does not keep the last one's.
    pub engine_id: EngineId,
    /// Its bootstrap server.
    pub bootstrap: Arc<str>,
    pub(super) inbox: UnboundedSender<Input>,
    /// How operators reach it; `None` for engines that do such things by themselves.
    pub lifecycle: Option<EngineHandle>,
}

impl Door {
    /// Hands an order in; a process that is gone does not take it.
    pub fn order(&self, order: Order) {
        let _ = self.inbox.unbounded_send(Input::Order(order));
    }
}

/// The doors of all engines that run, and what new processes must know.
#[derive(Clone)]
pub struct Doors {
    shared: Arc<Mutex<Shared>>,
}

impl Default for Doors {
    fn default() -> Self {
        // 0 would say that nobody updates weights.
        Self { shared: Arc::new(Mutex::new(Shared { weights: 1, ..Shared::default() })) }
    }
}

#[derive(Default)]
struct Shared {
    doors: BTreeMap<u16, Door>,
    /// Lives that each engine has had.
    lives: BTreeMap<u16, u16>,
    /// The life that gave each engine its id.
    ids: BTreeMap<u16, u16>,
    /// Engines whose next process keeps its id.
    kept: BTreeSet<u16>,
    /// Which of its addresses it has.
    homes: BTreeMap<u16, u16>,
    weights: u64,
}

impl Doors {
    fn with<R>(&self, act: impl FnOnce(&mut Shared) -> R) -> R {
        act(&mut self.shared.lock().expect("no panic under the lock"))
    }

    /// An engine's door.
    #[must_use]
    pub fn get(&self, engine: u16) -> Option<Door> {
        self.with(|shared| shared.doors.get(&engine).cloned())
    }

    /// Opens the door of a new process.
    pub fn open(&self, engine: u16, door: Door) {
        self.with(|shared| shared.doors.insert(engine, door));
    }

    /// The process is gone.
    pub fn shut(&self, engine: u16) {
        self.with(|shared| shared.doors.remove(&engine));
    }

    /// The number and the home of a process that starts now.
    pub fn begin(&self, engine: u16) -> (u16, u16) {
        self.with(|shared| {
            let lives = shared.lives.entry(engine).or_default();
            let life = *lives;
            *lives += 1;
            if !shared.kept.remove(&engine) {
                shared.ids.insert(engine, life);
            }
            (life, shared.homes.get(&engine).copied().unwrap_or_default())
        })
    }

    /// The id of an engine's process.
    #[must_use]
    pub fn engine_id(&self, engine: u16) -> EngineId {
        let life = self.with(|shared| shared.ids.get(&engine).copied().unwrap_or_default());
        format!("e{engine}-{life}").into()
    }

    /// The engine's next process has the id of its last.
    pub fn keep_id(&self, engine: u16) {
        self.with(|shared| shared.kept.insert(engine));
    }

    /// The engine's next process has another address.
    pub fn move_house(&self, engine: u16) {
        self.with(|shared| *shared.homes.entry(engine).or_default() += 1);
    }

    /// Version of the weights that processes start with.
    #[must_use]
    pub fn weights(&self) -> u64 {
        self.with(|shared| shared.weights)
    }

    /// Processes start with these weights from now on.
    pub fn set_weights(&self, version: u64) {
        self.with(|shared| shared.weights = version);
    }
}
