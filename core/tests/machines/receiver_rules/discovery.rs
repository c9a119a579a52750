//! Finding P's ranks.

use crate::receiver_driver::{BOOTSTRAP, Kind, ReceiverDriver, address, ranks};
use kvbaton_core::directory::EngineRanks;
use kvbaton_core::ids::EngineId;
use kvbaton_core::receiver::{LoadEnd, LoadFailureReason, ReceiverConfig};

const OURS: Kind = Kind::Ours;

fn listed(d: &ReceiverDriver) -> Vec<std::sync::Arc<str>> {
    d.pulls.values().map(|it| it.address.clone()).collect()
}

#[test]
fn a02_a04_f44_a_rank_pulls_every_stage_of_its_paired_ranks() {
    // (D's tp, D's pp, P's ranks, what D's rank (0, 0) pulls)
    type Case<'a> = (u32, u32, &'a [&'a [Kind]], &'a [(usize, usize)]);
    let cases: [Case<'_>; 5] = [
        (1, 1, &[&[OURS]], &[(0, 0)]),
        (1, 2, &[&[OURS, OURS]], &[(0, 0)]),
        (1, 1, &[&[OURS, OURS]], &[(0, 0), (0, 1)]),
        (1, 1, &[&[OURS], &[OURS]], &[(0, 0), (1, 0)]),
        (4, 2, &[&[OURS; 4], &[OURS; 4]], &[(0, 0), (0, 1), (0, 2), (0, 3)]),
    ];
    for (tp, pp, kinds, expected) in cases {
        let mut d = ReceiverDriver::with(ReceiverConfig::default(), tp, pp);
        d.load("a");
        d.discover(kinds);
        let expected: Vec<_> = expected.iter().map(|(tp, pp)| address(*tp, *pp)).collect();
        assert_eq!(listed(&d), expected, "{tp} × {pp}");
    }
}

#[test]
fn a04_f22_a_p_of_which_ranks_are_missing_or_doubled_is_refused() {
    let whole = ranks(&[&[OURS, OURS], &[OURS, OURS]]);
    type Break = fn(&mut EngineRanks);
    let breaks: [(&str, Break); 6] = [
        ("no rank", |ranks| ranks.clear()),
        ("tp 0", |ranks| drop(ranks.remove(&0))),
        ("a stage", |ranks| drop(ranks.get_mut(&1).unwrap().remove(&0))),
        ("the last stage of one", |ranks| drop(ranks.get_mut(&1).unwrap().remove(&1))),
        ("every stage", |ranks| ranks.values_mut().for_each(|stages| stages.clear())),
        ("one address twice", |ranks| {
            ranks.get_mut(&1).unwrap().get_mut(&0).unwrap().address = address(0, 0);
        }),
    ];
    for (what, break_it) in breaks {
        let mut d = ReceiverDriver::new();
        let mut ranks = whole.clone();
        break_it(&mut ranks);
        d.load("a");
        d.discovered(Ok(vec![(EngineId::from("p"), ranks)]));
        assert_eq!(d.failure("a"), Some(LoadFailureReason::Incompatible), "{what}");
        d.load("b");
        assert_eq!(d.asked.len(), 1, "{what}: asked again");
    }
}

/// While P's ranks register one after the other, the ones that are there look like a smaller
/// engine; loading from them alone would leave a part of the KV unwritten.
#[test]
fn a02_a_directory_that_lacks_ranks_is_not_taken_for_a_smaller_engine() {
    let with_sizes = |kinds: &[&[Kind]], sizes| {
        let mut ranks = ranks(kinds);
        let all = ranks.values_mut().flat_map(|stages| stages.values_mut());
        all.for_each(|rank| rank.ours.as_mut().unwrap().sizes = sizes);
        ranks
    };
    for sizes in [(1, 2), (2, 1)] {
        let mut d = ReceiverDriver::new();
        d.load("a");
        d.discovered(Ok(vec![(EngineId::from("p"), with_sizes(&[&[OURS]], sizes))]));
        assert_eq!(d.failure("a"), Some(LoadFailureReason::Incompatible), "{sizes:?}");
        d.load("b");
        assert_eq!(d.asked.len(), 1, "asked again");
        let all: &[&[Kind]] = if sizes.0 == 2 { &[&[OURS], &[OURS]] } else { &[&[OURS, OURS]] };
        d.discovered(Ok(vec![(EngineId::from("p"), with_sizes(all, sizes))]));
        assert_eq!(d.pulls.len(), 2);
    }
}

#[test]
fn p12_f62_an_engine_that_is_not_listed_fails_at_once() {
    let mut d = ReceiverDriver::new();
    d.load("a");
    d.discovered(Ok(vec![(EngineId::from("new"), ranks(&[&[OURS]]))]));
    assert_eq!(d.failure("a"), Some(LoadFailureReason::UnknownEngine));
    let LoadEnd::Failed(failure) = &d.ends("a")[0] else { panic!() };
    assert!(failure.message.contains("does not know engine p"), "{failure:?}");
}

#[test]
fn f18_a_bootstrap_server_that_cannot_be_asked_fails_its_loads_alone() {
    let mut d = ReceiverDriver::new();
    d.load("a");
    let mut other = d.spec("b");
    other.bootstrap = "http://10.0.0.9:8998".into();
    d.accept(other).unwrap();
    d.flush();
    assert_eq!(d.asked.len(), 2);
    d.discovered(Err(format!("{BOOTSTRAP}: connection refused")));
    assert_eq!(d.failure("a"), Some(LoadFailureReason::UnknownEngine));
    assert_eq!(d.ends("b"), []);
}

#[test]
fn f63_a_bootstrap_server_is_asked_once_for_all_who_wait() {
    let mut d = ReceiverDriver::new();
    for name in ["a", "b", "c"] {
        d.load(name);
    }
    assert_eq!(d.asked.len(), 1);
    d.discover(&[&[OURS]]);
    assert_eq!(d.pulls.len(), 1, "and they share one pull");
}

#[test]
fn f62_an_answer_older_than_a_load_does_not_fail_it() {
    let mut d = ReceiverDriver::new();
    d.load("old");
    let mut new = d.spec("new");
    new.engine = EngineId::from("restarted");
    d.accept(new).unwrap();
    d.flush();
    d.discover(&[&[OURS]]);
    assert_eq!(d.asked.len(), 1, "it is asked once more for who came after the question");
    d.discovered(Ok(vec![(EngineId::from("restarted"), ranks(&[&[OURS]]))]));
    assert_eq!(d.pulls.len(), 2);
    let mut gone = d.spec("gone");
    gone.engine = EngineId::from("gone");
    d.accept(gone).unwrap();
    d.flush();
    d.discovered(Ok(Vec::new()));
    assert_eq!(d.failure("gone"), Some(LoadFailureReason::UnknownEngine));
}

#[test]
fn f25_a_lost_answer_of_the_bootstrap_server_does_not_silence_it_for_ever() {
    let mut d = ReceiverDriver::new();
    d.load("a");
    d.wait_until(crate::names::seconds(10_000));
    assert_eq!(d.failure("a"), Some(LoadFailureReason::TimedOut));
    d.asked.clear();
    d.load("b");
    assert_eq!(d.asked.len(), 1);
}
