//! One node's registration: registered, draining, gone, and back.
//!
//! This is the part that registering, unregistering and restoring need. A drain that
//! does not end in time leaves the node registered and usable `[S01]`.

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
    },
    /// Nothing touches memory any more; the data plane is unregistering.
    Releasing(Names),
    /// The engine may unmap its memory. It can be restored `[S02]`.
    Unregistered,
    /// The data plane is registering again.
    Restoring,
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
    /// Call [`Lifecycle::drained`] once no held request, pull or write touches memory.
    WatchDrain,
    /// Unregister with the data plane, then call [`Lifecycle::released`].
    Release(Generation),
    /// Register with the data plane again, then call [`Lifecycle::registered`] or
    /// [`Lifecycle::restore_failed`].
    Restore,
    /// Nothing: it is as asked already `[S02]`.
    Done,
}

/// Why an operation is not possible now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LifecycleError {
    /// Another operation runs.
    #[error("the node is {0}; wait for that operation to end")]
    Busy(&'static str),
    /// There is nothing to restore.
    #[error("no memory was registered; register it before it can be restored")]
    NeverRegistered,
    /// It has a registration.
    #[error("memory is registered already; unregister it first")]
    AlreadyRegistered,
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

    /// The current registration, also while it drains.
    #[must_use]
    pub const fn names(&self) -> Option<Names> {
        match self.state {
            State::Registered(names) | State::Draining { names, .. } | State::Releasing(names) => {
                Some(names)
            }
            State::New | State::Unregistered | State::Restoring => None,
        }
    }

    /// When [`Self::give_up`] is due.
    #[must_use]
    pub const fn next_deadline(&self) -> Option<Timestamp> {
        match self.state {
            State::Draining { until, .. } => Some(until),
            _ => None,
        }
    }

    /// Whether memory may be registered for the first time.
    ///
    /// # Errors
    /// When it is registered, or an operation runs.
    pub const fn may_register(&self) -> Result<(), LifecycleError> {
        match self.state {
            State::New | State::Unregistered => Ok(()),
            State::Registered(_) => Err(LifecycleError::AlreadyRegistered),
            State::Draining { .. } => Err(LifecycleError::Busy("draining")),
            State::Releasing(_) => Err(LifecycleError::Busy("unregistering")),
            State::Restoring => Err(LifecycleError::Busy("restoring")),
        }
    }

    /// The data plane has registered.
    pub fn registered(&mut self, names: Names) {
        self.state = State::Registered(names);
    }

    /// Asks for the registration's end `[S01]`. Idempotent.
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
                self.state = State::Draining { names, until: now + drain };
                Ok(LifecycleAction::WatchDrain)
            }
            State::Draining { .. } => Err(LifecycleError::Busy("draining")),
            State::Releasing(_) => Err(LifecycleError::Busy("unregistering")),
            State::Restoring => Err(LifecycleError::Busy("restoring")),
        }
    }

    /// Nothing touches memory any more.
    pub fn drained(&mut self) -> Option<LifecycleAction> {
        let State::Draining { names, .. } = self.state else { return None };
        self.state = State::Releasing(names);
        Some(LifecycleAction::Release(names.generation))
    }

    /// The drain took too long: the node stays registered and usable `[S01]`. True when
    /// it was due.
    pub fn give_up(&mut self, now: Timestamp) -> bool {
        match self.state {
            State::Draining { names, until } if until <= now => {
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

    /// Asks for the same memory to be registered again `[S02]`. Idempotent.
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
            State::Draining { .. } => Err(LifecycleError::Busy("draining")),
            State::Releasing(_) => Err(LifecycleError::Busy("unregistering")),
            State::Restoring => Err(LifecycleError::Busy("restoring")),
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

    #[test]
    fn s01_a_drain_that_takes_too_long_leaves_the_node_registered() {
        let mut node = Lifecycle::default();
        node.registered(FIRST);
        let asked = node.unregister(Duration::from_secs(1), Timestamp(0));
        assert_eq!(asked, Ok(LifecycleAction::WatchDrain));
        assert_eq!(node.names(), Some(FIRST));
        assert!(!node.give_up(Timestamp(1)));
        assert!(node.give_up(Timestamp::from_millis(1000)));
        assert_eq!(node.state(), State::Registered(FIRST));
        assert_eq!(node.drained(), None, "a drain that was given up releases nothing");
    }

    #[test]
    fn s02_unregister_and_restore_are_idempotent_and_mint_new_names() {
        let mut node = Lifecycle::default();
        assert_eq!(node.restore(), Err(LifecycleError::NeverRegistered));
        node.registered(FIRST);
        assert_eq!(node.restore(), Ok(LifecycleAction::Done));
        node.unregister(Duration::ZERO, Timestamp(0)).unwrap();
        assert_eq!(node.drained(), Some(LifecycleAction::Release(FIRST.generation)));
        assert_eq!(node.restore(), Err(LifecycleError::Busy("unregistering")));
        node.released();
        assert_eq!(node.unregister(Duration::ZERO, Timestamp(0)), Ok(LifecycleAction::Done));
        assert_eq!(node.restore(), Ok(LifecycleAction::Restore));
        node.restore_failed();
        assert_eq!(node.restore(), Ok(LifecycleAction::Restore));
        node.registered(SECOND);
        assert_eq!(node.names(), Some(SECOND));
    }

    proptest! {
        /// Any order of calls: memory is released only after a drain that ended, the names
        /// hold until then, and an operation never starts beside another one.
        #[test]
        fn s01_s02_s05_no_order_of_calls_releases_undrained_memory(
            calls in prop::collection::vec(0u8..8, 1..40),
        ) {
            let mut node = Lifecycle::default();
            let mut now = Timestamp(0);
            for call in calls {
                let before = node.state();
                now = now + Duration::from_millis(400);
                match call {
                    0 if node.may_register().is_ok() => node.registered(FIRST),
                    1 => drop(node.unregister(Duration::from_secs(1), now)),
                    2 => {
                        let released = node.drained();
                        prop_assert_eq!(
                            released.is_some(),
                            matches!(before, State::Draining { .. })
                        );
                    }
                    3 => prop_assert_eq!(
                        node.give_up(now),
                        matches!(before, State::Draining { until, .. } if until <= now)
                    ),
                    4 => node.released(),
                    5 => drop(node.restore()),
                    6 if before == State::Restoring => node.registered(SECOND),
                    7 => node.restore_failed(),
                    _ => {}
                }
                let after = node.state();
                match (before, after) {
                    (_, State::Releasing(_)) if before != after => {
                        let drained = matches!(before, State::Draining { .. });
                        prop_assert!(drained);
                    }
                    (_, State::Unregistered) if before != after => {
                        let ended = matches!(before, State::Releasing(_) | State::Restoring);
                        prop_assert!(ended);
                    }
                    (State::Draining { names, .. }, _) => prop_assert_eq!(node.names(), Some(names)),
                    _ => {}
                }
                prop_assert_eq!(
                    node.next_deadline().is_some(),
                    matches!(after, State::Draining { .. })
                );
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
