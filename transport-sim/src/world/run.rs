//! One run, from its seed to its outcome.

use super::chaos::Chaos;
use super::clients::clients;
use super::door::Doors;
use super::ending::settle;
use super::engine;
use super::outcome::{Outcome, RunOptions};
use super::process::Process;
use crate::history::{Lane, What};
use crate::oracles::{Oracle, Violation};
use crate::plan::Plan;
use crate::sim::Sim;
use futures_util::future::{Either, join_all, select};
use kvbaton_actors::runtime;
use madsim::Config;
use madsim::runtime::{Handle, Runtime};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long clients may take to get their answers after the world has healed, in
/// milliseconds: every try of a request may use up all of its bounds.
fn patience(plan: &Plan) -> u64 {
    let tries = plan.requests.iter().map(|it| u64::from(it.retries) + 1).max().unwrap_or(1);
    20_000 + tries * 2 * (plan.bounds.load_ms + plan.bounds.hold_ms)
}

/// No run takes longer.
fn longest(plan: &Plan) -> Duration {
    Duration::from_millis(2 * (plan.heals_at() + patience(plan)) + 2_000_000)
}

/// Runs a plan. The same plan gives the same outcome, in every process. Call it on a thread
/// that has run nothing else: some of the standard library's state is per thread.
#[must_use]
pub fn run(plan: &Plan, options: &RunOptions) -> Outcome {
    plant(options);
    play(plan, Vec::new(), engine::run, clients)
}

/// Runs a plan with these programs of engines' processes and this story of the clients, and
/// judges it, also by these oracles.
pub(super) fn play<L, S>(
    plan: &Plan,
    oracles: Vec<Box<dyn Oracle + Send>>,
    life: impl Fn(Process) -> L + Clone + Send + Sync + 'static,
    story: impl FnOnce(Arc<Sim>, Doors) -> S,
) -> Outcome
where
    L: Future<Output = ()> + 'static,
    S: Future<Output = ()>,
{
    let runtime = Runtime::with_seed_and_config(plan.seed, Config::default());
    // A panic of a process ends the whole runtime: what happened before must outlive it.
    let kept: Arc<Mutex<Option<Arc<Sim>>>> = Arc::default();
    let keep = kept.clone();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let sim = Sim::new(plan.clone(), oracles);
            *keep.lock().expect("no panic under the lock") = Some(sim.clone());
            live(&sim, life, story).await;
            sim.now()
        })
    }));
    let sim = kept.lock().expect("no panic under the lock").take().expect("made at once");
    let mut record = sim.record();
    if ran.is_ok() {
        record.end();
    }
    let (hash, found) = (record.history().hash(), record.violation().cloned());
    let events = record.close();
    let violation = match ran {
        Ok(_) => found,
        Err(panic) => Some(Violation {
            oracle: "no-panic",
            rules: &[],
            text: format!("the code panicked: {}", words(&*panic)),
            event: events.len(),
        }),
    };
    let virtual_ns = ran_ns(&events);
    Outcome { hash, events, virtual_ns, violation }
}

fn ran_ns(events: &[crate::history::Event]) -> u64 {
    events.last().map_or(0, |event| event.at)
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "?".into())
}

/// Plants the bug of the options on this thread.
#[cfg(feature = "planted-bugs")]
pub(super) fn plant(options: &RunOptions) {
    let bug = options.plant.as_deref().map(|name| name.parse().expect("the caller has checked it"));
    kvbaton_core::planted::plant(bug);
}

/// Without the feature there is nothing to plant.
#[cfg(not(feature = "planted-bugs"))]
pub(super) fn plant(options: &RunOptions) {
    assert!(options.plant.is_none(), "this build has no planted bugs: use `cargo xtask alarm`");
}

async fn live<L, S>(
    sim: &Arc<Sim>,
    life: impl Fn(Process) -> L + Clone + Send + Sync + 'static,
    story: impl FnOnce(Arc<Sim>, Doors) -> S,
) where
    L: Future<Output = ()> + 'static,
    S: Future<Output = ()>,
{
    runtime::spawn_local(sim.clone().run_clockwork());
    let doors = Doors::default();
    let handle = Handle::current();
    let start = |engine: u16| {
        let (sim, doors, life) = (sim.clone(), doors.clone(), life.clone());
        let process = handle
            .create_node()
            .name(format!("e{engine}"))
            .init(move || {
                let (sim, doors, life) = (sim.clone(), doors.clone(), life.clone());
                async move { life(Process::begin(sim, doors, engine)).await }
            })
            .build();
        (engine, process.id())
    };
    let processes = Arc::new((0..sim.plan.fleet.engines.len() as u16).map(start).collect());
    let chaos = Chaos::new(sim.clone(), doors.clone(), Arc::clone(&processes));
    let over = sim.record().over();
    let clients = story(sim.clone(), doors.clone());
    let story = runtime::timeout(longest(&sim.plan), tell(sim, &doors, &chaos, clients));
    if let Either::Left(_) = select(pin!(story), pin!(over.notified())).await {
        // Without a `Healed` before it, an operation of the plan never came to its end.
        sim.note(Lane::World, What::Ended);
    }
    for process in processes.values() {
        handle.kill(*process);
    }
    // Killed actors are dropped inside the runtime, or never.
    runtime::sleep(Duration::from_millis(10)).await;
}

async fn tell(sim: &Arc<Sim>, doors: &Doors, chaos: &Chaos, clients: impl Future<Output = ()>) {
    let happenings = sim.plan.happenings.iter().cloned().enumerate();
    let happenings =
        join_all(happenings.map(|(index, planned)| chaos.clone().happen(index, planned)));
    let healing = async {
        happenings.await;
        let at = Duration::from_millis(sim.plan.heals_at());
        runtime::sleep(at.saturating_sub(Duration::from_nanos(sim.now()))).await;
        sim.links().calm();
        sim.note(Lane::World, What::Healed);
        runtime::sleep(Duration::from_millis(patience(&sim.plan))).await;
    };
    // Whoever has no answer by then is what the oracles will object to.
    let (mut clients, mut healing) = (pin!(clients), pin!(healing));
    if let Either::Left(_) = select(clients.as_mut(), healing.as_mut()).await {
        // All answers are there; the faults go on to their end.
        heal(sim, healing).await;
    }
    settle(sim, doors).await;
}

/// Waits for the healing, not for the patience behind it.
async fn heal(sim: &Arc<Sim>, healing: impl Future<Output = ()>) {
    let mut healing = pin!(healing);
    while !sim.record().healed() {
        let _ = runtime::timeout(Duration::from_millis(50), healing.as_mut()).await;
    }
}
