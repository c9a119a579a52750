//! Loads through both nodes' actors.

use crate::world::{load, next, plain, prefill_config, start, within_bound};
use kvbaton_actors::events::Event;
use kvbaton_actors::node::{NodeConfig, Role};
use kvbaton_actors::runtime;
use kvbaton_core::receiver::{LoadEnd, LoadFailureReason};
use kvbaton_core::sender::Ended;
use kvbaton_core::wire::FailureReason;
use metrics_exporter_prometheus::PrometheusBuilder;

fn loaded(events: &[Event], request: &str) -> bool {
    matches!(events, [Event::LoadEnded { request: it, end: LoadEnd::Loaded, .. }] if it.as_str() == request)
}

#[test]
fn p05_a_pull_waits_for_its_prefill_and_a_prefill_for_its_pull() {
    runtime::run(async {
        let world = plain().await;
        let asked = world.decode.load(vec![load("d-1", "t-1", 8, 2)]).await;
        assert!(asked[0].is_ok());
        world.hold("p-1", "t-1", 3, 2).await;
        assert!(loaded(&next(&world.decode).await, "d-1"));
        assert!(world.moved(3, 8, 2));
        let given_back = next(&world.prefill).await;
        assert!(matches!(&given_back[..], [Event::SendEnded { ended: Ended::Sent, .. }]));

        world.hold("p-2", "t-2", 5, 1).await;
        world.decode.load(vec![load("d-2", "t-2", 1, 1)]).await;
        assert!(loaded(&next(&world.decode).await, "d-2"));
        assert!(world.moved(5, 1, 1));
    });
}

#[test]
fn l04_the_layout_goes_along_once_and_block_ids_alone_afterwards() {
    runtime::run(async {
        let world = plain().await;
        for round in 0..3 {
            let transfer = format!("t-{round}");
            world.hold(&format!("p-{round}"), &transfer, 2, 1).await;
            world.decode.load(vec![load(&format!("d-{round}"), &transfer, 4, 1)]).await;
            assert!(loaded(&next(&world.decode).await, &format!("d-{round}")));
        }
        assert_eq!(world.layouts_sent(), [true, false, false]);
    });
}

#[test]
fn p02_f24_an_abort_is_answered_at_once_also_to_who_comes_late() {
    runtime::run(async {
        let world = plain().await;
        world.decode.load(vec![load("d-1", "t-1", 8, 2)]).await;
        world.prefill.prefill_started("p-1".into(), "t-1".into()).await.unwrap();
        world.prefill.abort("t-1".into()).await;
        let aborted = LoadFailureReason::Prefill(FailureReason::Aborted);
        for request in ["d-1", "d-2"] {
            let events = next(&world.decode).await;
            assert!(
                matches!(&events[..], [Event::LoadEnded { end: LoadEnd::Failed(why), .. }]
                    if why.reason == aborted),
                "{request}: {events:?}"
            );
            if request == "d-1" {
                world.decode.load(vec![load("d-2", "t-1", 8, 2)]).await;
            }
        }
        assert_eq!(world.network.memory.lock().unwrap().revoked, 2, "grants end with loads");
    });
}

#[test]
fn g02_a_dropped_load_gives_its_blocks_back_while_its_write_is_stuck() {
    runtime::run(async {
        let world = plain().await;
        world.network.memory.lock().unwrap().stall = true;
        world.hold("p-1", "t-1", 3, 2).await;
        world.decode.load(vec![load("d-1", "t-1", 8, 2)]).await;
        let stalled = || !world.network.memory.lock().unwrap().stalled.is_empty();
        within_bound(&world.network, "a write to start", stalled).await;
        world.decode.drop_loads(vec!["d-1".into()]).await;
        let events = next(&world.decode).await;
        assert!(matches!(&events[..], [Event::LoadEnded { end: LoadEnd::Dropped, .. }]));
        let before = world.network.memory.lock().unwrap().bytes.clone();
        world.network.go_on();
        let events = next(&world.prefill).await;
        assert!(matches!(&events[..], [Event::SendEnded { ended: Ended::Failed(_), .. }]));
        assert_eq!(world.network.memory.lock().unwrap().bytes, before, "a late write landed");
    });
}

