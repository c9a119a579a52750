//! Engines of one's own: the same network, faults, oracles and outcome, around a scheduler
//! that is not the model engine. `examples/own_scheduler.rs` is one.

mod node;

pub use super::process::Process;
pub use node::ObservedNode;

use super::door::Doors;
use super::engine::{Input, Order};
use super::outcome::{Outcome, RunOptions};
use super::run::{plant, play};
use crate::history::{Answer, Lane, What};
use crate::oracles::Oracle;
use crate::plan::{Happening, Plan};
use crate::sim::Sim;
use futures_channel::mpsc::unbounded;
use futures_util::StreamExt;
use kvbaton_actors::runtime;
use kvbaton_core::ids::EngineId;
use std::sync::Arc;

/// What clients see of a run.
#[derive(Clone)]
pub struct Stage {
    sim: Arc<Sim>,
    doors: Doors,
}

impl Stage {
    /// The run.
    #[must_use]
    pub const fn sim(&self) -> &Arc<Sim> {
        &self.sim
    }

    /// What was decided before it.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.sim.plan
    }

    /// Engine id and bootstrap server of an engine's process; `None` while it is down or not
    /// [ready](Process::ready).
    #[must_use]
    pub fn find(&self, engine: u16) -> Option<(EngineId, Arc<str>)> {
        self.doors.get(engine).map(|door| (door.engine_id, door.bootstrap))
    }

    /// Notes that a request was sent to both engines. Each try needs its answer.
    pub fn submitted(&self, request: u32, attempt: u32, prefill: u16, decode: u16) {
        let what = What::Submitted { request, attempt, prefill, decode };
        self.sim.note(Lane::Clients, what);
    }

    /// Notes how a try ended.
    pub fn answered(&self, request: u32, attempt: u32, answer: Answer) {
        self.sim.note(Lane::Clients, What::Answered { request, attempt, answer });
    }
}

impl Process {
    /// Clients find this process from now on. `left` says what has not come back, in words,
    /// when all requests have ended (nothing, if all is well); nodes are asked by themselves.
    /// `Happening::ReleaseAll` goes to the nodes given here.
    pub fn ready(&self, nodes: Vec<ObservedNode>, left: impl Fn() -> Vec<Arc<str>> + 'static) {
        let (inbox, mut inputs) = unbounded();
        self.open(inbox);
        runtime::spawn_local(async move {
            while let Some(input) = inputs.next().await {
                match input {
                    Input::Order(Order::Inspect(reply)) => {
                        let mut all = left();
                        for node in &nodes {
                            all.extend(node.left_over().await);
                        }
                        let _ = reply.send(all);
                    }
                    Input::Order(Order::ReleaseAll) => {
                        for node in &nodes {
                            node.handle().release_all().await;
                        }
                    }
                    _ => {} // Nobody else writes here; see `refuse_operations`.
                }
            }
        });
    }
}

/// Runs a plan with engines of one's own: `life` is the program of each engine's process,
/// and runs anew after each restart; `story` is the clients, and ends when they have their
/// answers. Judged by all oracles and those given here. Otherwise like
/// [`run`](super::run()): one plan, one history, as long as `life` and `story` take chance
/// and time from the simulation alone; a thread that has run nothing else.
///
/// # Panics
/// When the plan has stock peers, or operations that engines carry out (pause, sleep, weight
/// updates): a `life` does such things by itself.
#[must_use]
pub fn run<L, S>(
    plan: &Plan,
    options: &RunOptions,
    oracles: Vec<Box<dyn Oracle + Send>>,
    life: impl Fn(Process) -> L + Clone + Send + Sync + 'static,
    story: impl FnOnce(Stage) -> S,
) -> Outcome
where
    L: Future<Output = ()> + 'static,
    S: Future<Output = ()>,
{
    refuse_operations(plan);
    plant(options);
    play(plan, oracles, life, |sim, doors| story(Stage { sim, doors }))
}

fn refuse_operations(plan: &Plan) {
    let stock = plan.fleet.engines.iter().any(|it| it.kind.is_stock());
    assert!(!stock, "a stock peer has its own engine");
    for it in &plan.happenings {
        let operation = matches!(
            it.what,
            Happening::Pause { .. }
                | Happening::Sleep { .. }
                | Happening::ReleaseKv { .. }
                | Happening::Reregister { .. }
                | Happening::UpdateWeights { .. }
                | Happening::Resume { .. }
                | Happening::AbortTransfers { .. }
                | Happening::AbortRequests { .. }
                | Happening::ResetCache { .. }
                | Happening::FailOrder { .. }
                | Happening::AtOrder { .. }
        );
        assert!(!operation, "an engine of one's own does this by itself: {}", it.what);
    }
}
