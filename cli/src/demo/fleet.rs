//! All engine processes of a demo.

use super::args::DemoArgs;
use super::child::{Child, Heard, What};
use super::message::{FromEngine, ToEngine};
use crate::engine::{EngineSpec, Model, Side, Snapshot, WEIGHTS};
use anyhow::{Result, anyhow, bail};
use std::fmt::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How long an engine may take to stop in good order before it is killed.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// A place in the fleet, and the process that has it now.
#[derive(Debug)]
struct Slot {
    spec: EngineSpec,
    index: u32,
    /// Counts the processes that had the place.
    life: u32,
    child: Child,
    ready: bool,
    bootstrap: Option<String>,
    heard: Instant,
}

/// The engines.
#[derive(Debug)]
pub struct Fleet {
    slots: Vec<Slot>,
    heard: Receiver<Heard>,
    /// Given to each process's listener.
    hearing: Sender<Heard>,
    deadline: Instant,
    seed: u64,
}

impl Fleet {
    /// Starts the demo's engines; they become ready later.
    ///
    /// # Errors
    /// When a process cannot be started.
    pub fn start(args: &DemoArgs, model: Model, deadline: Instant) -> Result<Self> {
        let sides = [(Side::Prefill, args.prefills), (Side::Decode, args.decodes)];
        let specs = sides
            .into_iter()
            .flat_map(|(side, count)| (0..count).map(move |_| specification(args, model, side)));
        Self::of(specs.collect(), deadline, args.seed)
    }

    /// Starts an engine of each specification, whose id does not matter.
    ///
    /// # Errors
    /// When a process cannot be started.
    pub fn of(specs: Vec<EngineSpec>, deadline: Instant, seed: u64) -> Result<Self> {
        let (hearing, heard) = channel();
        let mut fleet = Self { slots: Vec::new(), heard, hearing, deadline, seed };
        for mut spec in specs {
            let slot = fleet.slots.len();
            let of_side = |it: &&Slot| it.spec.side == spec.side;
            let index = fleet.slots.iter().filter(of_side).count() as u32;
            spec.id = fleet.id(spec.side, index, 0);
            let child = Child::start(&spec, slot, 0, fleet.hearing.clone())?;
            let (bootstrap, heard) = (None, Instant::now());
            let slot = Slot { spec, index, life: 0, child, ready: false, bootstrap, heard };
            fleet.slots.push(slot);
        }
        Ok(fleet)
    }

    /// A new id for each process, also after a restart.
    fn id(&self, side: Side, index: u32, life: u32) -> String {
        format!("demo-{}-{}-{index}-{life}", self.seed, side.as_str())
    }

    /// "prefill 0".
    #[must_use]
    pub fn name(&self, slot: usize) -> String {
        let slot = &self.slots[slot];
        format!("{} {}", slot.spec.side.as_str(), slot.index)
    }

    /// The side's engines that can serve.
    #[must_use]
    pub fn ready(&self, side: Side) -> Vec<usize> {
        let serves = |slot: &Slot| slot.ready && slot.spec.side == side;
        (0..self.slots.len()).filter(|&slot| serves(&self.slots[slot])).collect()
    }

    /// Whether every engine can serve.
    #[must_use]
    pub fn all_ready(&self) -> bool {
        self.slots.iter().all(|slot| slot.ready)
    }

    /// The process id of the place's engine.
    #[must_use]
    pub fn pid(&self, slot: usize) -> u32 {
        self.slots[slot].child.pid()
    }

    /// Which process has the place now.
    #[must_use]
    pub fn life(&self, slot: usize) -> u32 {
        self.slots[slot].life
    }

    /// The id of the place's engine, and its bootstrap server.
    #[must_use]
    pub fn source(&self, slot: usize) -> Option<(String, String)> {
        let slot = &self.slots[slot];
        Some((slot.spec.id.clone(), slot.bootstrap.clone()?))
    }

    /// Tells the process that has the place something.
    pub fn tell(&mut self, slot: usize, what: &ToEngine) {
        self.slots[slot].child.tell(what);
    }

    /// Kills the process that has the place and starts another; gives the dead one's pid.
    ///
    /// # Errors
    /// When no process can be started.
    pub fn kill_and_restart(&mut self, slot: usize) -> Result<u32> {
        let (side, index, life) =
            (self.slots[slot].spec.side, self.slots[slot].index, self.slots[slot].life + 1);
        let id = self.id(side, index, life);
        let place = &mut self.slots[slot];
        let pid = place.child.pid();
        place.child.kill();
        place.spec.id = id;
        place.life = life;
        place.ready = false;
        place.bootstrap = None;
        place.child = Child::start(&place.spec, slot, life, self.hearing.clone())?;
        Ok(pid)
    }

