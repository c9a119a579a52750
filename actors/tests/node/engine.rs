//! An engine's lifecycle over the nodes of its ranks.

use crate::world::{World, load, next, plain};
use futures_util::future::{BoxFuture, join};
use kvbaton_actors::engine::{EngineConfig, EngineError, EngineHandle, EnginePort, RankPort, Told};
use kvbaton_actors::events::Event;
use kvbaton_actors::node::NodeHandle;
use kvbaton_actors::runtime;
use kvbaton_actors::transport::Capabilities;
use kvbaton_core::ids::WeightVersion;
use kvbaton_core::lifecycle::State;
use kvbaton_core::lifecycle::engine::{
    Bounds, EngineOrder, OperationError, Part, Parts, PauseMode, RankOrder, SleepLevel, Who,
};
use kvbaton_core::receiver::{LoadEnd, LoadFailureReason};
use kvbaton_core::sender::Ended;
use kvbaton_core::wire::FailureReason;
use metrics_exporter_prometheus::PrometheusBuilder;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An engine that does what it is told at once, but for one order that it never ends.
#[derive(Default)]
struct MadeUp {
    told: Mutex<Vec<EngineOrder>>,
    never: Option<EngineOrder>,
}

impl EnginePort for MadeUp {
    fn order(&self, order: EngineOrder) -> Told {
        let never = self.never.as_ref() == Some(&order);
        self.told.lock().unwrap().push(order);
        if never { Box::pin(std::future::pending()) } else { Box::pin(async { Ok(()) }) }
    }

    fn in_use(&self) -> BoxFuture<'static, Vec<String>> {
        Box::pin(async { vec!["request r computes".into()] })
    }
}

/// A rank that cannot do one order.
struct Faulty(NodeHandle, RankOrder);

impl RankPort for Faulty {
    fn order(&self, order: RankOrder, bounds: &Bounds) -> Told {
        if order == self.1 {
            return Box::pin(async { Err("it is broken".into()) });
        }
        self.0.order(order, bounds)
    }

    fn in_use(&self) -> BoxFuture<'static, Vec<String>> {
        RankPort::in_use(&self.0)
    }

    fn cannot_sleep(&self) -> Option<String> {
        RankPort::cannot_sleep(&self.0)
    }
}

fn start(port: MadeUp, bounds: Bounds, ranks: Vec<Arc<dyn RankPort>>) -> EngineHandle {
    let config = EngineConfig { bounds, ..EngineConfig::default() };
    EngineHandle::start(config, Arc::new(port), ranks).unwrap()
}

fn ranks(world: &World) -> Vec<Arc<dyn RankPort>> {
    vec![Arc::new(world.prefill.clone()), Arc::new(world.decode.clone())]
}

async fn state(node: &NodeHandle) -> State {
    node.status().await.unwrap().registration
}

async fn loads(world: &World, number: u32) -> bool {
    let (request, transfer) = (format!("d-{number}"), format!("t-{number}"));
    world.decode.load(vec![load(&request, &transfer, 8, 2)]).await;
    let events = next(&world.decode).await;
    next(&world.prefill).await;
    matches!(&events[..], [Event::LoadEnded { end: LoadEnd::Loaded, .. }])
}

#[test]
fn s03_a_transport_of_parts_sleeps_only_if_every_part_can() {
    let can = Capabilities { reregister: true, per_write_grants: true };
    let cannot = Capabilities { reregister: false, per_write_grants: true };
    let unchecked = Capabilities { reregister: true, per_write_grants: false };
    assert_eq!(Capabilities::of_all([]), None);
    assert_eq!(Capabilities::of_all([can, can]), Some(can));
    assert_eq!(Capabilities::of_all([can, unchecked]), Some(unchecked));
    for parts in [[can, cannot], [cannot, can]] {
        let whole = Capabilities::of_all(parts).unwrap();
        assert!(whole.cannot_sleep().unwrap().contains("register memory again"));
    }
    assert_eq!((can.cannot_sleep(), unchecked.cannot_sleep()), (None, None));
}

