//! Each machine's steps are worked out once.
//!
//! A node's next state and what it asks for depend on its state and its input alone. A
//! world has far more states than one node of it, so nearly every step has been worked out
//! in another world before; and worlds share their nodes' states instead of copying them.

use crate::coverage::Seen;
use crate::data_plane::Write;
use crate::network::{Letter, Packet};
use crate::rules::Rule;
use kvbaton_core::sender::SendWriteId;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// A 64-bit fingerprint, the same in every run.
pub fn print(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A node's state, shared by all worlds that it is a part of, and compared by its
/// fingerprint.
#[derive(Debug)]
pub struct Shared<T>(Arc<(u64, T, Views)>);

/// Fingerprints of the parts that matter in some surroundings.
type Views = Mutex<Vec<(u32, u64)>>;

impl<T: Hash> Shared<T> {
    /// Takes a state that is not shared yet.
    pub fn new(state: T) -> Self {
        Self(Arc::new((print(&state), state, Views::default())))
    }

    /// What `work_out` says of the state in these surroundings, worked out once.
    pub fn view(&self, surroundings: u32, work_out: impl FnOnce(&T) -> u64) -> u64 {
        let mut views = self.0.2.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = views.iter().find(|(it, _)| *it == surroundings) {
            return *known;
        }
        let new = work_out(&self.0.1);
        views.push((surroundings, new));
        new
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0.1
    }
}

impl<T> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.0 == other.0.0
    }
}

impl<T> Eq for Shared<T> {}

impl<T> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.0.hash(state);
    }
}

/// What a node did in one step.
#[derive(Debug, Default)]
pub struct Output {
    /// Messages to send.
    pub letters: Vec<Letter>,
    /// Writes to start.
    pub started: Vec<Write>,
    /// Writes to end early.
    pub cancelled: Vec<SendWriteId>,
    /// Whether D's data plane took the bytes.
    pub taken: bool,
    /// What was reached.
    pub seen: Vec<Seen>,
    /// The rule that was broken.
    pub broken: Option<Rule>,
}

impl Output {
    /// Notes that a rule is broken unless it holds.
    pub fn require(&mut self, rule: Rule, holds: bool) {
        if !holds && self.broken.is_none() {
            self.broken = Some(rule);
        }
    }

    /// Sends a message.
    pub fn send(&mut self, packet: Packet) {
        self.letters.push(Letter::new(packet));
    }

    /// Notes that something was reached.
    pub fn saw(&mut self, what: Seen) {
        self.seen.push(what);
    }
}

/// A node's state after a step, and what it did.
#[derive(Debug)]
pub struct Outcome<T> {
    /// The state.
    pub next: Shared<T>,
    /// The rest.
    pub output: Output,
}

const SHARDS: usize = 64;

type Table<K, V> = [Mutex<HashMap<K, V>>; SHARDS];

/// The steps of one kind of node that were worked out.
#[derive(Debug)]
pub struct Memo<T> {
    steps: Table<(u64, u64), Arc<Outcome<T>>>,
    states: Table<u64, Shared<T>>,
}

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self {
            steps: std::array::from_fn(|_| Mutex::default()),
            states: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl<T: Clone + Hash> Memo<T> {
    /// What `input` does to a node; `take` works it out when it is not known. A panic of
    /// core breaks [`Rule::Assertion`] and leaves the state as it was.
    pub fn step<I: Hash>(
        &self,
        state: &Shared<T>,
        input: I,
        take: impl FnOnce(&mut T, I, &mut Output),
    ) -> Arc<Outcome<T>> {
        let key = (state.0.0, print(&input));
        let shard = &self.steps[(key.0 ^ key.1) as usize % SHARDS];
        let lock = || shard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&key) {
            return known.clone();
        }
        let mut next = (**state).clone();
        let mut output = Output::default();
        let done = catch_unwind(AssertUnwindSafe(|| take(&mut next, input, &mut output)));
        let next = match done {
            Ok(()) => self.share(next),
            Err(_) => {
                output = Output { broken: Some(Rule::Assertion), ..Output::default() };
                state.clone()
            }
        };
        let outcome = Arc::new(Outcome { next, output });
        lock().insert(key, outcome.clone());
        outcome
    }

    fn share(&self, state: T) -> Shared<T> {
        let new = Shared::new(state);
        let shard = &self.states[new.0.0 as usize % SHARDS];
        let mut states = shard.lock().unwrap_or_else(PoisonError::into_inner);
        states.entry(new.0.0).or_insert(new).clone()
    }

    /// States and steps that were worked out.
    pub fn sizes(&self) -> (usize, usize) {
        (count(&self.states), count(&self.steps))
    }
}

fn count<K, V>(table: &Table<K, V>) -> usize {
    table.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
}
