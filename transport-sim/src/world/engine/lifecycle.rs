//! What an engine's lifecycle orders, carried out on its scheduler and its memory.

use super::host::Host;
use super::order::Input;
use super::ranks::LASTS;
use crate::history::What;
use crate::sim::Strike;
use crate::sites;
use futures_channel::oneshot;
use kvbaton_actors::engine::Asked;
use kvbaton_core::lifecycle::engine::{EngineOrder, Part};
use kvbaton_model_engine::{Progress, Until};
use std::collections::VecDeque;
use std::sync::Arc;

type Reply = oneshot::Sender<Result<(), String>>;

/// An order that was given.
struct Given {
    number: u32,
    order: EngineOrder,
    strike: Option<Strike>,
    reply: Reply,
}

/// Where the weights are. They have no bytes of their own here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WeightsAt {
    /// In place.
    Mapped,
    /// Kept elsewhere.
    Kept,
    /// Nowhere.
    Gone,
    /// Mapped, without content.
    Blank,
}

/// Orders of the lifecycle that are not done.
pub(super) struct Orders {
    /// Those that wait for something.
    waiting: Vec<(u32, Until, Reply)>,
    /// One that takes time, and those behind it.
    slow: VecDeque<Given>,
    pub weights: WeightsAt,
}

impl Default for Orders {
    fn default() -> Self {
        Self { waiting: Vec::new(), slow: VecDeque::new(), weights: WeightsAt::Mapped }
    }
}

impl Host {
    pub(super) fn asked(&mut self, asked: Asked) {
        match asked {
            Asked::InUse(reply) => {
                let _ = reply.send(self.model.scheduler().in_use());
            }
            Asked::Order(order, reply) => {
                let (number, strike) = self.sim.orders().given(self.engine);
                self.note(What::EngineTold { number, order: order.clone() });
                let given = Given { number, order, strike, reply };
                match self.takes(&given) {
                    Some(nanos) => {
                        self.orders.slow.push_back(given);
                        if self.orders.slow.len() == 1 {
                            self.send_later(nanos, Input::OrderNow);
                        }
                    }
                    None => self.carry_out_order(given),
                }
            }
        }
    }

    /// How long an order takes, if it is not done at once: orders are done in turn.
    fn takes(&self, given: &Given) -> Option<u64> {
        if !self.orders.slow.is_empty() {
            return Some(0);
        }
        if given.strike == Some(Strike::Lasts) {
            return Some(LASTS.as_nanos() as u64);
        }
        let slow = is_memory(&given.order) && self.sim.fires(sites::MEMORY_SLOW, self.engine);
        slow.then(|| self.sim.some_ms("memory", self.engine, 1, 500))
    }

    /// The slow order's time has come; those behind it take none.
    pub(super) fn order_now(&mut self) {
        for given in std::mem::take(&mut self.orders.slow) {
            self.carry_out_order(given);
        }
    }

    fn carry_out_order(&mut self, given: Given) {
        let Given { number, order, strike, reply } = given;
        if strike == Some(Strike::Fails) {
            return self.order_done(number, Err("the plan says that it cannot".into()), reply);
        }
        if is_memory(&order) && self.sim.fires(sites::MEMORY_FAILS, self.engine) {
            return self.order_done(number, Err("no memory".into()), reply);
        }
        let done = match self.model.scheduler().order(&order) {
            Progress::Waits(until) => return self.orders.waiting.push((number, until, reply)),
            Progress::Failed(why) => Err(why),
            Progress::Memory => {
                self.memory(&order);
                Ok(())
            }
            Progress::Done => {
                if let EngineOrder::LoadWeights(version) = order {
                    self.orders.weights = WeightsAt::Mapped;
                    self.note(What::WeightsUpdated { version: version.0 });
                }
                Ok(())
            }
        };
        self.order_done(number, done, reply);
    }

    fn order_done(&self, number: u32, done: Result<(), String>, reply: Reply) {
        let failed: Option<Arc<str>> = done.as_ref().err().map(|why| why.as_str().into());
        self.note(What::OrderDone { number, failed });
        let _ = reply.send(done);
    }

    /// Answers orders that waited for what is so now. Nobody waits for some any more.
    pub(super) fn answer_orders(&mut self) {
        for (number, until, reply) in std::mem::take(&mut self.orders.waiting) {
            if reply.is_canceled() {
                continue;
            }
            if self.model.scheduler().is(until) {
                self.order_done(number, Ok(()), reply);
            } else {
                self.orders.waiting.push((number, until, reply));
            }
        }
    }

    /// Pages go, or new ones come.
    fn memory(&mut self, order: &EngineOrder) {
        match *order {
            EngineOrder::Unmap { part: Part::Kv, .. } => {
                for rank in &self.ranks {
                    rank.memory.unmap();
                    rank.witness.note(What::Unmapped);
                }
                self.note(What::Slept);
            }
            EngineOrder::Map(Part::Kv) => {
                for rank in self.ranks.iter().filter(|it| it.memory.pages().is_none()) {
                    rank.memory.map();
                    rank.witness.note(What::Mapped);
                }
            }
            EngineOrder::Unmap { part: Part::Weights, keep } => {
                self.orders.weights = if keep { WeightsAt::Kept } else { WeightsAt::Gone };
            }
            EngineOrder::Map(Part::Weights) => {
                self.orders.weights = match self.orders.weights {
                    WeightsAt::Gone | WeightsAt::Blank => WeightsAt::Blank,
                    WeightsAt::Kept | WeightsAt::Mapped => WeightsAt::Mapped,
                };
            }
            _ => {}
        }
    }
}

fn is_memory(order: &EngineOrder) -> bool {
    matches!(order, EngineOrder::Unmap { .. } | EngineOrder::Map(_) | EngineOrder::LoadWeights(_))
}
