//! The scheduler alone: blocks come back whatever happens, and nothing waits for ever.

use kvbaton_core::ids::{BlockId, RequestId, TransferId};
use kvbaton_model_engine::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const WEIGHTS: Weights = Weights { model: 7, version: 1 };

fn dense(block_size: u32) -> Arc<Shape> {
    Arc::new(
        Dense { layers: 1, kv_heads: 1, head_bytes: 2, block_size, kernel_blocks_per_block: 1 }
            .shape(),
    )
}

fn hybrid() -> Arc<Shape> {
    let hybrid = Hybrid {
        layers: 3,
        kv_heads: 1,
        head_bytes: 2,
        block_size: 4,
        kernel_blocks_per_block: 2,
        window: 6,
        state_bytes: 2,
        state_block_size: 8,
    };
    Arc::new(hybrid.shape())
}

fn scheduler(
    shape: &Arc<Shape>,
    blocks: u32,
    role: Role,
    on_load_failure: OnLoadFailure,
) -> Scheduler {
    Scheduler::new(SchedulerConfig {
        shape: shape.clone(),
        blocks,
        weights: WEIGHTS,
        role,
        on_load_failure,
    })
}

fn id(name: &str) -> RequestId {
    RequestId::from(name)
}

fn request(name: &str, prompt: usize, max_tokens: usize, transfer: Transfer) -> Request {
    Request { id: id(name), prompt: (0..prompt as u32).collect(), max_tokens, transfer }
}

fn load(name: &str) -> Transfer {
    Transfer::Load(TransferId::from(name))
}

fn send(name: &str) -> Transfer {
    Transfer::Send(TransferId::from(name))
}

fn actions(scheduler: &mut Scheduler) -> Vec<Action> {
    std::iter::from_fn(|| scheduler.next_action()).collect()
}

/// The actions' names, for a look at their order.
fn names(actions: &[Action]) -> Vec<String> {
    let name = |action: &Action| match action {
        Action::Compute(step) => format!("compute {} {}..{}", step.request, step.from, step.to),
        Action::Hold { request, .. } => format!("hold {request}"),
        Action::Release { request, .. } => format!("release {request}"),
        Action::Load { request, first_token, end_token, .. } => {
            format!("load {request} {first_token}..{end_token}")
        }
        Action::DropLoad { request, .. } => format!("drop {request}"),
        Action::ReleaseRemote { request, .. } => format!("release-remote {request}"),
        Action::Free { request, .. } => format!("free {request}"),
        Action::Answer { request, outcome: Outcome::Tokens(tokens) } => {
            format!("answer {request} {}", tokens.len())
        }
        Action::Answer { request, outcome } => format!("answer {request} {outcome:?}"),
    };
    actions.iter().map(name).collect()
}

/// Runs steps until only other actions are left; gives all their names.
fn run(scheduler: &mut Scheduler) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(action) = scheduler.next_action() {
        if let Action::Compute(step) = &action {
            assert!(scheduler.computed(&step.request, Digest(step.to as u64)));
        }
        all.push(action);
    }
    names(&all)
}

#[test]
fn f31_what_decode_needs_is_reserved_before_a_load_starts() {
    let shape = dense(4);
    // A needs 4 blocks and 1 more to decode, B 3 and 1 more; the pool has 7.
    let mut d = scheduler(&shape, 8, Role::Decode, OnLoadFailure::Fail);
    d.add_request(request("a", 16, 2, load("a"))).unwrap();
    d.add_request(request("b", 12, 2, load("b"))).unwrap();
    assert_eq!(run(&mut d), ["load a 0..16"], "B must wait: it could not end beside A");
    assert_eq!(d.counts().held, 5);
    assert!(d.load_finished(&id("a")));
    let log = run(&mut d);
    assert_eq!(log[..2], ["compute a 16..16", "compute a 16..17"]);
    // B hits A's first three blocks: nothing is left to load.
    assert!(
        log.contains(&"release-remote b".into()) && log.contains(&"answer b 2".into()),
        "{log:?}"
    );
    assert_eq!(d.counts().held, 0);
}

