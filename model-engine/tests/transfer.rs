//! P and D joined by a perfect transfer answer as the model without memory does.

mod pair;

use kvbaton_model_engine::*;
use pair::*;
use proptest::prelude::*;
use std::sync::Arc;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Several requests whose prompts share prefixes, so that D has partial and full hits.
    #[test]
    fn a06_d_loads_the_tail_and_answers_as_the_model_says(
        shape in shapes(), p_split in splits(), d_split in splits(),
        cuts in prop::collection::vec((1usize..40, 1usize..6), 1..5),
    ) {
        let mut pair = Pair::new(&shape, p_split, d_split, 120);
        let reference = SingleEngine::new(shape.clone(), WEIGHTS);
        for (i, (len, max_tokens)) in cuts.into_iter().enumerate() {
            let prompt: Vec<u32> = (0..len as u32).collect();
            let (answer, _) = pair.serve( &format!("r{i}"), &prompt, max_tokens, |_| false);
            prop_assert_eq!(answer, Outcome::Tokens(reference.answer(&prompt, max_tokens)));
            for engine in [&mut pair.p.engine, &mut pair.d.engine] {
                engine.scheduler().assert_consistent();
                prop_assert_eq!(engine.scheduler().counts().held, 0);
            }
        }
    }

    #[test]
    fn a_unit_that_was_not_transferred_changes_the_answer(
        shape in shapes(), p_split in splits(), d_split in splits(), len in 1usize..30, which in any::<prop::sample::Index>(),
    ) {
        let prompt: Vec<u32> = (0..len as u32).collect();
        // What is read at the end of the prompt: units before a window's start are not.
        let read: Vec<Meaning> = shape.layers.iter().flat_map(|layer| {
            let group = &shape.groups[layer.group];
            let positions: Vec<usize> = match group.keeps {
                Keeps::States => group.kept(len).map(|i| len.min((i + 1) * group.block_size as usize) - 1).collect(),
                _ => (group.first_position(len)..len).collect(),
            };
            RankPlace::SINGLE.heads(layer.sharding).flat_map(move |head| {
                positions.clone().into_iter().map(move |position| (layer.name.to_string(), head, position))
            }).collect::<Vec<_>>()
        }).collect();
        let missing = which.get(&read).clone();
        let mut pair = Pair::new(&shape, p_split, d_split, 60);
        let (answer, _) = pair.serve( "r", &prompt, 1, |unit| *unit == missing);
        let right = Outcome::Tokens(SingleEngine::new(shape.clone(), WEIGHTS).answer(&prompt, 1));
        prop_assert_ne!(answer, right, "{:?} was not transferred", missing);
    }

    /// Any byte of any row in use, on any rank, replicas too.
    #[test]
    fn any_flipped_byte_changes_the_answer(
        shape in shapes(), split in splits(), len in 1usize..30, rank in any::<prop::sample::Index>(), unit in any::<prop::sample::Index>(), byte in any::<prop::sample::Index>(), flip in 1u8..,
    ) {
        let prompt: Vec<u32> = (0..len as u32).collect();
        let mut e = engine(&shape, split, 60, Role::Both, OnLoadFailure::Fail);
        e.add_request(request("r", &prompt, 2, Transfer::None)).unwrap();
        let Some(Action::Compute(first)) = e.next_action() else { panic!("a step") };
        e.run(&first);
        let Some(Action::Compute(second)) = e.next_action() else { panic!("a second step") };
        let i = rank.index(e.ranks().len());
        let place = RankPlace::all(split.0, split.1).nth(i).unwrap();
        let lists = second.table.lists(&shape, 0, len);
        // What the second step reads and does not write itself.
        let used: Vec<_> = units(&shape, &e.ranks()[i].clone(), place, &lists, 0, len).into_iter().filter(|((name, _, position), ..)| {
            let layer = shape.layers.iter().find(|layer| *layer.name == **name).unwrap();
            let group = &shape.groups[layer.group];
            match group.keeps {
                Keeps::States => (position + 1) % group.block_size as usize == 0 && *position >= group.first_position(len + 1),
                _ => *position >= group.first_position(len + 1),
            }
        }).collect();
        prop_assume!(!used.is_empty());
        let (meaning, address, unit_len) = unit.get(&used).clone();
        let mut bytes = vec![0; unit_len];
        e.memories()[i].read(address, &mut bytes);
        bytes[byte.index(unit_len)] ^= flip;
        e.memories()[i].write(address, &bytes);
        e.run(&second);
        let mut answer = None;
        while let Some(action) = e.run_to_next_action() {
            if let Action::Answer { outcome, .. } = action { answer = Some(outcome) }
        }
        let right = Outcome::Tokens(SingleEngine::new(shape.clone(), WEIGHTS).answer(&prompt, 2));
        prop_assert_ne!(answer.unwrap(), right, "a byte of {:?} on rank {} was flipped", meaning, i);
    }
}

