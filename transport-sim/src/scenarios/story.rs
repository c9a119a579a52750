//! A plan in the making: what most scenarios share.

use super::build::{BEGIN, engines, fleet, happen, requests};
use super::draw::Draw;
use crate::plan::{Fleet, Happening, ModelPlan, PauseMode, Plan, Side};

/// When faults may come; requests come from the beginning until then.
pub const UNTIL: u64 = 3_000;

/// By then no fault before [`UNTIL`] explains a failure any more: what still fails is broken.
pub const LONG_AFTER: u64 = 90_000;

/// Which engines a scenario does something to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Those that prefill.
    Prefill,
    /// Those that decode.
    Decode,
    /// All.
    Both,
}

/// A plan in the making.
#[derive(Debug)]
pub struct Story {
    /// The plan so far.
    pub plan: Plan,
    /// Its chance.
    pub draw: Draw,
}

impl Story {
    /// Engines of ours, unsharded, and nothing that happens.
    pub fn new(scenario: &str, seed: u64, prefills: u32, decodes: u32) -> Self {
        Self::of(scenario, seed, |_| fleet(ModelPlan::Dense, prefills, decodes))
    }

    /// The same with engines of one's own.
    pub fn of(scenario: &str, seed: u64, fleet: impl FnOnce(&mut Draw) -> Fleet) -> Self {
        let mut draw = Draw::new(scenario, seed);
        let fleet = fleet(&mut draw);
        Self { plan: Plan::new(scenario, seed, fleet), draw }
    }

    /// So many requests before [`UNTIL`], and links so slow that faults meet transfers.
    pub fn load(mut self, count: u32) -> Self {
        self.more(count, BEGIN, UNTIL);
        self.plan.odds.bandwidth = self.draw.pick(&[8, 32, 128]);
        self
    }

    /// More requests, between these times.
    pub fn more(&mut self, count: u32, from_ms: u64, to_ms: u64) {
        requests(&mut self.plan, &mut self.draw, count, (from_ms, to_ms));
    }

    /// Arms these sites.
    pub fn sites(&mut self, names: &[&str]) {
        self.plan.sites.extend(names.iter().map(|name| (*name).to_owned()));
    }

    /// Something happens at this time.
    pub fn at(&mut self, at_ms: u64, what: Happening) {
        happen(&mut self.plan, at_ms, what);
    }

    /// Some time in the busy part.
    pub fn some_time(&mut self) -> u64 {
        self.draw.between(BEGIN, UNTIL)
    }

    /// Something happens in the busy part.
    pub fn happens(&mut self, what: Happening) {
        let at = self.some_time();
        self.at(at, what);
    }

    /// The engines of that side, or all.
    pub fn engines(&self, which: Which) -> Vec<u16> {
        match which {
            Which::Prefill => engines(&self.plan.fleet, Side::Prefill),
            Which::Decode => engines(&self.plan.fleet, Side::Decode),
            Which::Both => (0..self.plan.fleet.engines.len() as u16).collect(),
        }
    }

    /// One engine of that side.
    pub fn one(&mut self, which: Which) -> u16 {
        let engines = self.engines(which);
        self.draw.pick(&engines)
    }

    /// A time from these, in milliseconds.
    pub fn lasts(&mut self) -> u64 {
        self.draw.pick(&[20, 200, 1_000, 3_000])
    }

    /// Pauses these engines together.
    pub fn pause(&mut self, which: Which, mode: PauseMode) {
        let (at, for_ms, clear) = (self.some_time(), self.lasts(), self.draw.one_in(2));
        for engine in self.engines(which) {
            self.at(at, Happening::Pause { engine, mode, clear, for_ms });
        }
    }

    /// The plan.
    pub fn done(mut self) -> Plan {
        self.plan.requests.sort_by_key(|request| (request.at_ms, request.id));
        self.plan
    }
}