#[test]
fn f31_a_request_that_can_never_fit_is_refused() {
    let mut d = scheduler(&dense(4), 8, Role::Both, OnLoadFailure::Fail);
    let error = d.add_request(request("a", 28, 2, Transfer::None)).unwrap_err();
    assert_eq!(error, AddError::TooLarge { id: id("a"), needed: 8, total: 7 });
    d.add_request(request("b", 28, 1, Transfer::None)).unwrap();
    assert_eq!(d.requests(), 1);
}

#[test]
fn p11_an_id_is_in_use_until_its_blocks_are_back() {
    let mut p = scheduler(&dense(4), 8, Role::Prefill, OnLoadFailure::Fail);
    p.add_request(request("a", 5, 1, send("t"))).unwrap();
    assert_eq!(run(&mut p), ["compute a 0..5", "answer a 1", "hold a"]);
    assert_eq!(p.add_request(request("a", 5, 1, send("u"))), Err(AddError::Duplicate(id("a"))));
    assert!(p.send_finished(&id("a")));
    assert!(!p.send_finished(&id("a")), "p13: it is over");
    p.add_request(request("a", 5, 1, send("u"))).unwrap();
}

#[test]
fn wrong_requests_are_refused() {
    let mut p = scheduler(&dense(4), 8, Role::Prefill, OnLoadFailure::Fail);
    let mut d = scheduler(&dense(4), 8, Role::Decode, OnLoadFailure::Fail);
    assert!(matches!(
        p.add_request(request("a", 5, 1, load("t"))),
        Err(AddError::WrongRole { .. })
    ));
    assert!(matches!(
        d.add_request(request("a", 5, 1, send("t"))),
        Err(AddError::WrongRole { .. })
    ));
    assert!(matches!(
        p.add_request(request("a", 5, 2, send("t"))),
        Err(AddError::MaxTokens { .. })
    ));
    assert!(matches!(
        p.add_request(request("a", 5, 0, Transfer::None)),
        Err(AddError::MaxTokens { .. })
    ));
    assert!(matches!(
        p.add_request(request("a", 0, 1, Transfer::None)),
        Err(AddError::NoPrompt(_))
    ));
    assert_eq!(p.requests() + d.requests(), 0);
}

#[test]
fn p08_a_failed_load_fails_the_request_or_computes_all_of_it() {
    for (policy, expected) in [
        (OnLoadFailure::Fail, vec!["answer a LoadFailed", "free a"]),
        (
            OnLoadFailure::Recompute,
            vec!["free a", "compute a 0..9", "compute a 9..10", "answer a 2", "free a"],
        ),
    ] {
        let mut d = scheduler(&dense(4), 8, Role::Decode, policy);
        d.add_request(request("a", 9, 2, load("t"))).unwrap();
        assert_eq!(run(&mut d), ["load a 0..9"]);
        assert!(d.load_failed(&id("a")));
        assert!(!d.load_failed(&id("a")) && !d.load_finished(&id("a")));
        assert_eq!(run(&mut d), expected);
        assert_eq!((d.counts().held, d.requests()), (0, 0));
    }
}

#[test]
fn p09_an_aborted_load_keeps_its_blocks_until_it_settles() {
    let mut d = scheduler(&dense(4), 8, Role::Decode, OnLoadFailure::Recompute);
    d.add_request(request("a", 9, 1, load("t"))).unwrap();
    run(&mut d);
    assert!(d.abort(&id("a")));
    assert!(!d.abort(&id("a")), "p13: aborting twice changes nothing");
    assert_eq!(run(&mut d), ["drop a", "answer a Aborted"]);
    assert_eq!(d.counts().held, 3, "bytes may still land there");
    assert!(d.load_failed(&id("a")));
    assert_eq!(run(&mut d), ["free a"]);
    assert_eq!((d.counts().held, d.counts().cached, d.requests()), (0, 0, 0));
}

#[test]
fn p10_aborting_a_queued_load_releases_the_remote_blocks() {
    let mut d = scheduler(&dense(4), 4, Role::Decode, OnLoadFailure::Fail);
    d.add_request(request("a", 12, 1, load("t"))).unwrap();
    d.add_request(request("b", 12, 1, load("u"))).unwrap();
    run(&mut d);
    assert!(d.abort(&id("b")));
    assert_eq!(run(&mut d), ["release-remote b", "answer b Aborted"]);
}

