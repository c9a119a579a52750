//! The reference's plans, byte for byte.

mod vector_files;

use kvbaton_core::plan::{BlockRequest, PlanScratch, PreparedLayout, TokenEnds};
use kvbaton_core::region::Copy;
use vector_files::{Cases, Expect, PlanCase, blocks, contents, merged};

fn outcome(case: PlanCase) -> Result<Vec<Copy>, String> {
    let local_blocks = blocks(&case.request.producer_blocks);
    let remote_blocks = blocks(&case.request.consumer_blocks);
    let (local, peer, columns) = case.sides();
    let prepared =
        PreparedLayout::prepare(&local, peer, &columns).map_err(|error| error.name().to_owned())?;
    let request =
        BlockRequest { local: &local_blocks, remote: &remote_blocks, ends: TokenEnds::default() };
    let mut out = Vec::new();
    let summary = prepared
        .plan(request, &mut PlanScratch::default(), &mut out)
        .map_err(|error| error.name().to_owned())?;
    assert_eq!(summary.copies, out.len());
    assert_eq!(summary.bytes.0, out.iter().map(|copy| copy.len.0).sum::<u64>());
    Ok(out)
}

/// Where the reference is wrong by the contract: ranks beyond the number of KV heads hold
/// copies of one head, and it merges such a rank's packed layers into one span, which it
/// then places as if it were one head of one layer `[A04, F39]`. Rules and properties say
/// what is right there.
fn reference_misplaces(case: &PlanCase) -> bool {
    let attention = case.groups.iter().all(|kind| kind == "attention");
    let (producer, consumer) = (&case.producer, &case.consumer);
    attention
        && !case.replicated_latent
        && producer.tp_size > case.total_kv_heads
        && producer.tp_size != consumer.tp_size
        && producer.layout.row_offsets.iter().filter(|offset| **offset >= 0).count() > 1
}

/// Where the reference looks at no lengths, copies of one whole row differ in length: the
/// payload cannot be covered, so we refuse `[A07, F52]`.
fn reference_ignores_lengths(case: &PlanCase) -> bool {
    let (producer, consumer) = (&case.producer.layout, &case.consumer.layout);
    let len_of = |name: &String| {
        let there = consumer.layer_names.iter().position(|it| it == name);
        there.map(|row| consumer.kv_block_lens[row])
    };
    let mut rows = producer.layer_names.iter().zip(&producer.kv_block_lens);
    let copies = case.replicated_latent || case.producer.tp_size > case.total_kv_heads;
    copies && rows.any(|(name, len)| len_of(name).is_some_and(|it| it != *len))
}

fn check(case: PlanCase) -> Result<(), String> {
    let name = case.name.clone();
    let misplaced = reference_misplaces(&case);
    let unchecked = misplaced || reference_ignores_lengths(&case);
    let Expect { copies, reference_descriptors, error } = case.expect.clone();
    match (outcome(case), error) {
        (Err(ours), Some(theirs)) if ours == theirs => Ok(()),
        // It crashed; any clear refusal is right.
        (Err(_), Some(theirs)) if theirs.starts_with("internal_assertion") => Ok(()),
        (Err(ours), _) if unchecked && ours == "region_lengths_differ" => Ok(()),
        (Ok(ours), None) => {
            let expected = copies.expect("copies or an error");
            let bytes = |copies: &[[u64; 3]]| copies.iter().map(|copy| copy[2]).sum::<u64>();
            let (mine, same) = (merged(&ours), |mine: &[[u64; 3]]| mine == expected);
            if misplaced && !same(&mine) && bytes(&mine) == bytes(&expected) {
                return Ok(());
            }
            if !same(&mine) {
                return Err(format!("{name}: {mine:?}\n  expected {expected:?}"));
            }
            if Some(ours.len()) > reference_descriptors {
                return Err(format!(
                    "{name}: {} descriptors, the reference needs {reference_descriptors:?}",
                    ours.len()
                ));
            }
            Ok(())
        }
        (ours, theirs) => Err(format!("{name}: {ours:?}, expected {theirs:?}")),
    }
}

/// How often the vectors reach the reference's fault: never in the repository's own.
#[test]
fn a07_the_repositorys_vectors_are_matched_without_exception() {
    let text = &contents("plans.json")[0];
    let cases: Cases<PlanCase> = serde_json::from_str(text).expect("plans.json");
    for case in cases.cases {
        let (name, expect) = (case.name.clone(), case.expect.clone());
        match (outcome(case), expect.error) {
            (Ok(ours), None) => {
                assert_eq!(Some(merged(&ours)), expect.copies, "{name}");
                // [A08]: as few as there can be.
                assert_eq!(ours.len(), merged(&ours).len(), "{name}");
            }
            (ours, theirs) => assert_eq!(ours.err(), theirs, "{name}"),
        }
    }
}

#[test]
fn a07_every_plan_of_the_vectors_is_matched() {
    for text in contents("plans.json") {
        let cases: Cases<PlanCase> = serde_json::from_str(&text).expect("plans.json");
        assert!(!cases.cases.is_empty(), "a file without cases");
        let failed: Vec<String> =
            cases.cases.into_iter().filter_map(|case| check(case).err()).collect();
        assert!(failed.is_empty(), "{} cases differ:\n{}", failed.len(), failed.join("\n"));
    }
}
