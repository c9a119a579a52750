//! One node's registration: registered, draining, gone, and back.
//!
//! A drain that does not end in time leaves the node registered and usable `[S01]`. A
//! release has two phases, so that several ranks go together or not at all `[S06]`:
//! prepared, memory is untouched but still registered; then committed, or cancelled.

use crate::ids::{Generation, LayoutId};
use crate::time::Timestamp;
use std::time::Duration;

/// Where a node's memory stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Never registered.
    New,
    /// Usable.
    Registered(Names),
    /// Still usable; waits until nothing touches local memory.
    Draining {
        /// The registration that is to end.
        names: Names,
        /// When it gives up.
        until: Timestamp,
        /// How long it stays prepared then; `None` releases at once.
        prepare: Option<Duration>,
    },
    /// Nothing touches memory and nothing may begin to; still registered.
    Prepared {
        /// The registration that is to end.
        names: Names,
        /// When it becomes usable again unless it is committed: whoever prepared it is gone.
        until: Timestamp,
    },
    /// Nothing touches memory any more; the data plane is unregistering.
    Releasing(Names),
    /// The engine may unmap its memory. It can be restored `[S02]`.
    Unregistered,
    /// The data plane is registering again.
    Restoring,
}

impl State {
    /// The registration, until it is released.
    #[must_use]
    pub const fn names(self) -> Option<Names> {
        match self {
            Self::Registered(names)
            | Self::Draining { names, .. }
            | Self::Prepared { names, .. }
            | Self::Releasing(names) => Some(names),
            Self::New | Self::Unregistered | Self::Restoring => None,
        }
    }

    /// One word for operators and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Registered(_) => "registered",
            Self::Draining { .. } => "draining",
            Self::Prepared { .. } => "prepared",
            Self::Releasing(_) => "releasing",
            Self::Unregistered => "unregistered",
            Self::Restoring => "restoring",
        }
    }

    /// Every name.
    pub const NAMES: [&'static str; 7] =
        ["new", "registered", "draining", "prepared", "releasing", "unregistered", "restoring"];
}

/// The two names of one registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Names {
    /// Of the memory.
    pub generation: Generation,
    /// Of the layout.
    pub layout_id: LayoutId,
}

/// What the caller must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LifecycleAction {
    /// Call [`Lifecycle::drained`] once no held request, pull or write touches memory, and
    /// none can begin to.
    WatchDrain,
    /// Nothing: it is prepared. [`Lifecycle::commit`] or [`Lifecycle::cancel`] follows.
    Wait,
    /// Unregister with the data plane, then call [`Lifecycle::released`].
    Release(Generation),
    /// Register with the data plane again, then call [`Lifecycle::registered`] or
    /// [`Lifecycle::restore_failed`].
    Restore,
    /// Take holds, pulls and loads again under the registration that stands.
    GoOn,
    /// Nothing: it is as asked already `[S02]`.
    Done,
}

/// Why an operation is not possible now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LifecycleError {
    /// Another operation runs.
    #[error("the node is {0}; wait for that operation to end")]
    Busy(&'static str),
    /// There is nothing to prepare or to restore.
    #[error("no memory was registered; register it before it can be released or restored")]
    NeverRegistered,
    /// It has a registration.
    #[error("memory is registered already; unregister it first")]
    AlreadyRegistered,
    /// A commit without a prepared release, or after it was given up.
    #[error("the release is not prepared (or was, and its time is over); prepare it again")]
    NotPrepared,
}

/// The registration of one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lifecycle {
    state: State,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self { state: State::New }
    }
}

impl Lifecycle {
    /// Where it stands.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The current registration, until it is released.
    #[must_use]
    pub const fn names(&self) -> Option<Names> {
        self.state.names()
    }

    /// When [`Self::give_up`] is due.
    #[must_use]
    pub const fn next_deadline(&self) -> Option<Timestamp> {
        match self.state {
            State::Draining { until, .. } | State::Prepared { until, .. } => Some(until),
            _ => None,
        }
    }