#[test]
fn p05_aborting_a_held_request_releases_it_and_blocks_come_back_at_the_end() {
    let mut p = scheduler(&dense(4), 8, Role::Prefill, OnLoadFailure::Fail);
    p.add_request(request("a", 5, 1, send("t"))).unwrap();
    run(&mut p);
    assert!(p.abort(&id("a")) && !p.abort(&id("a")));
    assert_eq!(run(&mut p), ["release a"], "it was answered already");
    assert_eq!(p.counts().held, 2);
    assert!(p.send_finished(&id("a")));
    assert_eq!((p.counts().held, p.requests()), (0, 0));
}

#[test]
fn f59_a_hold_comes_only_after_every_rank_has_written() {
    let mut p = scheduler(&dense(4), 8, Role::Prefill, OnLoadFailure::Fail);
    p.add_request(request("a", 5, 1, send("t"))).unwrap();
    assert_eq!(names(&actions(&mut p)), ["compute a 0..5"]);
    assert!(p.computed(&id("a"), Digest(1)));
    assert_eq!(names(&actions(&mut p)), ["answer a 1", "hold a"]);
}

#[test]
fn f48_a_state_groups_list_has_null_entries_in_front_and_a_windows_list_has_none() {
    let mut p = scheduler(&hybrid(), 40, Role::Prefill, OnLoadFailure::Fail);
    p.add_request(request("a", 30, 1, send("t"))).unwrap();
    let mut held = None;
    while let Some(action) = p.next_action() {
        match action {
            Action::Compute(step) => assert!(p.computed(&step.request, Digest(1))),
            Action::Hold { blocks, .. } => held = Some(blocks),
            _ => {}
        }
    }
    let lists: Vec<Vec<u32>> =
        held.unwrap().iter().map(|list| list.iter().map(|id| id.0).collect()).collect();
    assert_eq!(lists.iter().map(Vec::len).collect::<Vec<_>>(), [8, 2, 4]);
    assert!(lists[0].iter().chain(&lists[1]).all(|&block| block != 0));
    assert_eq!(
        lists[2].iter().map(|&block| block == 0).collect::<Vec<_>>(),
        [true, true, false, false]
    );
    let mut all: Vec<u32> = lists.concat().into_iter().filter(|&block| block != 0).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 12, "groups share one pool, never a block");
}

#[test]
fn a06_a_loads_lists_leave_out_hits_and_the_blocks_of_tokens_to_come() {
    let mut d = scheduler(&hybrid(), 60, Role::Decode, OnLoadFailure::Fail);
    d.add_request(request("a", 24, 1, load("t"))).unwrap();
    run(&mut d);
    d.load_finished(&id("a"));
    run(&mut d);
    d.add_request(request("b", 30, 9, load("u"))).unwrap();
    let Some(Action::Load { blocks, first_token, end_token, .. }) = d.next_action() else {
        panic!("a load")
    };
    assert_eq!((first_token, end_token), (24, 30));
    // The window's block of tokens 24..28 is the first one it keeps that was not hit.
    assert_eq!(blocks.iter().map(|list| list.len()).collect::<Vec<_>>(), [2, 2, 1]);
}

#[test]
fn r01_a_paused_engine_sends_no_step_out_and_goes_on_afterwards() {
    let mut d = scheduler(&dense(4), 20, Role::Both, OnLoadFailure::Fail);
    d.add_request(request("a", 5, 3, load("t"))).unwrap();
    run(&mut d);
    d.set_gate(Gate::Frozen);
    d.add_request(request("b", 5, 1, Transfer::None)).unwrap();
    assert!(d.load_finished(&id("a")), "loads still end");
    assert_eq!(run(&mut d), [""; 0]);
    d.set_gate(Gate::Open);
    let log = run(&mut d);
    assert!(log.contains(&"answer a 3".into()) && log.contains(&"answer b 1".into()), "{log:?}");
}

