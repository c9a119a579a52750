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

fn check(case: PlanCase) -> Result<(), String> {
    let name = case.name.clone();
    let Expect { copies, reference_descriptors, error } = case.expect.clone();
    match (outcome(case), error) {
        (Err(ours), Some(theirs)) if ours == theirs => Ok(()),
        (Ok(ours), None) => {
            let expected = copies.expect("copies or an error");
            if merged(&ours) != expected {
                return Err(format!("{name}: {:?}\n  expected {expected:?}", merged(&ours)));
            }
            // [A08]: as few as there can be, so never more than the reference's.
            if ours.len() != expected.len() || Some(ours.len()) > reference_descriptors {
                let (ours, fewest) = (ours.len(), expected.len());
                return Err(format!("{name}: {ours} descriptors, could be {fewest}"));
            }
            Ok(())
        }
        (ours, theirs) => Err(format!("{name}: {ours:?}, expected {theirs:?}")),
    }
}

#[test]
fn a07_every_plan_of_the_vectors_is_matched() {
    for text in contents("plans.json") {
        let cases: Cases<PlanCase> = serde_json::from_str(&text).expect("plans.json");
        assert!(cases.cases.len() >= 100, "only {} cases", cases.cases.len());
        let failed: Vec<String> =
            cases.cases.into_iter().filter_map(|case| check(case).err()).collect();
        assert!(failed.is_empty(), "{} cases differ:\n{}", failed.len(), failed.join("\n"));
    }
}