    const fn busy(&self) -> LifecycleError {
        LifecycleError::Busy(self.state.name())
    }

    /// Whether memory may be registered for the first time.
    ///
    /// # Errors
    /// When it is registered, or an operation runs.
    pub const fn may_register(&self) -> Result<(), LifecycleError> {
        match self.state {
            State::New | State::Unregistered => Ok(()),
            State::Registered(_) => Err(LifecycleError::AlreadyRegistered),
            _ => Err(self.busy()),
        }
    }

    /// The data plane has registered.
    pub fn registered(&mut self, names: Names) {
        self.state = State::Registered(names);
    }

    /// Asks for the registration's end, in one go `[S01]`. Idempotent.
    ///
    /// # Errors
    /// When another operation runs.
    pub fn unregister(
        &mut self,
        drain: Duration,
        now: Timestamp,
    ) -> Result<LifecycleAction, LifecycleError> {
        match self.state {
            State::New | State::Unregistered => Ok(LifecycleAction::Done),
            State::Registered(names) => {
                self.state = State::Draining { names, until: now + drain, prepare: None };
                Ok(LifecycleAction::WatchDrain)
            }
            _ => Err(self.busy()),
        }
    }

    /// First phase of a release: drains within `drain`, then stays prepared for at most
    /// `lease` `[S06]`. Idempotent; prepared again, its lease begins anew.
    ///
    /// # Errors
    /// When nothing was registered yet, or another operation runs.
    pub fn prepare(
        &mut self,
        drain: Duration,
        lease: Duration,
        now: Timestamp,
    ) -> Result<LifecycleAction, LifecycleError> {
        match self.state {
            // A node that still starts would register behind the back of who sleeps.
            State::New => Err(LifecycleError::NeverRegistered),
            State::Unregistered => Ok(LifecycleAction::Done),
            State::Registered(names) => {
                self.state = State::Draining { names, until: now + drain, prepare: Some(lease) };
                Ok(LifecycleAction::WatchDrain)
            }
            State::Prepared { names, .. } => {
                self.state = State::Prepared { names, until: now + lease };
                Ok(LifecycleAction::Wait)
            }
            _ => Err(self.busy()),
        }
    }

    /// Nothing touches memory any more, and nothing can begin to. `None` when the drain
    /// was given up or cancelled meanwhile.
    pub fn drained(&mut self, now: Timestamp) -> Option<LifecycleAction> {
        let State::Draining { names, prepare, .. } = self.state else { return None };
        if let Some(lease) = prepare {
            self.state = State::Prepared { names, until: now + lease };
            return Some(LifecycleAction::Wait);
        }
        self.state = State::Releasing(names);
        Some(LifecycleAction::Release(names.generation))
    }

    /// Second phase of a release `[S06]`. Idempotent.
    ///
    /// # Errors
    /// When it is not prepared.
    pub fn commit(&mut self) -> Result<LifecycleAction, LifecycleError> {
        match self.state {
            State::New | State::Unregistered => Ok(LifecycleAction::Done),
            State::Prepared { names, .. } => {
                self.state = State::Releasing(names);
                Ok(LifecycleAction::Release(names.generation))
            }
            State::Registered(_) => Err(LifecycleError::NotPrepared),
            _ => Err(self.busy()),
        }
    }

    /// Takes a drain or a prepared release back: the node is as it was. True when there
    /// was one; never a failure.
    pub fn cancel(&mut self) -> bool {
        match self.state {
            State::Draining { names, .. } | State::Prepared { names, .. } => {
                self.state = State::Registered(names);
                true
            }
            _ => false,
        }
    }

    /// The drain took too long, or nobody committed: the node stays registered and usable
    /// `[S01]`. True when it was due.
    pub fn give_up(&mut self, now: Timestamp) -> bool {
        match self.state {
            State::Draining { names, until, .. } | State::Prepared { names, until }
                if until <= now =>
            {
                self.state = State::Registered(names);
                true
            }
            _ => false,
        }
    }

