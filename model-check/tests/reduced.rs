//! What the walk leaves out makes no difference, where both can be looked at.

use kvbaton_model_check::check::{Handover, Report, explore};
use kvbaton_model_check::options::{Broken, Fault, Faults, Options};
use kvbaton_model_check::prove::prove;
use stateright::{Checker, Model};

const ONE_RANK: Options = Options { ranks: 1, ..SIZE };
const SIZE: Options = Options {
    ranks: 2,
    loads: 2,
    blocks: 1,
    slots: 1,
    faults: NONE,
    late_at_once: true,
    reduced: true,
    broken: None,
};
const NONE: Faults = Faults {
    restarts: 0,
    evictions: 0,
    decode_sleeps: 0,
    prefill_sleeps: 0,
    drops: 0,
    releases: 0,
    losses: 0,
    duplicates: 0,
    deadlines: 0,
    write_failures: 0,
};

fn with(size: Options, faults: &[Fault]) -> Options {
    Options { faults: Faults::of(faults), ..size }
}

/// What was reached, by name.
fn reached(report: &Report) -> Vec<&'static str> {
    let list = report.tables.seen().list().into_iter();
    list.filter(|(_, times)| *times > 0).map(|(what, _)| what).collect()
}

/// Worlds that are small enough to be walked whole.
fn worlds() -> Vec<Options> {
    let singles = Fault::ALL.into_iter().map(|fault| with(ONE_RANK, &[fault]));
    let one_load = Options { loads: 1, ..SIZE };
    let together = [
        with(ONE_RANK, &[Fault::Drop, Fault::Lose]),
        with(ONE_RANK, &[Fault::DecodeSleep, Fault::Duplicate]),
        with(ONE_RANK, &[Fault::Release, Fault::Deadline]),
        with(one_load, &[Fault::Drop, Fault::Restart, Fault::Evict]),
        with(one_load, &[Fault::Lose, Fault::Duplicate]),
        with(Options { blocks: 2, slots: 2, ..ONE_RANK }, &[Fault::Restart]),
        SIZE,
    ];
    singles.chain(together).collect()
}

/// The walk by itself, that leaves nothing out, next to stateright's.
#[test]
fn a_walk_that_leaves_nothing_out_visits_what_stateright_visits() {
    for options in worlds() {
        let whole = Options { reduced: false, ..options };
        let checker = Handover::new(whole).checker().spawn_dfs().join();
        for threads in [1, 3] {
            let report = explore(whole, threads, |_| ());
            assert_eq!(report.states, checker.unique_state_count(), "{whole:?}");
            assert_eq!(report.generated, checker.state_count(), "{whole:?}");
        }
        assert_eq!(checker.discoveries().len(), 0);
    }
}

#[test]
fn what_stands_for_others_reaches_what_they_reach_and_holds_as_they_do() {
    for options in worlds() {
        let whole = explore(Options { reduced: false, ..options }, 1, |_| ());
        let reduced = explore(options, 1, |_| ());
        assert!(reduced.states < whole.states, "{options:?}");
        assert_eq!(reached(&reduced), reached(&whole), "{options:?}");
        assert_eq!(reduced.violation, None);
        assert_eq!(whole.violation, None);
    }
}

#[test]
fn states_that_stand_for_one_another_behave_alike() {
    for options in worlds() {
        let proof = prove(&options);
        assert_eq!(proof.differ, None, "{options:?}");
        assert!(proof.groups < proof.states, "{options:?}");
    }
}

#[test]
fn a_state_that_stands_for_one_that_behaves_otherwise_is_found() {
    let faults = Faults::of(&[Fault::Drop]);
    let options = Options { faults, broken: Some(Broken::BlindPrint), ..ONE_RANK };
    assert!(prove(&options).differ.is_some_and(|text| text.contains("only one of these")));
}
