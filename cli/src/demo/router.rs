//! The router: gives each request to one P and one D, as a router in front of real engines
//! does, tries again elsewhere what chaos broke, and judges every answer.

use super::chaos::Chaos;
use super::fleet::Fleet;
use super::jobs::Job;
use super::message::{FromEngine, ToEngine};
use super::tally::{LoadRecord, Tally};
use crate::engine::{Notice, Outcome, Side, Source, Submit};
use anyhow::Result;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Attempts at one request before it counts as failed.
const MAX_ATTEMPTS: u32 = 10;
/// How long D may take to notice by itself that P is dead before the router cancels `[X01]`.
const NOTICE_WITHIN: Duration = Duration::from_millis(500);
/// Longest sleep: chaos and cancellations are looked at in between.
const LOOK: Duration = Duration::from_millis(50);

/// A process in the fleet: its place, and which of the place's processes.
type Process = (usize, u32);

/// A request on its way through a P and a D.
#[derive(Debug)]
struct Attempt {
    job: usize,
    /// Counts the attempts at this request.
    number: u32,
    p: Process,
    d: Process,
    /// Whether D has been asked.
    asked: bool,
    /// When D is told that P is dead.
    cancel_at: Option<Instant>,
    /// Why D's load failed.
    why: Option<String>,
    recomputed: bool,
}

/// Runs jobs over a fleet.
pub struct Router<'a> {
    fleet: &'a mut Fleet,
    jobs: &'a [Job],
    concurrency: usize,
    /// Whether D is asked only once P holds the KV.
    hold_first: bool,
    chaos: Option<&'a mut Chaos>,
    waiting: VecDeque<(usize, u32)>,
    running: BTreeMap<u64, Attempt>,
    next_attempt: u64,
    ended: usize,
    tally: Tally,
}

impl<'a> Router<'a> {
    /// A router for `jobs`, `concurrency` at a time. Attempts are numbered from
    /// `first_attempt`: ids must not repeat while engines live.
    pub fn new(
        fleet: &'a mut Fleet,
        jobs: &'a [Job],
        concurrency: usize,
        first_attempt: u64,
    ) -> Self {
        Self {
            fleet,
            jobs,
            concurrency,
            hold_first: false,
            chaos: None,
            waiting: (0..jobs.len()).map(|job| (job, 1)).collect(),
            running: BTreeMap::new(),
            next_attempt: first_attempt,
            ended: 0,
            tally: Tally::default(),
        }
    }

    /// Asks D only once P holds the KV, so that D's load waits for nothing else.
    #[must_use]
    pub const fn hold_first(mut self) -> Self {
        self.hold_first = true;
        self
    }

    /// Lets `chaos` kill engines meanwhile; what that breaks is tried again.
    #[must_use]
    pub fn with_chaos(mut self, chaos: Option<&'a mut Chaos>) -> Self {
        self.chaos = chaos;
        self
    }

    /// Runs until every request has ended; `progress` is told how many have.
    ///
    /// # Errors
    /// When an engine dies that nobody killed, or the demo's time is over.
    pub fn run(mut self, progress: &mut dyn FnMut(usize)) -> Result<Tally> {
        while self.ended < self.jobs.len() {
            self.start_waiting();
            let heard = self.fleet.hear(LOOK).map_err(|error| error.context(self.outstanding()))?;
            if let Some((slot, said)) = heard {
                match said {
                    FromEngine::Notice(notice) => self.take(slot, notice),
                    FromEngine::Ready { .. } => {
                        if let Some(chaos) = &mut self.chaos {
                            chaos.back(slot);
                        }
                    }
                    FromEngine::Settled(_)
                    | FromEngine::Operated { .. }
                    | FromEngine::Measured(_) => {}
                }
            }
            self.cancel_overdue();
            self.strike()?;
            progress(self.ended);
        }
        Ok(self.tally)
    }

    /// What has not ended, for when the run stops early.
    fn outstanding(&self) -> String {
        let left = self.jobs.len() - self.ended;
        let on = |(id, it): (&u64, &Attempt)| {
            format!("{id} ({}, {})", self.fleet.name(it.p.0), self.fleet.name(it.d.0))
        };
        let running: Vec<String> = self.running.iter().take(8).map(on).collect();
        format!(
            "{left} of {} requests had not ended; running: {}",
            self.jobs.len(),
            running.join(", ")
        )
    }

    fn start_waiting(&mut self) {
        while self.running.len() < self.concurrency && !self.waiting.is_empty() {
            let (ps, ds) = (self.fleet.ready(Side::Prefill), self.fleet.ready(Side::Decode));
            if ps.is_empty() || ds.is_empty() {
                return;
            }
            let Some((job, number)) = self.waiting.pop_front() else { return };
            let turn = self.next_attempt as usize;
            // D moves on once every P has had a turn: each P meets each D.
            let (p, d) = (ps[turn % ps.len()], ds[turn / ps.len() % ds.len()]);
            self.start(job, number, p, d);
        }
    }

    fn start(&mut self, job: usize, number: u32, p: usize, d: usize) {
        let id = self.next_attempt;
        self.next_attempt += 1;
        let attempt = Attempt {
            job,
            number,
            p: (p, self.fleet.life(p)),
            d: (d, self.fleet.life(d)),
            asked: false,
            cancel_at: None,
            why: None,
            recomputed: false,
        };
        self.running.insert(id, attempt);
        self.fleet.tell(
            p,
            &ToEngine::Submit(Submit {
                request: format!("p{id}"),
                transfer: format!("t{id}"),
                prompt: self.jobs[job].prompt.clone(),
                max_tokens: 1,
                source: None,
            }),
        );
        if !self.hold_first {
            self.ask_decode(id);
        }
    }