#[test]
fn r04_a_load_cut_short_by_a_reset_is_recomputed_whatever_the_policy() {
    let mut d = scheduler(&dense(4), 20, Role::Decode, OnLoadFailure::Fail);
    d.add_request(request("a", 8, 2, load("t"))).unwrap();
    run(&mut d);
    d.set_gate(Gate::Frozen);
    d.preempt_all();
    assert!(!d.update_weights(2), "r06: bytes may still land in its blocks");
    assert_eq!(run(&mut d), ["drop a"]);
    assert!(d.load_failed(&id("a")));
    assert!(d.update_weights(2));
    d.set_gate(Gate::Open);
    assert_eq!(run(&mut d), ["free a", "compute a 0..8", "compute a 8..9", "answer a 2", "free a"]);
}

#[test]
fn r04_a_running_request_starts_over_with_the_tokens_it_has() {
    let mut d = scheduler(&dense(4), 20, Role::Both, OnLoadFailure::Fail);
    d.add_request(request("a", 8, 3, Transfer::None)).unwrap();
    let Some(Action::Compute(step)) = d.next_action() else { panic!("a step") };
    d.computed(&step.request, Digest(1));
    assert_eq!(names(&actions(&mut d)), ["compute a 8..9"]);
    d.preempt_all();
    assert!(d.computed(&id("a"), Digest(2)), "the step that was out ends, its result is dropped");
    // Its full blocks stay findable, but it does not use them.
    assert_eq!(
        run(&mut d),
        ["free a", "compute a 0..9", "compute a 9..10", "answer a 3", "free a"]
    );
}

#[test]
fn r04_a_load_cut_short_is_recomputed_from_the_start_whatever_the_policy() {
    for policy in [OnLoadFailure::Fail, OnLoadFailure::Recompute] {
        let mut d = scheduler(&dense(4), 20, Role::Decode, policy);
        d.add_request(request("a", 8, 1, load("t"))).unwrap();
        assert_eq!(names(&actions(&mut d)), ["load a 0..8"]);
        assert!(d.load_cut_short(&id("a")));
        assert!(!d.load_cut_short(&id("a")), "once");
        assert_eq!(run(&mut d), ["free a", "compute a 0..8", "answer a 1"]);
    }
    let mut d = scheduler(&dense(4), 20, Role::Decode, OnLoadFailure::Recompute);
    d.add_request(request("a", 8, 1, load("t"))).unwrap();
    actions(&mut d);
    d.abort(&id("a"));
    assert!(d.load_cut_short(&id("a")));
    assert!(names(&actions(&mut d)).iter().all(|it| !it.starts_with("compute")), "it is gone");
}

#[test]
fn r07_a_queued_load_is_given_up_when_weights_change() {
    let mut d = scheduler(&dense(4), 20, Role::Decode, OnLoadFailure::Fail);
    d.set_gate(Gate::Frozen);
    d.add_request(request("a", 8, 1, load("t"))).unwrap();
    assert!(d.update_weights(2));
    d.set_gate(Gate::Open);
    assert_eq!(run(&mut d)[..2], ["release-remote a", "compute a 0..8"]);
}

#[derive(Debug, Clone)]
enum Op {
    Add { prompt: Vec<u32>, max_tokens: usize, kind: u8 },
    Act,
    Load { which: prop::sample::Index, ends: u8 },
    Computed(prop::sample::Index),
    Sent(prop::sample::Index),
    Abort(prop::sample::Index),
    Pause(bool),
    Preempt,
    Weights,
}

fn op() -> impl Strategy<Value = Op> {
    let index = any::<prop::sample::Index>;
    // Few token values, so that prefixes are shared.
    let prompt = (1usize..30, 0u32..3, 0usize..30)
        .prop_map(|(len, value, at)| (0..len).map(|i| if i == at { value } else { 9 }).collect());
    prop_oneof![
        4 => (prompt, 1usize..9, 0u8..3).prop_map(|(prompt, max_tokens, kind)| Op::Add { prompt, max_tokens, kind }),
        6 => Just(Op::Act),
        3 => (index(), 0u8..3).prop_map(|(which, ends)| Op::Load { which, ends }),
        8 => index().prop_map(Op::Computed),
        2 => index().prop_map(Op::Sent),
        2 => index().prop_map(Op::Abort),
        1 => any::<bool>().prop_map(Op::Pause),
        1 => Just(Op::Preempt),
        1 => Just(Op::Weights),
    ]
}