#[test]
fn s03_a_lifecycle_with_sleep_is_refused_where_a_rank_cannot() {
    runtime::run(async {
        let world = plain().await;
        world.network.memory.lock().unwrap().once = true;
        let port = || Arc::new(MadeUp::default());
        let started = EngineHandle::start(EngineConfig::default(), port(), ranks(&world));
        let Err(error @ EngineError::CannotSleep { rank: 0, .. }) = started else {
            panic!("it was started");
        };
        assert!(error.to_string().contains("start without sleep"), "{error}");
        let config = EngineConfig { sleep: false, ..EngineConfig::default() };
        let engine = EngineHandle::start(config, port(), ranks(&world)).unwrap();
        let refused = engine.sleep(SleepLevel::Offload, PauseMode::Keep).await;
        assert!(matches!(refused, Err(OperationError::NotPossible { .. })), "{refused:?}");
        let refused = engine.release_kv(PauseMode::Keep).await;
        assert!(matches!(refused, Err(OperationError::NotPossible { .. })), "{refused:?}");
        engine.sleep(SleepLevel::Compute, PauseMode::Keep).await.unwrap();
    });
}

#[test]
fn s06_a_lifecycle_whose_bounds_make_no_sense_is_refused() {
    runtime::run(async {
        let bounds = Bounds { lease: Duration::from_secs(1), ..Bounds::default() };
        let config = EngineConfig { bounds, ..EngineConfig::default() };
        let started = EngineHandle::start(config, Arc::new(MadeUp::default()), Vec::new());
        assert!(matches!(started, Err(EngineError::Config(why)) if why.contains("lease")));
    });
}

#[test]
fn s05_s06_an_engine_sleeps_and_wakes_in_order_on_every_rank() {
    runtime::run(async {
        let world = plain().await;
        let port = Arc::new(MadeUp::default());
        let engine =
            EngineHandle::start(EngineConfig::default(), port.clone(), ranks(&world)).unwrap();
        world.hold("p-1", "t-1", 3, 2).await;
        engine.sleep(SleepLevel::Offload, PauseMode::Keep).await.unwrap();
        let reset = Ended::Failed(FailureReason::Reset);
        let events = next(&world.prefill).await;
        assert!(matches!(&events[..], [Event::SendEnded { ended, .. }] if *ended == reset));
        for node in [&world.prefill, &world.decode] {
            assert_eq!(state(node).await, State::Unregistered);
        }
        let status = engine.status().await.unwrap();
        assert_eq!((status.standing.name(), status.doing), ("asleep_1", None));
        engine.wake(Parts::KV).await.unwrap();
        for node in [&world.prefill, &world.decode] {
            assert!(matches!(state(node).await, State::Registered(_)));
        }
        engine.wake(Parts::WEIGHTS).await.unwrap();
        assert_eq!(engine.status().await.unwrap().standing.name(), "running");
        world.hold("p-2", "t-2", 3, 2).await;
        assert!(loads(&world, 2).await);
        let told = port.told.lock().unwrap().clone();
        let at = |order: &EngineOrder| told.iter().position(|it| it == order).unwrap();
        let unmap = |part, keep| EngineOrder::Unmap { part, keep };
        let order = [
            at(&EngineOrder::Freeze),
            at(&EngineOrder::AwaitBlocks),
            at(&EngineOrder::ResetCache),
            at(&unmap(Part::Kv, false)),
            at(&unmap(Part::Weights, true)),
            at(&EngineOrder::Map(Part::Kv)),
            at(&EngineOrder::Map(Part::Weights)),
            at(&EngineOrder::Run),
        ];
        assert!(order.is_sorted(), "{told:?}");
    });
}