#[test]
fn a04_every_split_answers_as_the_model_without_memory() {
    let shapes = [
        Dense { layers: 2, kv_heads: 4, head_bytes: 24, block_size: 8, kernel_blocks_per_block: 2 }
            .shape(),
        Mla { layers: 3, latent_bytes: 18, block_size: 8 }.shape(),
        Hybrid {
            layers: 5,
            kv_heads: 2,
            head_bytes: 16,
            block_size: 8,
            kernel_blocks_per_block: 4,
            window: 11,
            state_bytes: 40,
            state_block_size: 16,
        }
        .shape(),
    ];
    for shape in shapes.map(Arc::new) {
        let prompt: Vec<u32> = (100..137).collect();
        let right = SingleEngine::new(shape.clone(), WEIGHTS).answer(&prompt, 12);
        for split in [1, 2, 4, 8].into_iter().flat_map(|tp| [(tp, 1), (tp, 2)]) {
            let mut e = engine(&shape, split, 60, Role::Both, OnLoadFailure::Fail);
            e.add_request(request("r", &prompt, 12, Transfer::None)).unwrap();
            let answer =
                std::iter::from_fn(|| e.run_to_next_action()).find_map(|action| match action {
                    Action::Answer { outcome, .. } => Some(outcome),
                    _ => None,
                });
            assert_eq!(answer, Some(Outcome::Tokens(right.clone())), "{} {split:?}", shape.name);
        }
    }
}

#[test]
fn f53_a_partial_hit_loads_the_tail_and_a_full_hit_only_releases() {
    let shape = Arc::new(
        Dense { layers: 2, kv_heads: 2, head_bytes: 8, block_size: 64, kernel_blocks_per_block: 1 }
            .shape(),
    );
    let mut pair = Pair::new(&shape, (2, 1), (1, 1), 80);
    let reference = SingleEngine::new(shape.clone(), WEIGHTS);
    let tokens: Vec<u32> = (0..2049).collect();
    // The failure's numbers: D has 31 blocks of a prompt of 2048 tokens, then of 2049.
    for (name, len, first_loaded) in
        [("head", 1984, 0), ("more", 2048, 1984), ("odd", 2049, 2048), ("full", 2048, 2048)]
    {
        let (answer, first) = pair.serve(name, &tokens[..len], 2, |_| false);
        assert_eq!(
            (answer, first),
            (Outcome::Tokens(reference.answer(&tokens[..len], 2)), first_loaded),
            "{name}"
        );
    }
}

#[test]
fn f51_f52_kernel_blocks_are_numbered_and_sized_apart_from_logical_ones() {
    let shape = Dense {
        layers: 1,
        kv_heads: 1,
        head_bytes: 4,
        block_size: 128,
        kernel_blocks_per_block: 2,
    }
    .shape();
    let layout =
        RankLayout::new(&shape, RankPlace::SINGLE, 8, kvbaton_core::ids::Address(0)).unwrap();
    let tensor = &layout.tensors[0];
    assert_eq!(tensor.shape, [16, 1, 64, 2]);
    assert_eq!(tensor.page_size, 128 * 4);
    assert_eq!(tensor.strides[0] * u64::from(tensor.element_size), 64 * 4);
}

#[test]
fn r07_a_prefix_of_old_weights_is_never_hit() {
    let shape = Arc::new(
        Dense { layers: 2, kv_heads: 2, head_bytes: 8, block_size: 4, kernel_blocks_per_block: 1 }
            .shape(),
    );
    let mut pair = Pair::new(&shape, (1, 1), (1, 1), 40);
    let prompt: Vec<u32> = (0..18).collect();
    for (version, first_loaded) in [(1, [0, 16]), (2, [0, 16]), (1, [0, 16])] {
        for engine in [&mut pair.p.engine, &mut pair.d.engine] {
            assert!(engine.scheduler().update_weights(version));
        }
        let right =
            SingleEngine::new(shape.clone(), Weights { version, ..WEIGHTS }).answer(&prompt, 3);
        for (i, first_loaded) in first_loaded.into_iter().enumerate() {
            let (answer, first) = pair.serve(&format!("v{version}-{i}"), &prompt, 3, |_| false);
            assert_eq!((answer, first), (Outcome::Tokens(right.clone()), first_loaded));
        }
    }
}

/// D's next answer, every step run on the spot.
fn answer_of(engine: &mut Engine) -> Option<Outcome> {
    std::iter::from_fn(|| engine.run_to_next_action()).find_map(|action| match action {
        Action::Answer { outcome, .. } => Some(outcome),
        _ => None,
    })
}