/// What the outside world owes the scheduler, and what it was told.
#[derive(Default)]
struct World {
    computing: Vec<RequestId>,
    loading: Vec<RequestId>,
    held: Vec<RequestId>,
    answers: BTreeMap<RequestId, u32>,
}

impl World {
    fn drain(&mut self, scheduler: &mut Scheduler) {
        while let Some(action) = scheduler.next_action() {
            match action {
                Action::Compute(step) => self.computing.push(step.request),
                Action::Load { request, .. } => self.loading.push(request),
                Action::Hold { request, .. } => self.held.push(request),
                Action::Answer { request, .. } => *self.answers.entry(request).or_default() += 1,
                Action::Free { blocks, .. } => assert!(!blocks.contains(&BlockId(0))),
                _ => {}
            }
        }
    }

    /// Everything that is owed is done, until nothing is left to do.
    fn settle(&mut self, scheduler: &mut Scheduler) {
        scheduler.set_gate(Gate::Open);
        for _ in 0..10_000 {
            self.drain(scheduler);
            if let Some(id) = self.computing.pop() {
                assert!(scheduler.computed(&id, Digest(5)));
            } else if let Some(id) = self.loading.pop() {
                assert!(scheduler.load_finished(&id));
            } else if let Some(id) = self.held.pop() {
                assert!(scheduler.send_finished(&id));
            } else {
                return;
            }
        }
        panic!("the engine never comes to rest");
    }
}

fn take(list: &mut Vec<RequestId>, which: prop::sample::Index) -> Option<RequestId> {
    (!list.is_empty()).then(|| list.remove(which.index(list.len())))
}

fn campaign(shape: &Arc<Shape>, blocks: u32, policy: OnLoadFailure, ops: Vec<Op>) {
    let mut s = scheduler(shape, blocks, Role::Both, policy);
    let (mut world, mut added) = (World::default(), Vec::new());
    for (i, op) in ops.into_iter().enumerate() {
        match op {
            Op::Add { prompt, max_tokens, kind } => {
                let name = format!("r{i}");
                let (max_tokens, transfer) = match kind {
                    0 => (max_tokens, Transfer::None),
                    1 => (1, send(&name)),
                    _ => (max_tokens, load(&name)),
                };
                if s.add_request(Request { id: id(&name), prompt, max_tokens, transfer }).is_ok() {
                    added.push(id(&name));
                }
            }
            Op::Act => world.drain(&mut s),
            Op::Load { which, ends } => {
                if let Some(id) = take(&mut world.loading, which) {
                    assert!(match ends {
                        0 => s.load_failed(&id),
                        1 => s.load_cut_short(&id),
                        _ => s.load_finished(&id),
                    });
                }
            }
            Op::Computed(which) => {
                if let Some(id) = take(&mut world.computing, which) {
                    assert!(s.computed(&id, Digest(i as u64)));
                }
            }
            Op::Sent(which) => {
                if let Some(id) = take(&mut world.held, which) {
                    assert!(s.send_finished(&id));
                }
            }
            Op::Abort(which) if !added.is_empty() => {
                s.abort(which.get(&added));
            }
            Op::Abort(_) => assert!(!s.abort(&id("nobody"))),
            Op::Pause(paused) => s.set_gate(if paused { Gate::Frozen } else { Gate::Open }),
            Op::Preempt => s.preempt_all(),
            Op::Weights => assert_eq!(s.counts().held == 0, s.update_weights(i as u64 + 2)),
        }
        s.assert_consistent();
    }
    world.settle(&mut s);
    s.assert_consistent();
    assert_eq!((s.counts().held, s.requests()), (0, 0), "a request or a block was lost");
    assert!(
        added.iter().all(|id| world.answers.get(id) == Some(&1)),
        "one answer each: {:?}",
        world.answers
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn p01_no_block_and_no_request_is_lost_whatever_happens(
        ops in prop::collection::vec(op(), 1..90), is_hybrid: bool, recompute: bool, blocks in 12u32..40,
    ) {
        let shape = if is_hybrid { hybrid() } else { dense(4) };
        let policy = if recompute { OnLoadFailure::Recompute } else { OnLoadFailure::Fail };
        campaign(&shape, blocks, policy, ops);
    }
}