    /// The next message of a living engine, within `bound`: the place and what was said.
    ///
    /// # Errors
    /// When an engine died or spoke gibberish, or the demo's time is over.
    pub fn hear(&mut self, bound: Duration) -> Result<Option<(usize, FromEngine)>> {
        let until = self.deadline.min(Instant::now() + bound);
        loop {
            let heard =
                match self.heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(heard) => heard,
                    Err(RecvTimeoutError::Timeout) if Instant::now() >= self.deadline => {
                        return Err(self.out_of_time());
                    }
                    Err(_) => return Ok(None),
                };
            let Heard { slot, life, what } = heard;
            if life != self.slots[slot].life {
                continue;
            }
            self.slots[slot].heard = Instant::now();
            match what {
                What::Said(FromEngine::Ready { bootstrap }) => {
                    self.slots[slot].bootstrap = bootstrap.clone();
                    self.slots[slot].ready = true;
                    return Ok(Some((slot, FromEngine::Ready { bootstrap })));
                }
                What::Said(said) => return Ok(Some((slot, said))),
                What::Garbled(line) => bail!(
                    "{} wrote a line to its stdout that is no message: {line}",
                    self.name(slot)
                ),
                What::Gone => return Err(self.died(slot)),
            }
        }
    }

    /// Waits until every engine can serve.
    ///
    /// # Errors
    /// As [`Self::hear`].
    pub fn wait_ready(&mut self) -> Result<()> {
        while !self.all_ready() {
            self.hear(Duration::from_secs(1))?;
        }
        Ok(())
    }

    /// Asks every engine to settle, and how it then stands.
    ///
    /// # Errors
    /// As [`Self::hear`].
    pub fn settle(&mut self, within: Duration) -> Result<Vec<Snapshot>> {
        let within_ms = within.as_millis() as u64;
        for slot in 0..self.slots.len() {
            self.tell(slot, &ToEngine::Settle { within_ms });
        }
        let mut snapshots: Vec<Option<Snapshot>> = vec![None; self.slots.len()];
        while snapshots.iter().any(Option::is_none) {
            if let Some((slot, FromEngine::Settled(snapshot))) = self.hear(within)? {
                snapshots[slot] = Some(snapshot);
            }
        }
        Ok(snapshots.into_iter().flatten().collect())
    }

    /// Stops every engine in good order; says which did not.
    #[must_use]
    pub fn stop(mut self) -> Vec<String> {
        for slot in 0..self.slots.len() {
            self.tell(slot, &ToEngine::Stop);
        }
        let mut wrong = Vec::new();
        for slot in 0..self.slots.len() {
            let status = self.slots[slot].child.end(STOP_WITHIN);
            if status.is_none_or(|status| !status.success()) {
                wrong.push(self.obituary(slot, "did not stop in good order", status));
            }
        }
        wrong
    }

    fn died(&mut self, slot: usize) -> anyhow::Error {
        let status = self.slots[slot].child.end(Duration::from_secs(1));
        anyhow!(self.obituary(slot, "died unexpectedly", status))
    }

    fn out_of_time(&mut self) -> anyhow::Error {
        let mut text = "the time is over (--timeout); the engines' last words:".to_owned();
        for slot in 0..self.slots.len() {
            let state = if self.slots[slot].ready { "ran" } else { "was not ready" };
            let silent = self.slots[slot].heard.elapsed().as_secs_f64();
            let state = format!("{state} and was last heard {silent:.1} s ago");
            let _ = write!(text, "\n{}", self.obituary(slot, &state, None));
        }
        anyhow!(text)
    }

    fn obituary(
        &mut self,
        slot: usize,
        what: &str,
        status: Option<std::process::ExitStatus>,
    ) -> String {
        let (name, pid) = (self.name(slot), self.slots[slot].child.pid());
        let mut text = format!("{name} (process {pid}) {what}");
        if let Some(status) = status {
            let _ = write!(text, ": {status}");
        }
        let tail = self.slots[slot].child.tail();
        if tail.is_empty() {
            text.push_str("; it wrote nothing to stderr");
        }
        for line in tail {
            let _ = write!(text, "\n  | {line}");
        }
        text
    }
}

fn specification(args: &DemoArgs, model: Model, side: Side) -> EngineSpec {
    let (tp, pp, engines) = match side {
        Side::Prefill => (args.prefill_tp, args.prefill_pp, args.prefills),
        Side::Decode => (args.decode_tp(), args.decode_pp, args.decodes),
    };
    // Room for every request that runs here at a time, and as much again where the prefix
    // cache is of use. With chaos the others' requests come too; they may wait.
    let at_once = args.concurrency.div_ceil(engines) as usize;
    let prompt = args.prompt_tokens.longest();
    let one = model.shape().blocks_needed(prompt, prompt + args.max_tokens as usize - 1);
    let times = if args.prefix_hits > 0 { 2 } else { 1 };
    let blocks = u32::try_from(times * at_once * one + 1).unwrap_or(u32::MAX);
    let (load, hold, write) = match args.chaos {
        true => (10, 8, 5),
        false => (args.timeout, args.timeout, args.timeout),
    };
    EngineSpec {
        id: String::new(),
        side,
        model,
        tp,
        pp,
        blocks,
        transport: args.transport,
        connections: args.connections as usize,
        recompute: args.recompute,
        load_timeout_ms: load * 1000,
        hold_timeout_ms: hold * 1000,
        write_timeout_ms: write * 1000,
        drain_ms: 10_000,
        weight_bytes: 1 << 20,
        weight_version: WEIGHTS.version,
    }
}
