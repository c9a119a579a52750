//! Requests that run while an operator is at work: one P, one D, a router between that tries
//! again what failed, and judges every answer.

use super::answers::Answers;
use super::count::Count;
use super::setup::FIRST_VERSION;
use crate::demo::fleet::Fleet;
use crate::demo::message::{FromEngine, Operated, ToEngine};
use crate::engine::{Measured, Notice, Operate, Outcome, Source, Submit};
use anyhow::{Result, bail};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// P's place in the fleet.
pub const P: usize = 0;
/// D's.
pub const D: usize = 1;
/// Attempts at one request before it counts as failed.
const MAX_ATTEMPTS: u32 = 10;
/// Longest sleep while nothing happens.
const LOOK: Duration = Duration::from_millis(20);

/// One attempt at a request.
#[derive(Debug)]
struct Attempt {
    job: usize,
    number: u32,
    /// Versions that P and D surely had when they were asked.
    versions: [u64; 2],
    asked: bool,
    recomputed: bool,
    /// Its client has gone.
    disconnected: bool,
    why: Option<String>,
}

/// The fleet and its requests.
pub struct Traffic<'a> {
    pub fleet: Fleet,
    pub count: Count,
    answers: &'a mut Answers,
    /// Requests at a time.
    pub concurrency: usize,
    /// Requests that have not been started; `None` for no end of them.
    left: Option<usize>,
    /// D is asked only once P holds the KV and [`Self::ask_decode`] is called.
    pub held_back: bool,
    /// Whether requests may end aborted.
    pub aborts: bool,
    again: VecDeque<(usize, u32)>,
    next_job: usize,
    running: BTreeMap<u64, Attempt>,
    held: Vec<u64>,
    next_attempt: u64,
    /// By place: the version that it surely has, and the newest that it was told.
    versions: [(u64, u64); 2],
    operations: BTreeMap<u64, (usize, Operate)>,
    next_operation: u64,
    ended: Vec<(usize, Operated)>,
    measured: BTreeMap<usize, Measured>,
}

impl<'a> Traffic<'a> {
    pub fn new(
        fleet: Fleet,
        answers: &'a mut Answers,
        concurrency: usize,
        requests: Option<usize>,
    ) -> Self {
        Self {
            fleet,
            count: Count::default(),
            answers,
            concurrency,
            left: requests,
            held_back: false,
            aborts: false,
            again: VecDeque::new(),
            next_job: 0,
            running: BTreeMap::new(),
            held: Vec::new(),
            next_attempt: 0,
            versions: [(FIRST_VERSION, FIRST_VERSION); 2],
            operations: BTreeMap::new(),
            next_operation: 0,
            ended: Vec::new(),
            measured: BTreeMap::new(),
        }
    }

    /// Starts no more requests.
    pub const fn stop_starting(&mut self) {
        self.left = Some(0);
    }

    /// Whether every request has ended.
    pub fn is_over(&self) -> bool {
        self.left == Some(0) && self.running.is_empty() && self.again.is_empty()
    }

    /// Lets requests run until `is_so`.
    ///
    /// # Errors
    /// When an engine dies or the time is over.
    pub fn run_until(&mut self, is_so: impl Fn(&Self) -> bool) -> Result<()> {
        while !is_so(self) {
            self.pump(LOOK)?;
        }
        Ok(())
    }

