//! An engine process: commands on stdin, reports on stdout, one thread that drives the
//! engine and sleeps while there is nothing to do.

use super::message::{FromEngine, Operated, ToEngine};
use crate::engine::{EngineHost, EngineSpec, Operate, Side, monotonic_nanos};
use anyhow::{Context, Result};
use futures_executor::{block_on, block_on_stream};
use kvbaton_actors::engine::{Asked, EngineHandle};
use kvbaton_actors::events::Event;
use kvbaton_actors::node::NodeHandle;
use kvbaton_core::lifecycle::engine::{Operation, Outcome};
use kvbaton_transport_tcp::bootstrap::{BootstrapConfig, BootstrapServer};
use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// While the engine waits for the last blocks, how often it looks.
const SETTLE_LOOK: Duration = Duration::from_millis(20);

/// One input of the engine's thread.
enum Input {
    Command(ToEngine),
    Event { rank: usize, at: u64, event: Event },
    Asked(Asked),
}

/// Runs the engine that `spec` describes, until it is told to stop.
///
/// # Errors
/// When it cannot start, or its parent does not read any more.
pub fn run(spec: &str) -> Result<()> {
    crate::log::to_stderr();
    let spec: EngineSpec = serde_json::from_str(spec).context("the engine's specification")?;
    let server = match spec.side {
        Side::Prefill => Some(BootstrapServer::start(BootstrapConfig::default())?),
        Side::Decode => None,
    };
    let url = server.as_ref().map(BootstrapServer::url);
    let (mut host, orders) = EngineHost::start(spec, url.as_deref())?;
    let (sender, inputs) = channel();
    let asked = sender.clone();
    std::thread::Builder::new().name("lifecycle".into()).spawn(move || {
        for order in block_on_stream(orders) {
            if asked.send(Input::Asked(order)).is_err() {
                return;
            }
        }
    })?;
    for (rank, handle) in host.handles().into_iter().enumerate() {
        let sender = sender.clone();
        std::thread::Builder::new()
            .name(format!("events-{rank}"))
            .spawn(move || forward_events(rank, &handle, &sender))?;
    }
    std::thread::Builder::new().name("commands".into()).spawn(move || read_commands(&sender))?;
    say(&FromEngine::Ready { bootstrap: url })?;
    drive(&mut host, &inputs)?;
    drop(host);
    drop(server);
    Ok(())
}

fn forward_events(rank: usize, handle: &NodeHandle, inputs: &Sender<Input>) {
    loop {
        let events = block_on(handle.events());
        let at = monotonic_nanos();
        if events.is_empty() {
            return;
        }
        for event in events {
            if inputs.send(Input::Event { rank, at, event }).is_err() {
                return;
            }
        }
    }
}

/// Ends the process when stdin does: then the parent is gone, killed perhaps.
fn read_commands(inputs: &Sender<Input>) {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(command) => {
                let last = matches!(command, ToEngine::Stop);
                if inputs.send(Input::Command(command)).is_err() || last {
                    return;
                }
            }
            Err(error) => {
                tracing::error!(%error, line, "a command cannot be read; parent and engine differ");
                std::process::exit(1);
            }
        }
    }
    std::process::exit(0);
}

/// The engine's thread: inputs first, one slice of compute when there are none.
fn drive(host: &mut EngineHost, inputs: &Receiver<Input>) -> Result<()> {
    let mut settle_by: Option<Instant> = None;
    loop {
        let input = if host.has_work() {
            inputs.recv_timeout(Duration::ZERO)
        } else if settle_by.is_some() {
            inputs.recv_timeout(SETTLE_LOOK)
        } else {
            inputs.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match input {
            Ok(Input::Event { rank, at, event }) => host.event(rank, at, event),
            Ok(Input::Asked(asked)) => host.asked(asked),
            Ok(Input::Command(ToEngine::Operate { id, operate })) => {
                let engine = host.lifecycle();
                std::thread::Builder::new()
                    .name(format!("operation-{id}"))
                    .spawn(move || say_operated(&engine, id, operate))?;
            }
            Ok(Input::Command(ToEngine::Measure)) => say(&FromEngine::Measured(host.measure()))?,
            Ok(Input::Command(ToEngine::Submit(submit))) => host.submit(submit),
            Ok(Input::Command(ToEngine::Abort { request })) => host.abort(&request),
            Ok(Input::Command(ToEngine::Settle { within_ms })) => {
                settle_by = Some(Instant::now() + Duration::from_millis(within_ms));
            }
            Ok(Input::Command(ToEngine::Stop)) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => host.work(),
            // Every node has stopped by itself: nothing can be served any more.
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("all inputs have ended"),
        }
        while let Some(notice) = host.next_notice() {
            say(&FromEngine::Notice(notice))?;
        }
        if let Some(by) = settle_by
            && !host.has_work()
        {
            let snapshot = host.snapshot();
            if snapshot.leftovers.is_empty() || Instant::now() >= by {
                settle_by = None;
                say(&FromEngine::Settled(snapshot))?;
            }
        }
    }
}

fn say_operated(engine: &EngineHandle, id: u64, operate: Operate) {
    let began = Instant::now();
    let ended = match Operation::try_from(operate) {
        Ok(operation) => block_on(engine.ask(operation)).map_err(|error| error.to_string()),
        Err(error) => Err(error),
    };
    let took_us = began.elapsed().as_micros() as u64;
    let emptied = match &ended {
        Ok(Outcome::Reset { done, .. }) => Some(*done),
        _ => None,
    };
    let ended = Operated { took_us, error: ended.err(), emptied };
    if let Err(error) = say(&FromEngine::Operated { id, ended }) {
        tracing::error!(%error, "an operation's end is not heard");
    }
}

fn say(what: &FromEngine) -> Result<()> {
    let mut line = serde_json::to_string(what)?;
    line.push('\n');
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).context("the parent is gone")
}
