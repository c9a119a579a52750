//! Registering, unregistering, restoring.

use crate::transport::Network;
use crate::world::{DECODE_AT, load, memory, next, plain, prefill_config, start, within_bound};
use kvbaton_actors::events::Event;
use kvbaton_actors::lifecycle_manager::RegistrationError;
use kvbaton_actors::node::{NodeConfig, NodeError, NodeHandle, Role, start_actors};
use kvbaton_actors::runtime;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::lifecycle::{Names, State};
use kvbaton_core::receiver::{LoadEnd, LoadError};
use std::time::Duration;

const DRAIN: Duration = Duration::from_millis(50);

async fn names(node: &NodeHandle) -> Names {
    match node.status().await.unwrap().registration {
        State::Registered(names) => names,
        other => panic!("it is registered, not {other:?}"),
    }
}

#[test]
fn s01_unregistering_names_what_uses_memory_and_leaves_the_node_usable() {
    runtime::run(async {
        let world = plain().await;
        world.hold("p-1", "t-1", 3, 2).await;
        let Err(RegistrationError::InUse { users, .. }) = world.prefill.unregister(DRAIN).await
        else {
            panic!("a held request keeps memory registered");
        };
        assert!(users.iter().any(|it| it.contains("p-1") && it.contains("t-1")), "{users:?}");
        world.decode.load(vec![load("d-1", "t-1", 8, 2)]).await;
        let events = next(&world.decode).await;
        assert!(matches!(&events[..], [Event::LoadEnded { end: LoadEnd::Loaded, .. }]));
        assert_eq!(next(&world.prefill).await.len(), 1);
        world.prefill.unregister(DRAIN).await.unwrap();
        assert_eq!(world.prefill.status().await.unwrap().registration, State::Unregistered);
    });
}

#[test]
fn s02_restoring_mints_new_names_and_both_are_idempotent() {
    runtime::run(async {
        let world = plain().await;
        let first = names(&world.decode).await;
        for _ in 0..2 {
            world.decode.unregister(DRAIN).await.unwrap();
        }
        let refused = world.decode.load(vec![load("d-1", "t-1", 8, 2)]).await.remove(0);
        assert!(matches!(refused, Err(LoadError::NotRegistered { .. })));
        for _ in 0..2 {
            // SAFETY: the transport's memory is a map; no address is touched.
            unsafe { world.decode.restore() }.await.unwrap();
        }
        let second = names(&world.decode).await;
        assert_ne!(first.generation, second.generation);
        assert_ne!(first.layout_id, second.layout_id);
        // SAFETY: as above.
        let again = unsafe { world.decode.register(memory(DECODE_AT)) }.await;
        assert!(matches!(again, Err(RegistrationError::State(_))));
    });
}

#[test]
fn l09_a_new_registration_sends_its_layout_again() {
    runtime::run(async {
        let world = plain().await;
        for round in 0..4 {
            let transfer = format!("t-{round}");
            world.hold(&format!("p-{round}"), &transfer, 2, 1).await;
            world.decode.load(vec![load(&format!("d-{round}"), &transfer, 4, 1)]).await;
            let events = next(&world.decode).await;
            assert!(matches!(&events[..], [Event::LoadEnded { end: LoadEnd::Loaded, .. }]));
            if round == 1 {
                world.decode.unregister(DRAIN).await.unwrap();
                // SAFETY: the transport's memory is a map; no address is touched.
                unsafe { world.decode.restore() }.await.unwrap();
            }
        }
        assert_eq!(world.layouts_sent(), [true, false, true, false]);
    });
}

#[test]
fn s01_an_unregister_that_fails_leaves_the_node_usable() {
    runtime::run(async {
        let world = plain().await;
        world.network.memory.lock().unwrap().stuck = true;
        let failed = world.decode.unregister(DRAIN).await;
        assert!(matches!(failed, Err(RegistrationError::Transport(_))), "{failed:?}");
        world.hold("p-1", "t-1", 3, 2).await;
        world.decode.load(vec![load("d-1", "t-1", 8, 2)]).await;
        let events = next(&world.decode).await;
        assert!(matches!(&events[..], [Event::LoadEnded { end: LoadEnd::Loaded, .. }]));
        world.network.memory.lock().unwrap().stuck = false;
        world.decode.unregister(DRAIN).await.unwrap();
    });
}