    /// The data plane has unregistered: the engine may unmap.
    pub fn released(&mut self) {
        if let State::Releasing(_) = self.state {
            self.state = State::Unregistered;
        }
    }

    /// Asks for the same memory to be registered again `[S02]`, or for a prepared release to
    /// be taken back. Idempotent.
    ///
    /// # Errors
    /// When nothing was registered, or an operation runs.
    pub fn restore(&mut self) -> Result<LifecycleAction, LifecycleError> {
        match self.state {
            State::New => Err(LifecycleError::NeverRegistered),
            State::Registered(_) => Ok(LifecycleAction::Done),
            State::Unregistered => {
                self.state = State::Restoring;
                Ok(LifecycleAction::Restore)
            }
            State::Prepared { names, .. } => {
                self.state = State::Registered(names);
                Ok(LifecycleAction::GoOn)
            }
            _ => Err(self.busy()),
        }
    }

    /// The data plane could not register again: still unregistered, may be tried again.
    pub fn restore_failed(&mut self) {
        if self.state == State::Restoring {
            self.state = State::Unregistered;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FIRST: Names = Names { generation: Generation(7), layout_id: LayoutId(9) };
    const SECOND: Names = Names { generation: Generation(8), layout_id: LayoutId(11) };
    const SECOND_OF_TIME: Duration = Duration::from_secs(1);

    fn registered() -> Lifecycle {
        let mut node = Lifecycle::default();
        node.registered(FIRST);
        node
    }

    #[test]
    fn s01_a_drain_that_takes_too_long_leaves_the_node_registered() {
        let mut node = registered();
        let asked = node.unregister(SECOND_OF_TIME, Timestamp(0));
        assert_eq!(asked, Ok(LifecycleAction::WatchDrain));
        assert_eq!(node.names(), Some(FIRST));
        assert_eq!(node.next_deadline(), Some(Timestamp::from_millis(1000)));
        assert!(!node.give_up(Timestamp(1)));
        assert!(node.give_up(Timestamp::from_millis(1000)));
        assert_eq!(node.state(), State::Registered(FIRST));
        assert_eq!(node.drained(Timestamp(2)), None, "a drain that was given up releases nothing");
    }

    #[test]
    fn s02_unregister_and_restore_are_idempotent_and_mint_new_names() {
        let mut node = Lifecycle::default();
        assert_eq!(node.restore(), Err(LifecycleError::NeverRegistered));
        let prepared = node.prepare(SECOND_OF_TIME, SECOND_OF_TIME, Timestamp(0));
        assert_eq!(prepared, Err(LifecycleError::NeverRegistered));
        node.registered(FIRST);
        assert_eq!(node.restore(), Ok(LifecycleAction::Done));
        node.unregister(Duration::ZERO, Timestamp(0)).unwrap();
        assert_eq!(node.drained(Timestamp(0)), Some(LifecycleAction::Release(FIRST.generation)));
        assert_eq!(node.restore(), Err(LifecycleError::Busy("releasing")));
        node.released();
        let again = node.unregister(Duration::ZERO, Timestamp(0));
        assert_eq!(again, Ok(LifecycleAction::Done));
        assert_eq!(node.prepare(SECOND_OF_TIME, SECOND_OF_TIME, Timestamp(0)), again);
        assert_eq!(node.commit(), again);
        assert_eq!(node.restore(), Ok(LifecycleAction::Restore));
        node.restore_failed();
        assert_eq!(node.restore(), Ok(LifecycleAction::Restore));
        node.registered(SECOND);
        assert_eq!(node.names(), Some(SECOND));
    }

    #[test]
    fn s06_a_prepared_release_is_committed_cancelled_or_given_up() {
        let lease = Duration::from_secs(9);
        let prepared = || {
            let mut node = registered();
            node.prepare(SECOND_OF_TIME, lease, Timestamp(0)).unwrap();
            assert_eq!(node.commit(), Err(LifecycleError::Busy("draining")));
            assert_eq!(node.drained(Timestamp(5)), Some(LifecycleAction::Wait));
            assert_eq!(node.next_deadline(), Some(Timestamp(5) + lease));
            node
        };
        let mut node = prepared();
        assert_eq!(node.restore(), Ok(LifecycleAction::GoOn));
        assert_eq!(node.state(), State::Registered(FIRST));
        let mut node = prepared();
        assert_eq!(node.commit(), Ok(LifecycleAction::Release(FIRST.generation)));
        assert!(!node.cancel(), "it is too late");
        let mut node = prepared();
        assert!(node.cancel());
        assert_eq!(node.state(), State::Registered(FIRST));
        assert_eq!(node.commit(), Err(LifecycleError::NotPrepared));
        let mut node = prepared();
        let later = Timestamp(6);
        assert_eq!(node.prepare(Duration::ZERO, lease, later), Ok(LifecycleAction::Wait));
        assert!(!node.give_up(Timestamp(5) + lease), "its lease began anew");
        assert!(node.give_up(later + lease));
        assert_eq!(node.commit(), Err(LifecycleError::NotPrepared));
    }

    proptest! {
        /// Any order of calls: memory is released only after a drain that ended, the names
        /// hold until then, and an operation never starts beside another one.
        #[test]
        fn s01_s02_s05_no_order_of_calls_releases_undrained_memory(
            calls in prop::collection::vec(0u8..11, 1..40),
        ) {
            let mut node = Lifecycle::default();
            let mut now = Timestamp(0);
            for call in calls {
                let before = node.state();
                now = now + Duration::from_millis(400);
                match call {
                    0 if node.may_register().is_ok() => node.registered(FIRST),
                    1 => drop(node.unregister(SECOND_OF_TIME, now)),
                    2 => {
                        let drained = node.drained(now);
                        prop_assert_eq!(
                            drained.is_some(),
                            matches!(before, State::Draining { .. })
                        );
                    }
                    3 => {
                        let due = node.next_deadline().is_some_and(|until| until <= now);
                        prop_assert_eq!(node.give_up(now), due);
                    }
                    4 => node.released(),
                    5 => drop(node.restore()),
                    6 if before == State::Restoring => node.registered(SECOND),
                    7 => node.restore_failed(),
                    8 => drop(node.prepare(SECOND_OF_TIME, SECOND_OF_TIME, now)),
                    9 => drop(node.commit()),
                    10 => drop(node.cancel()),
                    _ => {}
                }
                let after = node.state();
                match (before, after) {
                    (_, State::Releasing(_)) if before != after => {
                        let drained = matches!(before, State::Draining { prepare: None, .. } | State::Prepared { .. });
                        prop_assert!(drained);
                    }
                    (_, State::Prepared { .. }) if before != after => {
                        let drained = matches!(before, State::Draining { prepare: Some(_), .. } | State::Prepared { .. });
                        prop_assert!(drained);
                    }
                    (_, State::Unregistered) if before != after => {
                        let ended = matches!(before, State::Releasing(_) | State::Restoring);
                        prop_assert!(ended);
                    }
                    (State::Draining { names, .. } | State::Prepared { names, .. }, _) => {
                        prop_assert_eq!(node.names(), Some(names));
                    }
                    _ => {}
                }
                prop_assert_eq!(
                    node.next_deadline().is_some(),
                    matches!(after, State::Draining { .. } | State::Prepared { .. })
                );
                prop_assert!(State::NAMES.contains(&after.name()));
            }
        }
    }

    #[test]
    fn memory_is_registered_once_at_a_time() {
        let mut node = Lifecycle::default();
        assert_eq!(node.may_register(), Ok(()));
        node.registered(FIRST);
        assert_eq!(node.may_register(), Err(LifecycleError::AlreadyRegistered));
    }
}