    fn ask_decode(&mut self, id: u64) {
        let Some(attempt) = self.running.get_mut(&id).filter(|attempt| !attempt.asked) else {
            return;
        };
        attempt.asked = true;
        let job = &self.jobs[attempt.job];
        let source = self.fleet.source(attempt.p.0);
        let submit = Submit {
            request: format!("d{id}"),
            transfer: format!("t{id}"),
            prompt: job.prompt.clone(),
            max_tokens: job.expected.len(),
            source: source.map(|(engine, bootstrap)| Source { engine, bootstrap }),
        };
        self.fleet.tell(attempt.d.0, &ToEngine::Submit(submit));
    }

    /// Takes what an engine says of a request. Ids are "p12" on P and "d12" on D.
    fn take(&mut self, slot: usize, notice: Notice) {
        match notice {
            Notice::Held { request, at } => {
                let id = number(&request);
                self.tally.held.insert(id, at);
                if self.hold_first {
                    self.ask_decode(id);
                }
            }
            Notice::Loaded { request, started, at, blocks, bytes, hit_tokens } => {
                let record = LoadRecord { started, loaded: at, blocks, bytes, hit_tokens };
                self.tally.loads.insert(number(&request), record);
            }
            Notice::LoadFailed { request, why, recomputes } => {
                self.tally.load_failures += 1;
                if let Some(attempt) = self.running.get_mut(&number(&request)) {
                    attempt.recomputed = recomputes;
                    attempt.why = Some(why);
                }
            }
            Notice::Compared { request, bytes, different, first } => {
                let who = self.who(slot, &request);
                self.tally.compared(&who, bytes, different, first);
            }
            Notice::Answer { request, outcome } => self.answered(slot, &request, outcome),
            Notice::Refused { request, why } => {
                self.attempt_failed(number(&request), why);
            }
            Notice::SendEnded { .. } | Notice::Recomputed { .. } | Notice::BlocksBack { .. } => {}
        }
    }

    fn who(&self, slot: usize, request: &str) -> String {
        format!("{}, request {request}", self.fleet.name(slot))
    }

    fn answered(&mut self, slot: usize, request: &str, outcome: Outcome) {
        let id = number(request);
        let Some(attempt) = self.running.get(&id) else { return };
        let expected = &self.jobs[attempt.job].expected;
        let who = self.who(slot, request);
        match (request.starts_with('p'), outcome) {
            (true, Outcome::Tokens(tokens)) => {
                if tokens != expected[..1] {
                    self.tally.problem(format!(
                        "{who} sampled {tokens:?} instead of {:?}",
                        &expected[..1]
                    ));
                }
            }
            (false, Outcome::Tokens(tokens)) => {
                self.tally.answer(&who, expected, &tokens);
                self.tally.recomputed += u64::from(attempt.recomputed);
                self.running.remove(&id);
                self.ended += 1;
            }
            (_, Outcome::LoadFailed | Outcome::Aborted) => {
                let why = attempt.why.clone().unwrap_or_else(|| "it was aborted".to_owned());
                let name = self.fleet.name(slot);
                self.attempt_failed(id, format!("{name}: {why}"));
            }
        }
    }

    /// An attempt is over without an answer: the other side is told, and the request is
    /// tried again if chaos may be the reason.
    fn attempt_failed(&mut self, id: u64, why: String) {
        let Some(attempt) = self.running.remove(&id) else { return };
        self.abort_on(attempt.p, format!("p{id}"));
        self.abort_on(attempt.d, format!("d{id}"));
        if self.chaos.is_some() && attempt.number < MAX_ATTEMPTS {
            self.tally.retried += 1;
            self.tally.expected_error(why);
            self.waiting.push_front((attempt.job, attempt.number + 1));
        } else {
            self.tally.failed += 1;
            self.tally.problem(why);
            self.ended += 1;
        }
    }

    /// Ends a request on a process, unless that is dead.
    fn abort_on(&mut self, (slot, life): Process, request: String) {
        if self.fleet.life(slot) == life {
            self.fleet.tell(slot, &ToEngine::Abort { request });
        }
    }

    fn cancel_overdue(&mut self) {
        let now = Instant::now();
        let overdue: Vec<u64> = self
            .running
            .iter()
            .filter(|(_, attempt)| attempt.cancel_at.is_some_and(|at| at <= now))
            .map(|(id, _)| *id)
            .collect();
        for id in overdue {
            let Some(attempt) = self.running.get_mut(&id) else { continue };
            attempt.cancel_at = None;
            let d = attempt.d;
            attempt.why.get_or_insert_with(|| "its prefill was killed; cancelled".to_owned());
            self.abort_on(d, format!("d{id}"));
        }
    }

    fn strike(&mut self) -> Result<()> {
        let Some(chaos) = &mut self.chaos else { return Ok(()) };
        let running = &self.running;
        let on = |slot| running.values().filter(|it| it.p.0 == slot || it.d.0 == slot).count();
        let Some(slot) = chaos.strike(self.fleet, self.ended, on)? else { return Ok(()) };
        let dead = |process: Process| process.0 == slot && process.1 < self.fleet.life(slot);
        let name = self.fleet.name(slot);
        let lost: Vec<u64> =
            self.running.iter().filter(|(_, it)| dead(it.d)).map(|(id, _)| *id).collect();
        for attempt in self.running.values_mut().filter(|it| dead(it.p)) {
            attempt.cancel_at.get_or_insert(Instant::now() + NOTICE_WITHIN);
        }
        for id in lost {
            self.attempt_failed(id, format!("{name} was killed with request d{id}"));
        }
        Ok(())
    }
}

/// The attempt that a request id names.
fn number(request: &str) -> u64 {
    request.get(1..).and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX)
}