#[test]
fn s06_one_rank_that_fails_leaves_every_rank_as_it_was() {
    runtime::run(async {
        for broken in [RankOrder::Prepare, RankOrder::Commit] {
            let world = plain().await;
            let faulty = Arc::new(Faulty(world.decode.clone(), broken));
            let ranks: Vec<Arc<dyn RankPort>> = vec![Arc::new(world.prefill.clone()), faulty];
            let engine = start(MadeUp::default(), Bounds::default(), ranks);
            let failed = engine.sleep(SleepLevel::Offload, PauseMode::Keep).await;
            let Err(OperationError::Failed { who: Who::Rank(1), why, .. }) = failed else {
                panic!("{failed:?}");
            };
            assert_eq!(why, "it is broken");
            assert_eq!(engine.status().await.unwrap().standing.name(), "running");
            for node in [&world.prefill, &world.decode] {
                assert!(matches!(state(node).await, State::Registered(_)), "{broken:?}");
            }
            world.hold("p-1", "t-1", 3, 2).await;
            assert!(loads(&world, 1).await, "{broken:?}");
        }
    });
}

/// Asks again and again: each answer lets the engine go on in between.
async fn until_it_lets_holds_be_pulled(engine: &EngineHandle) {
    while engine.status().await.unwrap().doing.is_none_or(|it| !it.1.contains("held")) {}
}

#[test]
fn r03_r05_a_resume_during_the_drain_ends_the_pause_and_what_is_held_is_still_pulled() {
    runtime::run(async {
        let world = plain().await;
        let engine = start(MadeUp::default(), Bounds::default(), ranks(&world));
        world.hold("p-1", "t-1", 3, 2).await;
        let resume = async {
            until_it_lets_holds_be_pulled(&engine).await;
            engine.resume().await
        };
        let (paused, resumed) = join(engine.pause(PauseMode::Wait, true), resume).await;
        assert!(matches!(paused, Err(OperationError::Resumed { .. })), "{paused:?}");
        resumed.unwrap();
        assert!(loads(&world, 1).await);
    });
}

#[test]
fn r03_what_is_pulled_within_the_drain_is_not_cut_short() {
    runtime::run(async {
        let world = plain().await;
        let ranks: Vec<Arc<dyn RankPort>> = vec![Arc::new(world.prefill.clone())];
        let engine = start(MadeUp::default(), Bounds::default(), ranks);
        world.hold("p-1", "t-1", 3, 2).await;
        let pull = async {
            until_it_lets_holds_be_pulled(&engine).await;
            loads(&world, 1).await
        };
        let (paused, pulled) = join(engine.pause(PauseMode::Wait, true), pull).await;
        paused.unwrap();
        assert!(pulled);
    });
}

#[test]
fn r03_aborting_transfers_gives_holds_back_and_cuts_loads_short() {
    runtime::run(async {
        let world = plain().await;
        let of = |node: &NodeHandle| -> Vec<Arc<dyn RankPort>> { vec![Arc::new(node.clone())] };
        let p = start(MadeUp::default(), Bounds::default(), of(&world.prefill));
        let d = start(MadeUp::default(), Bounds::default(), of(&world.decode));
        world.hold("p-1", "t-1", 3, 2).await;
        p.abort_transfers().await.unwrap();
        let ended = Ended::Failed(FailureReason::Reset);
        let sent = next(&world.prefill).await;
        assert!(matches!(&sent[..], [Event::SendEnded { ended: it, .. }] if *it == ended));
        world.decode.load(vec![load("d-2", "t-2", 8, 2)]).await;
        d.abort_transfers().await.unwrap();
        let loaded = next(&world.decode).await;
        let [Event::LoadEnded { end: LoadEnd::Failed(why), .. }] = &loaded[..] else {
            panic!("{loaded:?}");
        };
        assert_eq!((why.reason, why.reason.is_reset()), (LoadFailureReason::Reset, true));
    });
}

