//! Orders of the lifecycle, as the scheduler carries them out.

use kvbaton_core::ids::{RequestId, TransferId};
use kvbaton_core::lifecycle::engine::{EngineOrder, Which};
use kvbaton_model_engine::*;
use std::sync::Arc;

fn scheduler(blocks: u32) -> Scheduler {
    let shape =
        Dense { layers: 1, kv_heads: 1, head_bytes: 2, block_size: 4, kernel_blocks_per_block: 1 };
    Scheduler::new(SchedulerConfig {
        shape: Arc::new(shape.shape()),
        blocks,
        weights: Weights { model: 7, version: 1 },
        role: Role::Both,
        on_load_failure: OnLoadFailure::Fail,
    })
}

fn id(name: &str) -> RequestId {
    RequestId::from(name)
}

fn request(name: &str, prompt: usize, max_tokens: usize, transfer: Transfer) -> Request {
    Request { id: id(name), prompt: (0..prompt as u32).collect(), max_tokens, transfer }
}

fn send(name: &str) -> Transfer {
    Transfer::Send(TransferId::from(name))
}

/// The waiting actions, in words.
fn words(scheduler: &mut Scheduler) -> Vec<String> {
    let word = |action| match action {
        Action::Compute(step) => format!("compute {} {}..{}", step.request, step.from, step.to),
        Action::Release { request, .. } => format!("release {request}"),
        Action::Answer { request, outcome } => format!("answer {request} {outcome:?}"),
        other => format!("{other:?}"),
    };
    std::iter::from_fn(|| scheduler.next_action()).map(word).collect()
}

#[test]
fn r01_while_it_finishes_started_requests_go_on_and_new_ones_wait() {
    let mut d = scheduler(9);
    d.add_request(request("old", 4, 2, Transfer::None)).unwrap();
    assert_eq!(d.order(&EngineOrder::Finish), Progress::Waits(Until::Finished));
    d.add_request(request("new", 4, 1, Transfer::None)).unwrap();
    assert!(!d.is(Until::Finished));
    assert!(d.in_use()[0].contains("old computes"), "{:?}", d.in_use());
    d.computed(&id("old"), Digest(4));
    d.computed(&id("old"), Digest(4));
    assert!(d.is(Until::Finished) && d.is(Until::BlocksBack));
    let before = words(&mut d);
    assert!(!before.iter().any(|it| it.contains("compute new")), "{before:?}");
    assert_eq!(d.order(&EngineOrder::Run), Progress::Done);
    assert_eq!(words(&mut d), ["compute new 4..4"], "a prefix hit");
}

#[test]
fn r02_r06_blocks_come_back_before_the_cache_is_reset() {
    let mut p = scheduler(9);
    p.add_request(request("held", 4, 1, send("t"))).unwrap();
    p.computed(&id("held"), Digest(4));
    p.add_request(request("runs", 4, 2, Transfer::None)).unwrap();
    assert_eq!(p.order(&EngineOrder::Freeze), Progress::Waits(Until::Frozen));
    assert!(!p.is(Until::Frozen));
    p.computed(&id("runs"), Digest(4));
    assert!(p.is(Until::Frozen));
    let Progress::Failed(why) = p.order(&EngineOrder::ResetCache) else { panic!("it has blocks") };
    assert!(why.contains("held is held for its decode") && why.contains("runs stands still"));
    assert_eq!(p.order(&EngineOrder::Preempt), Progress::Done);
    assert!(!p.is(Until::BlocksBack), "what is held comes back by itself");
    p.send_finished(&id("held"));
    assert!(p.is(Until::BlocksBack));
    assert_eq!(p.order(&EngineOrder::ResetCache), Progress::Done);
    assert_eq!(p.counts().cached, 0);
}

#[test]
fn r01_an_abort_ends_every_request_that_is_not_answered_yet() {
    let mut p = scheduler(3);
    p.add_request(request("held", 4, 1, send("t"))).unwrap();
    p.computed(&id("held"), Digest(4));
    p.add_request(request("runs", 4, 1, Transfer::None)).unwrap();
    p.add_request(request("queued", 4, 1, Transfer::None)).unwrap();
    words(&mut p);
    p.order(&EngineOrder::Freeze);
    assert_eq!(p.order(&EngineOrder::Abort(Which::All)), Progress::Done);
    let ended = words(&mut p);
    assert!(ended.contains(&"answer queued Aborted".into()), "{ended:?}");
    assert!(ended.contains(&"answer runs Aborted".into()), "{ended:?}");
    assert!(!ended.iter().any(|it| it.contains("held")), "{ended:?}");
    assert_eq!(p.order(&EngineOrder::Abort(Which::These(vec![id("held")]))), Progress::Done);
    assert_eq!(words(&mut p), ["release held"]);
}