    /// Lets requests run for a while.
    ///
    /// # Errors
    /// As [`Self::run_until`].
    pub fn run_for(&mut self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            self.pump(left.min(LOOK))?;
        }
        Ok(())
    }

    /// Requests that P holds and D was not asked for.
    pub const fn held(&self) -> usize {
        self.held.len()
    }

    /// Operates engines at the same time; requests go on meanwhile. The longest that one took.
    ///
    /// # Errors
    /// As [`Self::run_until`], and when an operation failed.
    pub fn operate(&mut self, orders: &[(usize, Operate)]) -> Result<Vec<Operated>> {
        self.begin(orders);
        self.finish()
    }

    /// As [`Self::operate`], without waiting.
    pub fn begin(&mut self, orders: &[(usize, Operate)]) {
        for &(slot, operate) in orders {
            if let Operate::UpdateWeights { version, .. } = operate {
                self.versions[slot].1 = version;
            }
            let id = self.next_operation;
            self.next_operation += 1;
            self.operations.insert(id, (slot, operate));
            self.fleet.tell(slot, &ToEngine::Operate { id, operate });
        }
    }

    /// Waits for what was begun.
    ///
    /// # Errors
    /// As [`Self::operate`].
    pub fn finish(&mut self) -> Result<Vec<Operated>> {
        self.run_until(|it| it.operations.is_empty())?;
        let ended = std::mem::take(&mut self.ended);
        for (slot, operated) in &ended {
            if let Some(error) = &operated.error {
                bail!("{}: {error}", self.fleet.name(*slot));
            }
        }
        Ok(ended.into_iter().map(|(_, operated)| operated).collect())
    }

    /// What of both engines' memory is there.
    ///
    /// # Errors
    /// As [`Self::run_until`].
    pub fn measure(&mut self) -> Result<[Measured; 2]> {
        self.measured.clear();
        for slot in [P, D] {
            self.fleet.tell(slot, &ToEngine::Measure);
        }
        self.run_until(|it| it.measured.len() == 2)?;
        Ok([P, D].map(|slot| self.measured.remove(&slot).unwrap_or_default()))
    }

    /// The clients of every second request that runs go away.
    pub fn disconnect(&mut self) {
        let ids: Vec<u64> = self.running.keys().step_by(2).copied().collect();
        for id in ids {
            if let Some(attempt) = self.running.get_mut(&id) {
                attempt.disconnected = true;
            }
            self.abort(D, id);
            self.abort(P, id);
        }
    }

    /// Asks D for everything that P holds.
    pub fn ask_decode(&mut self) {
        self.held_back = false;
        for id in std::mem::take(&mut self.held) {
            self.ask(id);
        }
    }

    fn pump(&mut self, bound: Duration) -> Result<()> {
        self.start();
        let mut heard = self.fleet.hear(bound)?;
        while let Some((slot, said)) = heard {
            self.take(slot, said);
            heard = self.fleet.hear(Duration::ZERO)?;
        }
        Ok(())
    }

    fn start(&mut self) {
        while self.running.len() < self.concurrency {
            let (job, number) = match (self.again.pop_front(), &mut self.left) {
                (Some(again), _) => again,
                (None, Some(0)) => return,
                (None, left) => {
                    if let Some(left) = left {
                        *left -= 1;
                    }
                    self.next_job = (self.next_job + 1) % self.answers.count();
                    (self.next_job, 1)
                }
            };
            let id = self.next_attempt;
            self.next_attempt += 1;
            let attempt = Attempt {
                job,
                number,
                versions: self.versions.map(|(sure, _)| sure),
                asked: false,
                recomputed: false,
                disconnected: false,
                why: None,
            };
            self.running.insert(id, attempt);
            self.submit(P, id, job, 1, None);
            if !self.held_back {
                self.ask(id);
            }
        }
    }

    fn ask(&mut self, id: u64) {
        let Some(attempt) = self.running.get_mut(&id) else { return };
        if std::mem::replace(&mut attempt.asked, true) {
            return;
        }
        attempt.versions[D] = self.versions[D].0;
        let job = attempt.job;
        let source = self.fleet.source(P);
        let source = source.map(|(engine, bootstrap)| Source { engine, bootstrap });
        self.submit(D, id, job, self.answers.max_tokens(), source);
    }

    fn submit(
        &mut self,
        slot: usize,
        id: u64,
        job: usize,
        max_tokens: usize,
        source: Option<Source>,
    ) {
        let (request, transfer) = (name(slot, id), format!("t{id}"));
        let prompt = self.answers.prompt(job).to_vec();
        let submit = Submit { request, transfer, prompt, max_tokens, source };
        self.fleet.tell(slot, &ToEngine::Submit(submit));
    }

    fn abort(&mut self, slot: usize, id: u64) {
        self.fleet.tell(slot, &ToEngine::Abort { request: name(slot, id) });
    }

    fn take(&mut self, slot: usize, said: FromEngine) {
        match said {
            FromEngine::Notice(notice) => self.notice(slot, notice),
            FromEngine::Operated { id, ended } => {
                let Some((slot, operate)) = self.operations.remove(&id) else { return };
                if let (Operate::UpdateWeights { version, .. }, None) = (operate, &ended.error) {
                    self.versions[slot].0 = version;
                }
                self.ended.push((slot, ended));
            }
            FromEngine::Measured(measured) => {
                self.measured.insert(slot, measured);
            }
            FromEngine::Ready { .. } | FromEngine::Settled(_) => {}
        }
    }

    fn notice(&mut self, slot: usize, notice: Notice) {
        match notice {
            Notice::Held { request, .. } => {
                let id = number(&request);
                if self.held_back && self.running.get(&id).is_some_and(|it| !it.asked) {
                    self.held.push(id);
                }
            }
            Notice::Loaded { .. } => self.count.loads += 1,
            Notice::LoadFailed { request, why, .. } => {
                if let Some(attempt) = self.running.get_mut(&number(&request)) {
                    attempt.why = Some(why);
                }
            }
            Notice::Recomputed { request } if slot == D => {
                if let Some(attempt) = self.running.get_mut(&number(&request)) {
                    attempt.recomputed = true;
                }
            }
            Notice::Compared { request, bytes, different, first } => {
                self.count.compared.0 += bytes;
                self.count.compared.1 += different;
                if different > 0 {
                    let first = first.unwrap_or_default();
                    let what = format!("{different} of {bytes} loaded bytes differ; {first}");
                    self.count.problem(format!("{request}: {what}"));
                }
            }
            Notice::Answer { request, outcome } => self.answered(slot, number(&request), outcome),
            Notice::Refused { request, why } => {
                let id = number(&request);
                if self.running.remove(&id).is_some() {
                    self.fail(format!("{request} was refused: {why}"));
                    self.abort(P, id);
                    self.abort(D, id);
                }
            }
            Notice::SendEnded { .. } | Notice::Recomputed { .. } | Notice::BlocksBack { .. } => {}
        }
    }

    fn fail(&mut self, what: String) {
        self.count.failed += 1;
        self.count.ended += 1;
        self.count.problem(what);
    }

    fn answered(&mut self, slot: usize, id: u64, outcome: Outcome) {
        let Some(attempt) = self.running.get(&id) else { return };
        let (job, versions) = (attempt.job, (attempt.versions[slot], self.versions[slot].1));
        if slot == P {
            // A prefill that was aborted ends D's load, and D's answer says what came of that.
            if let Outcome::Tokens(tokens) = outcome
                && !self.answers.is_right(job, &tokens, versions)
            {
                self.count.wrong += 1;
                self.count.problem(format!("{} sampled {tokens:?}", name(P, id)));
            }
            return;
        }
        let Some(attempt) = self.running.remove(&id) else { return };
        match outcome {
            Outcome::Tokens(tokens) => {
                self.count.ended += 1;
                let whole = tokens.len() == self.answers.max_tokens();
                if whole && self.answers.is_right(job, &tokens, versions) {
                    self.count.right += 1;
                    self.count.recomputed += u64::from(attempt.recomputed);
                } else {
                    self.count.wrong += 1;
                    let what = format!("{} answered {tokens:?}", name(D, id));
                    self.count.problem(format!("{what} under weights {versions:?}"));
                }
                if attempt.recomputed {
                    self.abort(P, id); // D may not have pulled it.
                }
            }
            Outcome::Aborted if attempt.disconnected || self.aborts => {
                self.count.aborted += 1;
                self.count.ended += 1;
                self.abort(P, id);
            }
            Outcome::Aborted => self.fail(format!("{} was aborted", name(D, id))),
            Outcome::LoadFailed if attempt.disconnected => {
                self.count.aborted += 1;
                self.count.ended += 1;
            }
            Outcome::LoadFailed => {
                self.abort(P, id);
                let why = attempt.why.unwrap_or_else(|| "its load failed".into());
                if attempt.number >= MAX_ATTEMPTS {
                    return self.fail(format!("{}, attempt {MAX_ATTEMPTS}: {why}", name(D, id)));
                }
                self.count.retried += 1;
                self.again.push_back((job, attempt.number + 1));
            }
        }
    }
}

fn name(slot: usize, id: u64) -> String {
    format!("{}{id}", if slot == P { 'p' } else { 'd' })
}

/// The attempt that a request id names.
fn number(request: &str) -> u64 {
    request.get(1..).and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX)
}
