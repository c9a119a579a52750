//! Bugs planted on purpose, so that the simulation can prove that it would find them.
//!
//! One bug at a time, per thread: `plant` before a simulated run starts, on the thread
//! that it runs on. Without the feature `planted-bugs` every site compiles to nothing, and
//! a build without debug assertions refuses the feature.

mod bug;

pub use bug::{Bug, UnknownBug};

#[cfg(all(feature = "planted-bugs", not(debug_assertions)))]
compile_error!("planted bugs are for simulations: a release build cannot have them");

#[cfg(feature = "planted-bugs")]
mod active {
    use super::Bug;
    use std::cell::Cell;

    thread_local!(static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) });

    /// Plants a bug on this thread, in place of the one before; `None` removes it.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    /// Whether the bug is planted on this thread.
    #[must_use]
    pub fn is(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(feature = "planted-bugs")]
pub use active::{is, plant};

/// Whether the bug is planted: never, without the feature.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
#[must_use]
pub const fn is(_: Bug) -> bool {
    false
}

#[cfg(all(test, feature = "planted-bugs"))]
mod tests {
    use super::*;

    #[test]
    fn one_bug_at_a_time_on_its_own_thread() {
        assert!(Bug::ALL.iter().all(|bug| !is(*bug)));
        for planted in Bug::ALL {
            plant(Some(*planted));
            assert!(Bug::ALL.iter().all(|bug| is(*bug) == (bug == planted)));
            std::thread::scope(|scope| {
                scope.spawn(|| assert!(!is(*planted), "{planted} is planted on another thread"));
            });
        }
        plant(None);
        assert!(Bug::ALL.iter().all(|bug| !is(*bug)));
    }
}
