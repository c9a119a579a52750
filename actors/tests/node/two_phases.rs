//! A rank's release in two phases: prepared, then committed, cancelled or forgotten.

use crate::world::{load, next, plain};
use futures_util::future::join;
use kvbaton_actors::events::Event;
use kvbaton_actors::lifecycle_manager::RegistrationError;
use kvbaton_actors::node::NodeHandle;
use kvbaton_actors::runtime;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::lifecycle::State;
use kvbaton_core::receiver::{LoadEnd, LoadError};
use std::time::Duration;

const DRAIN: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(60);

async fn state(node: &NodeHandle) -> State {
    node.status().await.unwrap().registration
}

/// Asks until the node is in a state: each answer lets its actors go on in between.
async fn until(node: &NodeHandle, wanted: impl Fn(State) -> bool) {
    let looking = async { while !wanted(state(node).await) {} };
    assert!(runtime::timeout(LONG, looking).await.is_ok(), "{:?}", state(node).await);
}

async fn refuses(node: &NodeHandle) -> bool {
    let refused = node.load(vec![load("d-0", "t-0", 8, 2)]).await.remove(0);
    matches!(refused, Err(LoadError::NotRegistered { .. }))
}

#[test]
fn s06_what_is_prepared_takes_nothing_and_is_committed_or_cancelled() {
    runtime::run(async {
        let world = plain().await;
        let State::Registered(before) = state(&world.decode).await else { panic!() };
        for _ in 0..2 {
            world.decode.prepare_release(DRAIN, LONG).await.unwrap();
        }
        assert!(matches!(state(&world.decode).await, State::Prepared { .. }));
        assert!(refuses(&world.decode).await);
        for _ in 0..2 {
            world.decode.cancel_release().await;
        }
        let State::Registered(after) = state(&world.decode).await else { panic!() };
        assert_eq!(after.generation, before.generation, "as it was");
        world.hold("p-1", "t-1", 3, 2).await;
        world.decode.load(vec![load("d-1", "t-1", 8, 2)]).await;
        let events = next(&world.decode).await;
        assert!(matches!(&events[..], [Event::LoadEnded { end: LoadEnd::Loaded, .. }]));
        next(&world.prefill).await;

        world.decode.prepare_release(DRAIN, LONG).await.unwrap();
        for _ in 0..2 {
            world.decode.commit_release().await.unwrap();
        }
        assert_eq!(state(&world.decode).await, State::Unregistered);
        world.decode.cancel_release().await;
        assert_eq!(state(&world.decode).await, State::Unregistered, "it is too late for that");
    });
}

#[test]
fn s06_what_was_not_prepared_is_not_committed() {
    runtime::run(async {
        let world = plain().await;
        let failed = world.decode.commit_release().await;
        assert!(matches!(failed, Err(RegistrationError::State(_))), "{failed:?}");
        assert!(matches!(state(&world.decode).await, State::Registered(_)));
    });
}

#[test]
fn s06_a_prepared_release_that_nobody_commits_ends_by_itself() {
    runtime::run(async {
        let world = plain().await;
        world.decode.prepare_release(DRAIN, Duration::from_millis(20)).await.unwrap();
        until(&world.decode, |state| matches!(state, State::Registered(_))).await;
        let late = world.decode.commit_release().await;
        assert!(matches!(late, Err(RegistrationError::State(_))), "{late:?}");
        world.hold("p-1", "t-1", 3, 2).await;
        world.decode.load(vec![load("d-1", "t-1", 8, 2)]).await;
        let events = next(&world.decode).await;
        assert!(matches!(&events[..], [Event::LoadEnded { end: LoadEnd::Loaded, .. }]));
    });
}

#[test]
fn s06_a_cancel_during_the_drain_leaves_what_is_held_usable() {
    runtime::run(async {
        let world = plain().await;
        world.hold("p-1", "t-1", 3, 2).await;
        let cancel = async {
            until(&world.prefill, |state| matches!(state, State::Draining { .. })).await;
            world.prefill.cancel_release().await;
        };
        let (prepared, ()) = join(world.prefill.prepare_release(LONG, 2 * LONG), cancel).await;
        assert!(matches!(prepared, Err(RegistrationError::Cancelled)), "{prepared:?}");
        assert!(matches!(state(&world.prefill).await, State::Registered(_)));
        let list = vec![BlockList::run(5, 1)];
        world.prefill.hold("p-2".into(), "t-2".into(), list, None).await.unwrap();
        for (request, transfer, blocks) in [("d-1", "t-1", 2), ("d-2", "t-2", 1)] {
            world.decode.load(vec![load(request, transfer, 8, blocks)]).await;
            let events = next(&world.decode).await;
            assert!(matches!(&events[..], [Event::LoadEnded { end: LoadEnd::Loaded, .. }]));
        }
    });
}

#[test]
fn s06_a_rank_in_use_cannot_be_prepared_and_says_why() {
    runtime::run(async {
        let world = plain().await;
        world.hold("p-1", "t-1", 3, 2).await;
        let failed = world.prefill.prepare_release(DRAIN, LONG).await;
        let Err(RegistrationError::InUse { users, .. }) = failed else { panic!("{failed:?}") };
        assert!(users.iter().any(|it| it.contains("p-1")), "{users:?}");
        assert!(matches!(state(&world.prefill).await, State::Registered(_)));
    });
}
