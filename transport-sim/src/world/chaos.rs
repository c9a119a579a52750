//! Carries out what a plan's happenings say.

mod operations;

use super::door::Doors;
use super::engine::Order;
use crate::history::{Lane, NodeId, What};
use crate::plan::{EnginePlan, Happening, Planned, Side, WakeOrder};
use crate::sim::{Sim, Strike};
use kvbaton_actors::runtime;
use kvbaton_core::lifecycle::engine::{self, Operation, SleepLevel};
use madsim::runtime::Handle;
use madsim::task::NodeId as ProcessId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::sync::Mutex;

/// How long an order has lasted when something happens.
const INTO_ORDER: Duration = Duration::from_millis(2);

/// What happenings act upon.
#[derive(Clone)]
pub struct Chaos {
    /// The run.
    pub sim: Arc<Sim>,
    /// Engines.
    pub doors: Doors,
    /// Their processes.
    pub processes: Arc<BTreeMap<u16, ProcessId>>,
    /// One operator at a time per engine.
    turns: Arc<BTreeMap<u16, Mutex<()>>>,
    operations: Arc<AtomicU64>,
}

impl Chaos {
    /// What can be done to these engines.
    #[must_use]
    pub fn new(sim: Arc<Sim>, doors: Doors, processes: Arc<BTreeMap<u16, ProcessId>>) -> Self {
        let turns = processes.keys().map(|engine| (*engine, Mutex::new(()))).collect();
        Self { sim, doors, processes, turns: Arc::new(turns), operations: Arc::default() }
    }

    /// Carries one out, from its beginning to its end.
    pub async fn happen(self, index: usize, planned: Planned) {
        runtime::sleep(Duration::from_millis(planned.at_ms)).await;
        let text: Arc<str> = planned.what.to_string().into();
        let note = |begins| What::Happens { index, begins, text: text.clone() };
        let came = self.await_order(&planned.what).await;
        self.sim.note(Lane::World, note(true));
        let lasts = Duration::from_millis(planned.what.lasts_ms());
        if came {
            self.carry_out(planned.what, lasts).await;
        }
        self.sim.note(Lane::World, note(false));
    }

    /// Waits for the order that a happening strikes, if it does that; whether it came.
    async fn await_order(&self, what: &Happening) -> bool {
        let (engine, order, within_ms, strike) = match *what {
            Happening::FailOrder { engine, order, within_ms } => {
                (engine, order, within_ms, Strike::Fails)
            }
            Happening::AtOrder { engine, order, within_ms, .. } => {
                (engine, order, within_ms, Strike::Lasts)
            }
            _ => return true,
        };
        let given = self.sim.orders().trap(engine, order, strike);
        let given = runtime::timeout(Duration::from_millis(within_ms), given).await;
        if strike == Strike::Lasts {
            runtime::sleep(INTO_ORDER).await; // Those beside it have been carried out.
        }
        matches!(given, Ok(Ok(())))
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
                self.pause_and_resume(engine, mode, clear, lasts).await;
            }
            Happening::Sleep { engine, level, mode, wake, .. } => {
                let level = SleepLevel::of(level).unwrap_or(SleepLevel::Discard);
                let operation = Operation::Sleep { level, mode: mode.into() };
                self.sleep_and_wake(engine, operation, wake, lasts).await;
            }
            Happening::ReleaseKv { engine, mode, .. } => {
                let operation = Operation::ReleaseKv(mode.into());
                self.sleep_and_wake(engine, operation, WakeOrder::All, lasts).await;
            }
            Happening::Reregister { engine, .. } => self.reregister(engine, lasts).await,
            Happening::UpdateWeights { sleep, .. } => self.update_weights(lasts, sleep).await,
            Happening::Resume { engine } => drop(self.ask(engine, Operation::Resume).await),
            Happening::AbortTransfers { engine } => {
                self.ask(engine, Operation::AbortTransfers).await;
            }
            Happening::AbortRequests { engine } => {
                self.ask(engine, Operation::AbortRequests(engine::Which::All)).await;
            }
            Happening::ResetCache { engine, running } => {
                self.ask(engine, Operation::ResetPrefixCache { running }).await;
            }
            // `happen` waits for the order.
            Happening::FailOrder { .. } => {}
            Happening::AtOrder { then, .. } => {
                let lasts = Duration::from_millis(then.lasts_ms());
                Box::pin(self.carry_out(*then, lasts)).await;
            }
            Happening::ReleaseAll { engine } => self.order(engine, Order::ReleaseAll),
        }
    }

    fn order(&self, engine: u16, order: Order) {
        if let Some(door) = self.doors.get(engine) {
            door.order(order);
        }
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
}
