//! A worker's half: core's [`Working`] around a node.

use super::orders;
use super::stats::Counted;
use crate::errors::KvBatonError;
use crate::node::{Node, Running};
use kvbaton_actors::events::Event;
use kvbaton_actors::node::Load;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::connector::{Order, Source, Working};
use kvbaton_core::ids::{RequestId, TransferId};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Follows the scheduler's orders with one node, and says what the engine must be told.
#[pyclass(frozen, module = "kvbaton._kvbaton")]
pub struct WorkerSide {
    node: Py<Node>,
    state: Mutex<State>,
}

struct State {
    machine: Working,
    counted: Counted,
    /// Something happened since statistics were taken.
    busy: bool,
}

/// (received, failed, blocks that failed, holds given back).
type Told = (Vec<String>, Vec<String>, Vec<u32>, Vec<u64>);

#[pymethods]
impl WorkerSide {
    #[new]
    fn new(node: Py<Node>, groups: usize) -> Self {
        let (machine, counted) = (Working::new(groups), Counted::default());
        Self { node, state: Mutex::new(State { machine, counted, busy: false }) }
    }

    /// Follows a step's orders, in order. Returns before anything is carried out.
    fn follow(&self, py: Python<'_>, orders: &[u8]) -> PyResult<()> {
        if orders.is_empty() {
            return Ok(());
        }
        let orders = orders::decode(orders).map_err(|it| KvBatonError::new_err(it.to_string()))?;
        let running = self.node.get().running()?;
        py.detach(|| {
            let mut state = self.lock();
            state.busy = true;
            follow(&running, &mut state.machine, orders);
        });
        Ok(())
    }

    /// Takes what the engine must be told since the last call.
    fn report(&self) -> PyResult<Told> {
        let mut state = self.lock();
        if let Ok(running) = self.node.get().running() {
            for event in running.node.poll() {
                state.busy = true;
                hear(&mut state.machine, event);
            }
        }
        let report = state.machine.take_report();
        Ok((
            report.received.iter().map(RequestId::to_string).collect(),
            report.failed.iter().map(RequestId::to_string).collect(),
            report.bad_blocks.iter().map(|it| it.0).collect(),
            report.given_back.iter().map(|it| it.0).collect(),
        ))
    }

    /// What the node counted since the last call, by metric; None when nothing happened.
    fn stats(&self) -> PyResult<Option<BTreeMap<String, f64>>> {
        let mut state = self.lock();
        if !std::mem::take(&mut state.busy) {
            return Ok(None);
        }
        let Ok(running) = self.node.get().running() else { return Ok(None) };
        let grown = state.counted.growth(&running.node.metrics());
        Ok((!grown.is_empty()).then_some(grown))
    }
}

impl WorkerSide {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hear(machine: &mut Working, event: Event) {
    match event {
        Event::SendEnded { transfer, .. } => machine.send_ended(&transfer),
        Event::LoadEnded { request, end, .. } => {
            if let kvbaton_core::receiver::LoadEnd::Failed(why) = &end {
                tracing::error!(%request, "loading KV failed: {}", why.message);
            }
            machine.load_ended(&request, Some(&end));
        }
    }
}

/// Loads and releases of one step go to the node together: one pull per P rank.
fn follow(running: &Arc<Running>, machine: &mut Working, orders: Vec<Order>) {
    let node = &running.node;
    let (mut loads, mut releases, mut drops) = (Vec::new(), Vec::new(), Vec::new());
    for order in orders {
        match order {
            Order::Started { request, transfer } => {
                let started = running.handle.prefill_started(request, transfer);
                if let Err(error) = futures_executor::block_on(started) {
                    tracing::warn!(%error, "a prefill could not be announced to its node");
                }
            }
            Order::Hold { hold, request, transfer, blocks, end_token } => {
                match node.hold(request, transfer.clone(), blocks, Some(end_token)) {
                    Ok(()) => machine.hold_taken(hold, transfer),
                    Err(error) => {
                        tracing::error!(%error, "a finished prefill is not held");
                        machine.hold_refused(hold);
                    }
                }
            }
            Order::Abort(transfer) => node.abort(transfer),
            Order::ReleaseAll => futures_executor::block_on(running.handle.release_all()),
            Order::Load { request, transfer, source, blocks, end_token } => {
                machine.load_ordered(request.clone(), blocks.clone());
                loads.push(wanted(request, transfer, source, blocks, Some(end_token)));
            }
            Order::Release { request, transfer, source } => {
                releases.push(wanted(request, transfer, source, Vec::new(), None));
            }
            Order::Drop(request) => drops.push(request),
        }
    }
    if !loads.is_empty() {
        let requests: Vec<RequestId> = loads.iter().map(|it| it.request.clone()).collect();
        for (request, result) in requests.iter().zip(node.load(loads)) {
            if let Err(error) = result {
                tracing::error!(%error, "a load could not start");
                machine.load_ended(request, None);
            }
        }
    }
    if !releases.is_empty() {
        for error in node.release_remote(releases).into_iter().filter_map(Result::err) {
            tracing::warn!(%error, "a prefill is not told to release; it does so in time");
        }
    }
    if !drops.is_empty() {
        node.drop_loads(drops);
    }
}

fn wanted(
    request: RequestId,
    transfer: TransferId,
    source: Source,
    blocks: Vec<BlockList>,
    end_token: Option<u32>,
) -> Load {
    let Source { engine, bootstrap } = source;
    Load { request, transfer, engine, bootstrap, blocks, end_token }
}
