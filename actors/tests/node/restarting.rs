//! A prefill that goes away, or comes back as another process.

use crate::transport::Network;
use crate::world::{
    PREFILL_AT, World, load, memory, next, plain, prefill_config, start, within_bound,
};
use kvbaton_actors::events::Event;
use kvbaton_actors::node::{NodeConfig, Role, start_actors};
use kvbaton_actors::runtime;
use kvbaton_core::receiver::{LoadEnd, LoadFailureReason};
use kvbaton_core::wire::FailureReason;
use std::time::Duration;

async fn restart(network: &Network, config: NodeConfig) -> kvbaton_actors::node::NodeHandle {
    let prefill = start_actors(config, network.factory()).await.unwrap();
    // SAFETY: the transport's memory is a map; no address is touched.
    unsafe { prefill.register(memory(PREFILL_AT)) }.await.unwrap();
    prefill
}

async fn failure(world: &World) -> LoadFailureReason {
    let events = next(&world.decode).await;
    match &events[..] {
        [Event::LoadEnded { end: LoadEnd::Failed(why), .. }] => why.reason,
        other => panic!("expected one failed load, got {other:?}"),
    }
}

async fn warm_up(world: &World) {
    world.hold("p-0", "t-0", 2, 1).await;
    world.decode.load(vec![load("d-0", "t-0", 4, 1)]).await;
    let events = next(&world.decode).await;
    assert!(matches!(&events[..], [Event::LoadEnded { end: LoadEnd::Loaded, .. }]));
}

#[test]
fn p12_a_dead_prefill_fails_a_load_at_once() {
    runtime::run(async {
        let world = plain().await;
        warm_up(&world).await;
        world.network.cut(world.prefill.address().unwrap());
        world.decode.load(vec![load("d-1", "t-1", 8, 2)]).await;
        assert_eq!(failure(&world).await, LoadFailureReason::Unreachable);
    });
}

#[test]
fn p12_a_restarted_prefill_answers_the_old_engine_id_at_once() {
    runtime::run(async {
        let world = plain().await;
        warm_up(&world).await;
        let old = world.prefill.address().unwrap();
        let mut config = prefill_config();
        config.engine_id = "prefill-2".into();
        let new = restart(&world.network, config).await;
        world.network.redirect(old, new.address().unwrap());
        // D still takes the old engine for the one at that address.
        world.decode.load(vec![load("d-1", "t-1", 8, 2)]).await;
        let unknown = LoadFailureReason::Prefill(FailureReason::UnknownIncarnation);
        assert_eq!(failure(&world).await, unknown);
        // It has forgotten it, asks, and is told that the engine is gone.
        world.decode.load(vec![load("d-2", "t-2", 8, 2)]).await;
        assert_eq!(failure(&world).await, LoadFailureReason::UnknownEngine);
    });
}

#[test]
fn p12_a_prefill_announces_itself_to_a_bootstrap_server_that_restarted() {
    runtime::run(async {
        let mut config = prefill_config();
        config.announce_every = Duration::from_millis(1);
        let world = start(config, NodeConfig::new("decode-1".into(), Role::Decode)).await;
        world.network.restart_bootstrap();
        within_bound(&world.network, "an announcement", || world.network.lists_an_engine()).await;
    });
}

#[test]
fn p12_a_prefill_whose_first_announcement_fails_is_announced_later() {
    runtime::run(async {
        let network = Network::default();
        network.refuse_announcements(1);
        let mut config = prefill_config();
        config.announce_every = Duration::from_millis(1);
        let prefill = start_actors(config, network.factory()).await.unwrap();
        // SAFETY: the transport's memory is a map; no address is touched.
        assert!(unsafe { prefill.register(memory(PREFILL_AT)) }.await.is_err());
        within_bound(&network, "an announcement", || network.lists_an_engine()).await;
    });
}
