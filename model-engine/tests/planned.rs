//! P and D joined by core's own registration and planner answer as the model says.

mod pair;

use kvbaton_core::plan::{BlockRequest, PeerTopology, PlanScratch, PreparedLayout, TokenEnds};
use kvbaton_core::topology::{Topology, pull_targets};
use kvbaton_model_engine::*;
use pair::*;
use proptest::prelude::*;

/// Copies what core plans for every rank of D from every rank of P that it pulls from.
fn copy_as_planned(pair: &mut Pair, blocks: u32, held: &Lists, load: &Lists) {
    let shape = pair.p.engine.scheduler().shape().clone();
    let (p_split, d_split) = (pair.p.split, pair.d.split);
    let ends = TokenEnds { producer: Some(held.end as u32), consumer: Some(load.end as u32) };
    for (d_rank, d_place) in RankPlace::all(d_split.0, d_split.1).enumerate() {
        let peer = PeerTopology {
            tp_rank: d_place.tp_rank,
            tp_size: d_place.tp_size,
            pp_size: d_place.pp_size,
        };
        let registered =
            pair.d.engine.ranks()[d_rank].layout().register(&shape, d_place, blocks).unwrap();
        let columns =
            kvbaton_core::layout::Layout { regions: registered.regions, ..Default::default() }
                .to_columns();
        for (tp_rank, pp_rank) in
            pull_targets(Topology::from(d_place), p_split.0, p_split.1).unwrap()
        {
            let p_place = RankPlace { tp_rank, tp_size: p_split.0, pp_rank, pp_size: p_split.1 };
            let p_rank = (pp_rank * p_split.0 + tp_rank) as usize;
            let local =
                pair.p.engine.ranks()[p_rank].layout().register(&shape, p_place, blocks).unwrap();
            let prepared = PreparedLayout::prepare(&local, peer, &columns).unwrap();
            let request = BlockRequest { local: &held.blocks, remote: &load.blocks, ends };
            let mut copies = Vec::new();
            prepared.plan(request, &mut PlanScratch::default(), &mut copies).unwrap();
            for copy in copies {
                let mut bytes = vec![0; copy.len.0 as usize];
                pair.p.engine.memories()[p_rank].read(copy.source, &mut bytes);
                pair.d.engine.memories()[d_rank].write(copy.destination, &bytes);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a07_what_core_plans_is_what_the_model_needs(
        shape in shapes(), p_split in splits(), d_split in splits(),
        cuts in prop::collection::vec((1usize..40, 1usize..6), 1..5),
    ) {
        // State is not cut into heads: its ranks must be as many on both sides.
        let has_state = shape.groups.iter().any(|group| group.keeps == Keeps::States);
        let d_split = if has_state { (p_split.0, d_split.1) } else { d_split };
        let mut pair = Pair::new(&shape, p_split, d_split, 120);
        let reference = SingleEngine::new(shape.clone(), WEIGHTS);
        for (i, (len, max_tokens)) in cuts.into_iter().enumerate() {
            let prompt: Vec<u32> = (0..len as u32).collect();
            let (answer, _) = pair.serve_by(&format!("r{i}"), &prompt, max_tokens, |pair, held, load| {
                copy_as_planned(pair, 120, held, load);
            });
            prop_assert_eq!(answer, Outcome::Tokens(reference.answer(&prompt, max_tokens)));
        }
    }
}
