//! The end of a run: all faults are over, everything must end and come back in time.

use super::door::Doors;
use super::engine::Order;
use crate::history::{Lane, What};
use crate::sim::Sim;
use futures_channel::oneshot;
use kvbaton_actors::runtime;
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked whether all has come back.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How long blocks may take to come back once every client has its answer: holds that nobody
/// pulls, a write that ends each, and what stock peers may still do. Requests that wait for
/// the blocks of such holds are held after them, in the worst case one by one.
fn bound(sim: &Sim) -> Duration {
    let bounds = &sim.plan.bounds;
    let one = bounds.hold_ms + bounds.load_ms + bounds.write_ms + bounds.quarantine_ms + 5_000;
    let tries: u64 = sim.plan.requests.iter().map(|it| u64::from(it.retries) + 1).sum();
    Duration::from_millis((2 + tries.min(20)) * one)
}

/// Waits until nothing is left over, and notes what is when the bound has passed.
pub async fn settle(sim: &Arc<Sim>, doors: &Doors) {
    let until = sim.now() + bound(sim).as_nanos() as u64;
    for engine in 0..sim.plan.fleet.engines.len() as u16 {
        loop {
            let Some(door) = doors.get(engine) else { break };
            let (reply, answer) = oneshot::channel();
            door.order(Order::Inspect(reply));
            let left = runtime::timeout(LOOK_AGAIN, answer).await;
            let left = match left {
                Ok(Ok(left)) => left,
                Ok(Err(_)) => break, // It died: only in a world that has not healed.
                Err(_) => vec!["its process does not answer".into()],
            };
            if left.is_empty() || sim.now() >= until {
                sim.note(Lane::Engine(engine), What::Leftovers(left));
                break;
            }
            runtime::sleep(LOOK_AGAIN).await;
        }
    }
}