#[test]
fn r07_kv_of_other_weights_is_not_loaded_also_before_the_first_update_of_p() {
    runtime::run(async {
        let world = plain().await;
        let engine = |node: &NodeHandle| {
            let config = EngineConfig { weights: WeightVersion(1), ..EngineConfig::default() };
            let ranks: Vec<Arc<dyn RankPort>> = vec![Arc::new(node.clone())];
            EngineHandle::start(config, Arc::new(MadeUp::default()), ranks).unwrap()
        };
        let (p, d) = (engine(&world.prefill), engine(&world.decode));
        // What P was told at the start comes first: the manager is asked after that.
        p.pause(PauseMode::Keep, false).await.unwrap();
        p.abort_transfers().await.unwrap();
        world.hold("p-1", "t-1", 3, 2).await;
        d.update_weights(WeightVersion(2), PauseMode::Keep).await.unwrap();
        assert_eq!(d.status().await.unwrap().standing.version, WeightVersion(2));
        world.decode.load(vec![load("d-1", "t-1", 8, 2)]).await;
        let loaded = next(&world.decode).await;
        let [Event::LoadEnded { end: LoadEnd::Failed(why), .. }] = &loaded[..] else {
            panic!("KV of old weights was served: {loaded:?}");
        };
        assert!(why.reason.is_reset(), "{why:?}");
        next(&world.prefill).await;
        p.update_weights(WeightVersion(2), PauseMode::Keep).await.unwrap();
        world.hold("p-2", "t-2", 3, 2).await;
        assert!(loads(&world, 2).await);
    });
}

#[test]
fn r02_a_timeout_names_the_request_its_peer_and_since_when() {
    runtime::run(async {
        let world = plain().await;
        world.network.memory.lock().unwrap().stall = true;
        let port = MadeUp { never: Some(EngineOrder::Finish), ..MadeUp::default() };
        let bounds = Bounds { finish: Duration::from_millis(20), ..Bounds::default() };
        let engine = start(port, bounds, ranks(&world));
        world.hold("p-1", "t-1", 3, 2).await;
        world.decode.load(vec![load("d-1", "t-1", 8, 2)]).await;
        let failed = engine.pause(PauseMode::Wait, false).await.unwrap_err();
        assert!(matches!(failed, OperationError::TimedOut { .. }), "{failed:?}");
        let words = failed.to_string();
        for part in [
            "pause gave up after 0.0 s",
            "finishing running requests did not end",
            "request r computes",
            "rank 0: request p-1",
            "rank 1: request d-1 loads transfer t-1 from engine prefill-1",
            "for 0.0 s",
            "was taken back",
        ] {
            assert!(words.contains(part), "no `{part}` in {words}");
        }
        world.network.go_on();
        next(&world.decode).await;
    });
}

#[test]
fn f82_states_and_operations_are_metrics() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _recording = metrics::set_default_local_recorder(&recorder);
    runtime::run(async {
        let world = plain().await;
        let engine = start(MadeUp::default(), Bounds::default(), ranks(&world));
        engine.sleep(SleepLevel::Offload, PauseMode::Keep).await.unwrap();
        assert!(engine.resume().await.is_err());
        engine.wake(Parts::ALL).await.unwrap();
        engine.pause(PauseMode::Abort, false).await.unwrap();
    });
    let text = metrics.render();
    for line in [
        "kvbaton_engine_state{state=\"paused_abort\"} 1",
        "kvbaton_engine_state{state=\"running\"} 0",
        "kvbaton_engine_state{state=\"asleep_1\"} 0",
        "kvbaton_engine_state_seconds_count{state=\"asleep_1\"} 1",
        "kvbaton_engine_operation_seconds_count{operation=\"sleep\",outcome=\"done\"} 1",
        "kvbaton_engine_operation_seconds_count{operation=\"resume\",outcome=\"not_possible\"} 1",
    ] {
        assert!(text.lines().any(|it| it == line), "no `{line}` in\n{text}");
    }
}