#[test]
fn s01_a_drain_that_fails_for_a_load_leaves_the_prefill_side_usable() {
    runtime::run(async {
        let both = NodeConfig::new("decode-1".into(), Role::Both);
        let world = start(prefill_config(), both).await;
        world.network.memory.lock().unwrap().stall = true;
        world.hold("p-1", "t-1", 3, 2).await;
        world.decode.load(vec![load("d-1", "t-1", 8, 2)]).await;
        let stalled = || !world.network.memory.lock().unwrap().stalled.is_empty();
        within_bound(&world.network, "a write", stalled).await;
        let in_use = world.decode.unregister(DRAIN).await;
        assert!(matches!(in_use, Err(RegistrationError::InUse { .. })));
        let list = vec![BlockList::run(1, 1)];
        world.decode.hold("p-2".into(), "t-2".into(), list, None).await.unwrap();
        world.network.go_on();
        assert_eq!(next(&world.decode).await.len(), 1);
    });
}

#[test]
fn s01_a_drain_that_fails_says_who_uses_memory_for_what_and_for_how_long() {
    runtime::run(async {
        let world = plain().await;
        world.hold("p-1", "t-1", 1, 1).await;
        world.network.memory.lock().unwrap().stall = true;
        world.hold("p-2", "t-2", 3, 2).await;
        world.decode.load(vec![load("d-2", "t-2", 8, 2)]).await;
        let stalled = || !world.network.memory.lock().unwrap().stalled.is_empty();
        within_bound(&world.network, "a write", stalled).await;
        let users = |failed| match failed {
            Err(RegistrationError::InUse { users, .. }) => users,
            other => panic!("memory is in use: {other:?}"),
        };
        let (d, p) = (world.decode.session(), world.prefill.address().unwrap());
        let of_p = users(world.prefill.unregister(DRAIN).await);
        let of_d = users(world.decode.unregister(DRAIN).await);
        let must = [
            "request p-1 (transfer t-1) waits for D, for ".to_owned(),
            format!("request p-2 (transfer t-2) is being written to {d}, for "),
            format!("request d-2 loads transfer t-2 from engine prefill-1 ({p}), for "),
        ];
        let all: Vec<String> = of_p.into_iter().chain(of_d).collect();
        assert_eq!(all.len(), must.len(), "{all:?}");
        for (is, must) in all.iter().zip(&must) {
            let took = is.strip_prefix(must).and_then(|rest| rest.strip_suffix(" s so far"));
            assert!(took.is_some_and(|it| it.parse::<f64>().is_ok()), "{is}, must be {must}…");
        }
        world.network.go_on();
    });
}

#[test]
fn s03_memory_that_cannot_be_registered_again_is_not_unregistered() {
    runtime::run(async {
        let world = plain().await;
        world.network.memory.lock().unwrap().once = true;
        let refused = world.decode.unregister(DRAIN).await;
        assert!(matches!(refused, Err(RegistrationError::CannotReregister)), "{refused:?}");
        names(&world.decode).await;
    });
}

#[test]
fn s03_a_transport_that_cannot_register_again_is_refused_at_start() {
    runtime::run(async {
        let network = Network::default();
        network.memory.lock().unwrap().once = true;
        let mut config = prefill_config();
        assert!(start_actors(config.clone(), network.factory()).await.is_ok(), "without sleep");
        config.sleep = true;
        let Err(error) = start_actors(config, network.factory()).await else {
            panic!("it is refused before anything is loaded");
        };
        assert!(matches!(error, NodeError::CannotSleep(_)), "{error}");
        assert!(error.to_string().contains("start without sleep"), "{error}");
    });
}
