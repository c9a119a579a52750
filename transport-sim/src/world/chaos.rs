//! Carries out what a plan's happenings say.

use super::door::{Door, Doors};
use super::engine::Order;
use crate::history::{Lane, NodeId, What};
use crate::plan::{EnginePlan, Happening, PauseMode, Planned, Side};
use crate::sim::Sim;
use futures_channel::oneshot;
use kvbaton_actors::runtime;
use madsim::runtime::Handle;
use madsim::task::NodeId as ProcessId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// What happenings act upon.
#[derive(Clone)]
pub struct Chaos {
    /// The run.
    pub sim: Arc<Sim>,
    /// Engines.
    pub doors: Doors,
    /// Their processes.
    pub processes: Arc<BTreeMap<u16, ProcessId>>,
    /// One operation at a time per engine, as operators do it.
    turns: Arc<BTreeMap<u16, Mutex<()>>>,
}

impl Chaos {
    /// What can be done to these engines.
    #[must_use]
    pub fn new(sim: Arc<Sim>, doors: Doors, processes: Arc<BTreeMap<u16, ProcessId>>) -> Self {
        let turns = processes.keys().map(|engine| (*engine, Mutex::new(()))).collect();
        Self { sim, doors, processes, turns: Arc::new(turns) }
    }

    /// Carries one out, from its beginning to its end.
    pub async fn happen(self, index: usize, planned: Planned) {
        runtime::sleep(Duration::from_millis(planned.at_ms)).await;
        let text: Arc<str> = planned.what.to_string().into();
        let note = |begins| What::Happens { index, begins, text: text.clone() };
        self.sim.note(Lane::World, note(true));
        let lasts = Duration::from_millis(planned.what.lasts_ms());
        self.carry_out(planned.what, lasts).await;
        self.sim.note(Lane::World, note(false));
    }

    async fn carry_out(&self, what: Happening, lasts: Duration) {
        match what {
            Happening::Kill { engine, down_ms, moves } => {
                self.kill(engine);
                if down_ms.is_some() {
                    runtime::sleep(lasts).await;
                    if moves || self.must_move(engine) {
                        self.doors.move_house(engine);
                    }
                    self.restart(engine);
                }
            }
            Happening::Move { engine, .. } => {
                self.kill(engine);
                runtime::sleep(lasts).await;
                if !self.sim.people().lives.contains_key(&engine) {
                    self.doors.move_house(engine);
                    self.doors.keep_id(engine);
                    self.restart(engine);
                }
            }
            Happening::Stop { engine, .. } => self.stop(engine, lasts).await,
            Happening::Cut { from, to, .. } => {
                self.sim.links().cut(from, to, true);
                runtime::sleep(lasts).await;
                self.sim.links().cut(from, to, false);
            }
            Happening::Slow { from, to, times, .. } => {
                for (one, other) in [(from, to), (to, from)] {
                    self.sim.links().slow(one, other, times, true);
                }
                runtime::sleep(lasts).await;
                for (one, other) in [(from, to), (to, from)] {
                    self.sim.links().slow(one, other, times, false);
                }
            }
            Happening::Reset { from, to } => self.sim.reset_between(from, to),
            Happening::ForgetDirectory { engine } => {
                for (url, directory) in &mut self.sim.people().directories {
                    if crate::sim::names::engine_of(url) == Some(engine) {
                        directory.clear();
                    }
                }
            }
            Happening::Pause { engine, mode, clear, .. } => {
                let _turn = self.turns[&engine].lock().await;
                self.pause(engine, mode, clear).await;
                runtime::sleep(lasts).await;
                self.resume(engine);
            }
            Happening::Sleep { engine, .. } => self.sleep_and_wake(engine, lasts).await,
            Happening::UpdateWeights { sleep, .. } => self.update_weights(lasts, sleep).await,
            Happening::ReleaseAll { engine } => self.order(engine, Order::ReleaseAll),
        }
    }

    fn order(&self, engine: u16, order: Order) {
        if let Some(door) = self.doors.get(engine) {
            door.order(order);
        }
    }

    /// Asks an engine's process; `None` when it is gone, or dies before it answers.
    async fn ask<R>(
        &self,
        engine: u16,
        order: impl FnOnce(oneshot::Sender<R>) -> Order,
    ) -> Option<R> {
        ask(&self.doors.get(engine)?, order).await
    }

    fn nodes(&self, engine: u16) -> Vec<NodeId> {
        let Some(life) = self.sim.people().lives.get(&engine).copied() else { return Vec::new() };
        let ranks = self.sim.plan.fleet.engines[usize::from(engine)].ranks() as u16;
        (0..ranks).map(|rank| NodeId { engine, rank, life }).collect()
    }

    fn kill(&self, engine: u16) {
        for node in self.nodes(engine) {
            self.sim.note_at(node, What::Killed);
        }
        {
            let mut people = self.sim.people();
            people.lives.remove(&engine);
            people.stopped.remove(&engine);
            people.sessions.retain(|_, data| data.node().engine != engine);
            people.directories.retain(|url, _| crate::sim::names::engine_of(url) != Some(engine));
        }
        self.doors.shut(engine);
        self.sim.hang_up(engine);
        Handle::current().kill(self.processes[&engine]);
    }

