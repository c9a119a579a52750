//! The checker finds what is broken around core on purpose.

use kvbaton_model_check::check::explore;
use kvbaton_model_check::options::{Broken, Fault, Faults, Options};
use kvbaton_model_check::rules::Rule;

/// The rule that is found broken first in a small world.
fn finds(broken: Broken, faults: &[Fault]) -> Rule {
    finds_with(2, broken, faults)
}

fn finds_with(loads: u8, broken: Broken, faults: &[Fault]) -> Rule {
    let options = Options {
        ranks: 1,
        loads,
        faults: Faults::of(faults),
        broken: Some(broken),
        ..Options::default()
    };
    // States that others stand for hide nothing.
    let found = [false, true].map(|reduced| {
        let report = explore(Options { reduced, ..options }, 1, |_| ());
        let violation = report.violation.unwrap_or_else(|| panic!("{broken:?} is not found"));
        assert!(!violation.steps.is_empty());
        violation.rule
    });
    assert_eq!(found[0], found[1], "{broken:?}");
    found[1]
}

#[test]
fn g02_a_data_plane_that_checks_no_grant_is_found() {
    let rule = finds(Broken::UncheckedGrants, &[Fault::Drop]);
    assert!(matches!(rule, Rule::G01 | Rule::G02), "{rule:?}");
}

#[test]
fn p08_a_revocation_that_is_reported_early_is_found() {
    assert_eq!(finds(Broken::EarlyRevocation, &[]), Rule::P08);
}

#[test]
fn s01_a_node_that_does_not_drain_is_found() {
    assert_eq!(finds(Broken::ImpatientDrain, &[Fault::DecodeSleep]), Rule::S01);
    assert_eq!(finds(Broken::ImpatientDrain, &[Fault::PrefillSleep]), Rule::S01);
}

#[test]
fn l09_a_layout_id_that_comes_back_is_found() {
    // The late pull of a dropped load brings the old layout back under the new one's name.
    let faults = [Fault::DecodeSleep, Fault::Drop];
    assert_eq!(finds_with(3, Broken::SameLayoutId, &faults), Rule::L09);
}

#[test]
fn l09_layouts_of_an_older_registration_are_found() {
    assert_eq!(finds(Broken::StalePlans, &[Fault::PrefillSleep]), Rule::L09);
}

#[test]
fn p12_an_incarnation_that_comes_back_is_found() {
    assert_eq!(finds(Broken::SameIncarnation, &[Fault::Restart]), Rule::P12);
}

#[test]
fn l06_a_miss_for_a_pull_with_its_layout_is_found() {
    assert_eq!(finds(Broken::MissWithLayout, &[]), Rule::L06);
}

#[test]
fn p02_an_answer_that_never_arrives_is_found() {
    assert_eq!(finds(Broken::DeafNetwork, &[]), Rule::Progress);
}
