//! The engine's side of its lifecycle: orders are the scheduler's, memory is done here.

use super::host::EngineHost;
use super::notice::Measured;
use super::weights::WeightsMemory;
use anyhow::Result;
use kvbaton_actors::engine::{Asked, EngineHandle};
use kvbaton_core::lifecycle::engine::{EngineOrder, Part};
use kvbaton_model_engine::Progress;

/// The end of an order, to be told.
pub(super) type End = futures_channel::oneshot::Sender<Result<(), String>>;

impl EngineHost {
    /// The handle on its lifecycle.
    #[must_use]
    pub fn lifecycle(&self) -> EngineHandle {
        self.engine.handle()
    }

    /// Carries out what the lifecycle asks.
    pub fn asked(&mut self, asked: Asked) {
        match asked {
            Asked::InUse(told) => {
                let _ = told.send(self.scheduler.in_use());
            }
            Asked::Order(order, told) => self.order(&order, told),
        }
    }

    fn order(&mut self, order: &EngineOrder, told: End) {
        let end = match self.scheduler.order(order) {
            Progress::Waits(until) => {
                self.ends.push((until, told));
                return self.drain();
            }
            Progress::Failed(why) => Err(why),
            Progress::Memory => self.memory(order).map_err(|error| format!("{error:#}")),
            Progress::Done => match order {
                EngineOrder::LoadWeights(version) => self.load_weights(version.0),
                _ => Ok(()),
            }
            .map_err(|error| format!("{error:#}")),
        };
        self.drain();
        // Whoever asked may have stopped waiting.
        let _ = told.send(end);
    }

    /// Tells the ends that have come. Call it after each input.
    pub(super) fn tell_ends(&mut self) {
        if self.ends.is_empty() {
            return;
        }
        let mut waiting = Vec::new();
        for (until, told) in std::mem::take(&mut self.ends) {
            if told.is_canceled() {
                continue;
            }
            if self.scheduler.is(until) {
                let _ = told.send(Ok(()));
            } else {
                waiting.push((until, told));
            }
        }
        self.ends = waiting;
    }

    /// Maps or unmaps on every rank, or on none.
    fn memory(&mut self, order: &EngineOrder) -> Result<()> {
        match *order {
            EngineOrder::Unmap { part: Part::Kv, .. } => self.unmap_kv(),
            EngineOrder::Map(Part::Kv) => self.map_kv(),
            EngineOrder::Unmap { part: Part::Weights, keep } => {
                let done = self.weights.iter_mut().try_for_each(WeightsMemory::unmap);
                if done.is_err() {
                    // They were all there before, so they come back.
                    self.weights.iter_mut().try_for_each(WeightsMemory::map)?;
                }
                if done.is_err() || !keep {
                    self.weights.iter_mut().for_each(WeightsMemory::forget);
                }
                done
            }
            EngineOrder::Map(Part::Weights) => {
                self.weights.iter_mut().try_for_each(WeightsMemory::map)?;
                self.weights.iter_mut().for_each(WeightsMemory::forget);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn unmap_kv(&mut self) -> Result<()> {
        let mut ranks = self.ranks.iter();
        let failed = ranks.find_map(|(_, rank)| rank.memory().unmap().err());
        let Some(error) = failed else {
            // What the prefix cache named is gone.
            self.group_of.fill(None);
            return Ok(());
        };
        self.map_kv()?;
        Err(error)
    }

    fn map_kv(&self) -> Result<()> {
        self.ranks.iter().try_for_each(|(_, rank)| rank.memory().map())
    }

    fn load_weights(&mut self, version: u64) -> Result<()> {
        self.weights.iter_mut().try_for_each(|it| it.load(version))
    }

    /// What of its memory is there, and how the engine stands.
    #[must_use]
    pub fn measure(&self) -> Measured {
        let mut measured = Measured { process_resident: process_resident(), ..Measured::default() };
        for ((_, rank), weights) in self.ranks.iter().zip(&self.weights) {
            measured.kv_resident += rank.memory().resident();
            let (place, kept) = weights.resident();
            measured.weights_resident += place;
            measured.weights_kept += kept;
        }
        if let Some(status) = self.engine.status() {
            measured.state = status.standing.name().to_owned();
        }
        measured
    }
}

/// Bytes of the whole process that are in memory.
fn process_resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
    // SAFETY: it asks for a number.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as u64
}
