//! Small worlds, explored whole. `cargo xtask model-check` explores larger ones.

use kvbaton_model_check::check::{Handover, Report, explore};
use kvbaton_model_check::coverage::Seen;
use kvbaton_model_check::options::{Fault, Faults, Options};
use kvbaton_model_check::suite::{Run, every};
use stateright::Model;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

fn one_rank() -> Options {
    Options { ranks: 1, ..Options::default() }
}

fn holds(run: &Run) -> Report {
    let report = explore(run.options, 1, |_| ());
    if let Some(violation) = &report.violation {
        panic!("{}: {}\n{}", run.name(), violation.rule.words(), violation.steps.join("\n"));
    }
    report
}

/// Everything worth reaching is reached, so none of the rules holds for want of a case.
#[test]
fn p02_p08_g02_every_pair_of_faults_of_one_rank_and_two_loads() {
    let mut reached: BTreeMap<&str, u64> = BTreeMap::new();
    for run in every(one_rank(), &Fault::ALL, 2) {
        for (what, times) in holds(&run).tables.seen().list() {
            *reached.entry(what).or_default() += times;
        }
    }
    assert!(reached.values().all(|times| *times > 0), "{reached:#?}");
}

#[test]
fn p02_p08_two_ranks_and_two_loads_without_faults() {
    let report = holds(&Run::new(Options::default(), &[]));
    assert!(report.states > 1_000 && report.tables.seen().of(Seen::Loaded) > 0);
}

#[test]
fn a08_g01_writes_of_several_copies_land_one_by_one() {
    for faults in [[Fault::Drop], [Fault::FailWrite], [Fault::Restart]] {
        let size = Options { loads: 1, blocks: 2, ..Options::default() };
        holds(&Run::new(size, &faults));
    }
}

/// What the model leaves out for late messages makes no difference where it can be compared.
#[test]
fn l10_p12_late_messages_change_nothing_at_any_time() {
    for faults in [[Fault::Restart, Fault::Drop], [Fault::DecodeSleep, Fault::Drop]] {
        let size = Options { late_at_once: false, ..one_rank() };
        let whole = holds(&Run::new(size, &faults));
        let reduced = holds(&Run::new(one_rank(), &faults));
        assert!(whole.states > reduced.states);
        for ((what, whole), (_, reduced)) in
            whole.tables.seen().list().into_iter().zip(reduced.tables.seen().list())
        {
            assert_eq!(whole > 0, reduced > 0, "{what}");
        }
    }
}

/// A terminal state stands for "everything ends" only if no path comes back to a state.
#[test]
fn no_path_comes_back_to_a_state() {
    let faults = [Fault::Restart, Fault::DecodeSleep, Fault::Deadline, Fault::Lose];
    let options = Options { loads: 1, faults: Faults::of(&faults), ..one_rank() };
    let model = Handover::new(options);
    let print = |world: &_| {
        let mut hasher = DefaultHasher::new();
        Hash::hash(world, &mut hasher);
        hasher.finish()
    };
    // Depth first; a state is open while the search is below it.
    let mut open: BTreeMap<u64, bool> = BTreeMap::new();
    let mut stack: Vec<_> = model.init_states().into_iter().map(|it| (it, false)).collect();
    while let Some((world, left)) = stack.pop() {
        let at = print(&world);
        if left {
            open.insert(at, false);
            continue;
        }
        match open.get(&at) {
            Some(true) => panic!("a path comes back to {world:#?}"),
            Some(false) => continue,
            None => drop(open.insert(at, true)),
        }
        let mut steps = Vec::new();
        model.actions(&world, &mut steps);
        let next: Vec<_> = steps.iter().filter_map(|it| model.next_state(&world, *it)).collect();
        stack.push((world, true));
        stack.extend(next.into_iter().map(|it| (it, false)));
    }
    assert!(open.len() > 1_000, "{} states only", open.len());
}