    /// Whether an engine may not come back at its old address: a D where stock peers write
    /// without grants, or which is one. A P that still has a pull or a write for the process
    /// before would write into the new one, and nobody could tell. Real data planes of that
    /// kind have random ports.
    fn must_move(&self, engine: u16) -> bool {
        let engines = &self.sim.plan.fleet.engines;
        let this = &engines[usize::from(engine)];
        let ungranted = |it: &EnginePlan| it.kind.is_stock() && it.side == Side::Prefill;
        this.side == Side::Decode && (this.kind.is_stock() || engines.iter().any(ungranted))
    }

    fn restart(&self, engine: u16) {
        if self.sim.people().lives.contains_key(&engine) {
            return; // Another restart was quicker.
        }
        Handle::current().restart(self.processes[&engine]);
    }

    async fn stop(&self, engine: u16, lasts: Duration) {
        let nodes = self.nodes(engine);
        let Some(life) = nodes.first().map(|node| node.life) else { return };
        for node in &nodes {
            self.sim.note_at(*node, What::Stopped);
        }
        *self.sim.people().stopped.entry(engine).or_default() += 1;
        Handle::current().pause(self.processes[&engine]);
        runtime::sleep(lasts).await;
        let goes_on = {
            let mut people = self.sim.people();
            let same = people.lives.get(&engine) == Some(&life);
            match people.stopped.get_mut(&engine) {
                Some(by) if same && *by > 0 => {
                    *by -= 1;
                    *by == 0
                }
                _ => false,
            }
        };
        if goes_on {
            for node in nodes {
                self.sim.note_at(node, What::Continued);
            }
            Handle::current().resume(self.processes[&engine]);
        }
    }

    async fn pause(&self, engine: u16, mode: PauseMode, clear: bool) {
        let name = match mode {
            PauseMode::Abort => "abort",
            PauseMode::Wait => "wait",
            PauseMode::Keep => "keep",
        };
        if self.doors.get(engine).is_some() {
            self.sim.note(Lane::Engine(engine), What::Paused { mode: name.into() });
        }
        match mode {
            PauseMode::Abort => {
                self.order(engine, Order::AbortAll);
                self.order(engine, Order::Freeze(true));
            }
            PauseMode::Wait => {
                self.order(engine, Order::Drain(true));
                self.ask(engine, Order::AwaitIdle).await;
            }
            PauseMode::Keep => self.order(engine, Order::Freeze(true)),
        }
        if clear {
            self.order(engine, Order::GiveBack);
        }
    }

    fn resume(&self, engine: u16) {
        self.order(engine, Order::Drain(false));
        self.order(engine, Order::Freeze(false));
        if self.doors.get(engine).is_some() {
            self.sim.note(Lane::Engine(engine), What::Resumed);
        }
    }

    async fn sleep_and_wake(&self, engine: u16, lasts: Duration) {
        let _turn = self.turns[&engine].lock().await;
        let asleep = self.fall_asleep(engine).await;
        runtime::sleep(lasts).await;
        if let Some(process) = asleep {
            ask(&process, Order::Wake).await;
        }
        self.order(engine, Order::Freeze(false));
    }

    /// Unregisters and unmaps; what cannot be leaves the engine as it was. Says which
    /// process sleeps then.
    async fn fall_asleep(&self, engine: u16) -> Option<Door> {
        let process = self.doors.get(engine)?;
        // A process that has just started does not know of the pause.
        process.order(Order::GiveBack);
        self.sim.note(Lane::Engine(engine), What::SleepAsked);
        let why: Arc<str> = match ask(&process, Order::Unregister).await {
            Some(Ok(())) => match ask(&process, Order::AwaitIdle).await {
                Some(true) => {
                    process.order(Order::Unmap);
                    return Some(process);
                }
                _ => {
                    ask(&process, Order::Wake).await;
                    "blocks have not come back".into()
                }
            },
            Some(Err(why)) => why,
            None => "its process has died".into(),
        };
        self.sim.note(Lane::Engine(engine), What::SleepFailed { why });
        None
    }

    /// Pauses every engine, then updates each, then resumes all.
    async fn update_weights(&self, lasts: Duration, sleep: bool) {
        let engines: Vec<u16> = self.processes.keys().copied().collect();
        let mut turns = Vec::new();
        for &engine in &engines {
            turns.push(self.turns[&engine].lock().await);
            self.order(engine, Order::GiveBack);
        }
        let mut asleep = Vec::new();
        if sleep {
            for &engine in &engines {
                if let Some(process) = self.fall_asleep(engine).await {
                    asleep.push(process);
                }
            }
        }
        runtime::sleep(lasts).await;
        for process in &asleep {
            ask(process, Order::Wake).await;
        }
        let version = self.doors.weights() + 1;
        self.doors.set_weights(version);
        for &engine in &engines {
            self.update_one(engine, version).await;
        }
        for &engine in &engines {
            self.order(engine, Order::Freeze(false));
        }
    }

    /// Tries until the engine has the weights; a process that starts meanwhile has them.
    async fn update_one(&self, engine: u16, version: u64) {
        loop {
            self.order(engine, Order::GiveBack);
            let Some(idle) = self.ask(engine, Order::AwaitIdle).await else { return };
            if idle {
                let update = |reply| Order::UpdateWeights(version, reply);
                match self.ask(engine, update).await {
                    Some(false) => {}
                    Some(true) | None => return,
                }
            }
        }
    }
}

/// Asks one process; `None` when it dies before it answers.
async fn ask<R>(process: &Door, order: impl FnOnce(oneshot::Sender<R>) -> Order) -> Option<R> {
    let (reply, answer) = oneshot::channel();
    process.order(order(reply));
    answer.await.ok()
}