#[test]
fn p10_a_full_prefix_hit_completes_on_d_and_releases_on_p() {
    runtime::run(async {
        let world = plain().await;
        world.hold("p-1", "t-1", 3, 2).await;
        world.decode.load(vec![load("d-1", "t-1", 0, 0)]).await;
        assert!(loaded(&next(&world.decode).await, "d-1"));
        assert_eq!(next(&world.prefill).await.len(), 1);

        world.hold("p-2", "t-2", 3, 2).await;
        world.decode.release_remote(vec![load("d-2", "t-2", 0, 0)]).await;
        assert_eq!(next(&world.prefill).await.len(), 1);
        assert_eq!(world.decode.poll(), [], "a release reports nothing on D");
    });
}

#[test]
fn f15_held_blocks_come_back_without_any_traffic() {
    runtime::run(async {
        let mut config = prefill_config();
        config.sender.hold_timeout = std::time::Duration::from_millis(20);
        let world = start(config, NodeConfig::new("decode-1".into(), Role::Decode)).await;
        world.hold("p-1", "t-1", 3, 2).await;
        let expired = Ended::Failed(FailureReason::Expired);
        let events = next(&world.prefill).await;
        assert!(matches!(&events[..], [Event::SendEnded { ended, .. }] if *ended == expired));
    });
}

#[test]
fn f82_every_end_is_counted_once() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _recording = metrics::set_default_local_recorder(&recorder);
    runtime::run(async {
        let world = plain().await;
        world.hold("p-1", "t-1", 3, 2).await;
        world.decode.load(vec![load("d-1", "t-1", 8, 2)]).await;
        assert!(loaded(&next(&world.decode).await, "d-1"));
        next(&world.prefill).await;
        world.decode.load(vec![load("d-2", "t-1", 8, 2)]).await;
        next(&world.decode).await;
    });
    let text = metrics.render();
    for line in [
        "kvbaton_sends_total{outcome=\"sent\"} 1",
        "kvbaton_loads_total{outcome=\"loaded\"} 1",
        "kvbaton_loads_total{outcome=\"already_used\"} 1",
        "kvbaton_pull_requests_total{outcome=\"sent\"} 1",
        "kvbaton_pull_requests_total{outcome=\"already_used\"} 1",
        "kvbaton_bytes_written_total 128",
        "kvbaton_layouts_total{layout=\"sent\"} 1",
        "kvbaton_layouts_total{layout=\"omitted\"} 1",
    ] {
        assert!(text.lines().any(|it| it == line), "no `{line}` in\n{text}");
    }
}

#[test]
fn z01_a_pull_keeps_no_connection_after_its_last_answer() {
    runtime::run(async {
        let world = plain().await;
        world.decode.load(vec![load("d-1", "t-1", 8, 2)]).await;
        world.hold("p-1", "t-1", 3, 2).await;
        assert!(loaded(&next(&world.decode).await, "d-1"));
        assert_eq!(world.layouts_sent(), [true], "one pull was sent");
        let closed = || world.network.open_requests() == 0;
        within_bound(&world.network, "the connection to close", closed).await;
    });
}

#[test]
fn g01_a_request_that_loads_again_has_another_grant() {
    runtime::run(async {
        let world = plain().await;
        for transfer in ["t-1", "t-2"] {
            world.hold("p-1", transfer, 3, 2).await;
            world.decode.load(vec![load("d-1", transfer, 8, 2)]).await;
            assert!(loaded(&next(&world.decode).await, "d-1"));
        }
        let pulls = world.pulls();
        let grants: Vec<_> = pulls.iter().filter_map(|pull| pull.requests[0].grant).collect();
        assert!(matches!(grants[..], [first, second] if first != second), "{grants:?}");
    });
}
