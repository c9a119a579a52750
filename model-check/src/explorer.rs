//! Walks a world depth first, and leaves out what other states and steps stand for.
//!
//! The way to the state at hand is all that is kept whole; of every other state that was
//! visited, eight bytes ([`Visited`]). Since no path comes back to a state, nothing more is
//! needed: a broken rule is found on the way at hand, and what does not end shows as a state
//! where nothing can happen any more.
//!
//! # What stands for what
//!
//! - **What will not be read again** is not compared: what a P rank remembers of a transfer that
//!   no pull can name any more, D's layout where no pull can come any more, what D knows of P
//!   once its last pull is out, why a load failed, the bytes of a load that has failed, the
//!   numbers of counters (`prefill::lasting`, `decode::lasting`, `Letter`). Two states
//!   that differ in nothing else behave alike. That is not taken on trust:
//!   [`prove`](crate::prove::prove) looks it up, state by state, in worlds that are small enough
//!   to be walked whole, and the tests do so for every kind of fault. It would also fail for a
//!   machine that reads what it has no reason to read.
//! - **Fewer faults left.** Of two states that are equal but for the faults that may still happen,
//!   what can follow the one with fewer can follow the other, step by step: a step asks only
//!   whether there is one, and no rule reads it. So the one with more stands for the other, if it
//!   was visited before; what happens by itself is walked before faults, so that it mostly was.
//!   Likewise a state before any loss, deadline or lost message stands for the one after, since
//!   it has to keep one rule more ([`Progress`](crate::rules::Rule::Progress)).
//!   For that reason, with several threads the number of states differs a little between runs.

use crate::options::Options;
use crate::step::Step;
use crate::visited::Visited;
use crate::world::{Tables, World};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// What a walk found.
#[derive(Debug, Default)]
pub struct Walk {
    /// Different states.
    pub states: usize,
    /// States that steps led to, also those that were known.
    pub generated: usize,
    /// Steps of the longest way.
    pub depth: usize,
    /// The steps to a state with a broken rule.
    pub broken: Option<Vec<Step>>,
    /// Bytes that the visited states took.
    pub bytes: usize,
}

/// A state, steps from it that nobody has taken, and the way to it.
struct Job {
    world: World,
    steps: Vec<Step>,
    way: Vec<Step>,
}

/// What the threads share.
struct Shared<'a> {
    options: &'a Options,
    tables: &'a Tables,
    visited: Visited,
    jobs: Mutex<(Vec<Job>, usize)>,
    changed: Condvar,
    /// Threads that wait for a job.
    idle: AtomicUsize,
    stop: AtomicBool,
    states: AtomicUsize,
    generated: AtomicUsize,
    depth: AtomicUsize,
    broken: Mutex<Option<Vec<Step>>>,
}

/// Walks on so many threads until every state is visited or a rule is broken. `progress` gets
/// the number of states about every 10 ms.
pub fn walk(options: &Options, tables: &Tables, threads: usize, progress: impl Fn(usize)) -> Walk {
    let first = World::new(options);
    let visited = Visited::new(options.faults.total() + 1, options.reduced);
    visited.insert(first.print(options), first.rest(options));
    let shared = Shared {
        options,
        tables,
        visited,
        jobs: Mutex::new((vec![Job { steps: first.next(options), world: first, way: vec![] }], 0)),
        changed: Condvar::new(),
        idle: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        states: AtomicUsize::new(1),
        generated: AtomicUsize::new(1),
        depth: AtomicUsize::new(0),
        broken: Mutex::new(None),
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| shared.work())).collect();
        while workers.iter().any(|it| !it.is_finished()) {
            progress(shared.states.load(Ordering::Relaxed));
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    });
    Walk {
        states: shared.visited.len(),
        generated: shared.generated.into_inner(),
        depth: shared.depth.into_inner(),
        bytes: shared.visited.bytes(),
        broken: shared.broken.into_inner().unwrap_or_else(PoisonError::into_inner),
    }
}

/// A state on the way at hand.
struct Frame {
    world: World,
    /// Steps that wait.
    steps: Vec<Step>,
    /// The step that led here.
    by: Option<Step>,
}

impl Shared<'_> {
    /// Takes jobs until there are none and nobody works on one that may bring more.
    fn work(&self) {
        let lock = || self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut jobs = lock();
            let job = loop {
                if self.stop.load(Ordering::Relaxed) {
                    return;
                }
                if let Some(job) = jobs.0.pop() {
                    jobs.1 += 1;
                    break job;
                }
                if jobs.1 == 0 {
                    return;
                }
                self.idle.fetch_add(1, Ordering::Relaxed);
                jobs = self.changed.wait(jobs).unwrap_or_else(PoisonError::into_inner);
                self.idle.fetch_sub(1, Ordering::Relaxed);
            };
            drop(jobs);
            self.descend(job);
            lock().1 -= 1;
            self.changed.notify_all();
        }
    }

    fn descend(&self, job: Job) {
        let (mut states, mut generated, mut depth) = (0, 0, job.way.len());
        let way = job.way;
        let mut stack = vec![Frame { world: job.world, steps: job.steps, by: None }];
        while let Some(frame) = stack.last_mut() {
            let Some(step) = frame.steps.pop() else {
                stack.pop();
                continue;
            };
            let mut world = frame.world.clone();
            world.apply(step, (self.options, self.tables));
            generated += 1;
            if world.broken.is_some() {
                let steps = stack.iter().filter_map(|it| it.by).chain([step]);
                let found = way.iter().copied().chain(steps).collect();
                self.broken.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(found);
                self.stop.store(true, Ordering::Relaxed);
                self.changed.notify_all();
            } else if self.visited.insert(world.print(self.options), world.rest(self.options)) {
                states += 1;
                let steps = world.next(self.options);
                stack.push(Frame { world, steps, by: Some(step) });
                depth = depth.max(way.len() + stack.len() - 1);
            }
            if generated % 4096 == 0 {
                self.states.fetch_add(std::mem::take(&mut states), Ordering::Relaxed);
                if self.idle.load(Ordering::Relaxed) > 0 {
                    self.share_out(&way, &mut stack);
                }
            }
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        self.states.fetch_add(states, Ordering::Relaxed);
        self.generated.fetch_add(generated, Ordering::Relaxed);
        self.depth.fetch_max(depth, Ordering::Relaxed);
    }

    /// Gives the steps away that wait furthest up.
    fn share_out(&self, way: &[Step], stack: &mut [Frame]) {
        let Some(at) = stack.iter().position(|frame| !frame.steps.is_empty()) else { return };
        let taken = stack[..=at].iter().filter_map(|it| it.by);
        let job = Job {
            way: way.iter().copied().chain(taken).collect(),
            world: stack[at].world.clone(),
            steps: std::mem::take(&mut stack[at].steps),
        };
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).0.push(job);
        self.changed.notify_one();
    }
}