fn hybrid() -> Arc<Shape> {
    let hybrid = Hybrid {
        layers: 4,
        kv_heads: 2,
        head_bytes: 12,
        block_size: 8,
        kernel_blocks_per_block: 2,
        window: 10,
        state_bytes: 20,
        state_block_size: 8,
    };
    Arc::new(hybrid.shape())
}

#[test]
fn r04_a_load_that_failed_half_way_is_recomputed_right() {
    let shape = hybrid();
    let mut d = engine(&shape, (2, 2), 60, Role::Decode, OnLoadFailure::Recompute);
    let prompt: Vec<u32> = (0..29).collect();
    d.add_request(request("r", &prompt, 5, Transfer::Load(transfer("t")))).unwrap();
    let Some(Action::Load { blocks, .. }) = d.next_action() else { panic!("a load") };
    // Some of P's bytes have landed, others have not.
    let place = RankPlace::all(2, 2).next().unwrap();
    for (_, address, len) in
        units(&shape, &d.ranks()[0].clone(), place, &blocks, 0, 29).into_iter().step_by(2)
    {
        d.memories()[0].write(address, &vec![1; len]);
    }
    assert!(d.scheduler().load_failed(&id("r")));
    let right = SingleEngine::new(shape, WEIGHTS).answer(&prompt, 5);
    assert_eq!(answer_of(&mut d), Some(Outcome::Tokens(right)));
}

#[test]
fn r04_a_request_that_starts_over_gives_the_same_tokens() {
    let shape = hybrid();
    let mut e = engine(&shape, (2, 1), 60, Role::Both, OnLoadFailure::Fail);
    let prompt: Vec<u32> = (0..23).collect();
    e.add_request(request("r", &prompt, 9, Transfer::None)).unwrap();
    for _ in 0..4 {
        let Some(Action::Compute(step)) = e.next_action() else { panic!("a step") };
        e.run(&step);
    }
    e.scheduler().preempt_all();
    let right = SingleEngine::new(shape, WEIGHTS).answer(&prompt, 9);
    assert_eq!(answer_of(&mut e), Some(Outcome::Tokens(right)));
}

#[test]
fn p01_blocks_that_came_back_are_spoilt_for_whoever_still_reads_them() {
    let shape = Arc::new(
        Dense { layers: 1, kv_heads: 1, head_bytes: 4, block_size: 8, kernel_blocks_per_block: 1 }
            .shape(),
    );
    let mut p = engine(&shape, (1, 1), 9, Role::Prefill, OnLoadFailure::Fail);
    p.add_request(request("r", &[1, 2, 3], 1, Transfer::Send(transfer("t")))).unwrap();
    let Some(held) =
        std::iter::from_fn(|| p.run_to_next_action()).find_map(|action| match action {
            Action::Hold { blocks, .. } => Some(blocks),
            _ => None,
        })
    else {
        panic!("a hold")
    };
    let read = |p: &mut Engine| {
        let (_, address, len) =
            units(&shape, &p.ranks()[0].clone(), RankPlace::SINGLE, &held, 0, 3)[1].clone();
        let mut bytes = vec![0; len];
        p.memories()[0].read(address, &mut bytes);
        bytes
    };
    let before = read(&mut p);
    assert!(p.scheduler().send_finished(&id("r")));
    assert_eq!(read(&mut p), before, "until the driver sees that they are free");
    assert!(matches!(p.next_action(), Some(Action::Free { .. })));
    assert_ne!(read(&mut p), before);
}

#[test]
fn one_scheduler_and_ranks_of_their_own_work_as_an_engine_does() {
    let shape = hybrid();
    let config = SchedulerConfig {
        shape: shape.clone(),
        blocks: 60,
        weights: WEIGHTS,
        role: Role::Both,
        on_load_failure: OnLoadFailure::Fail,
    };
    let mut scheduler = Scheduler::new(config);
    let mut ranks: Vec<(Rank, VecMemory)> = RankPlace::all(4, 2)
        .map(|place| {
            let rank =
                Rank::new(shape.clone(), place, 60, kvbaton_core::ids::Address(4096)).unwrap();
            let range = rank.layout().range();
            (rank, VecMemory::new(range.start, range.len.0 as usize))
        })
        .collect();
    scheduler.add_request(request("r", &[5; 33], 4, Transfer::None)).unwrap();
    let mut answer = None;
    while let Some(action) = scheduler.next_action() {
        match action {
            Action::Compute(step) => {
                // Ranks may report in any order.
                let digests: Vec<_> =
                    ranks.iter_mut().rev().map(|(rank, memory)| rank.run(memory, &step)).collect();
                scheduler.computed(&step.request, Digest::combine(&digests));
            }
            Action::Answer { outcome, .. } => answer = Some(outcome),
            _ => {}
        }
    }
    assert_eq!(
        answer,
        Some(Outcome::Tokens(SingleEngine::new(shape, WEIGHTS).answer(&[5; 33], 4)))
    );
}
