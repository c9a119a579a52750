//! The runner: a violation is found, shrunk, kept and run first the next time.

use kvbaton_fuzz::runner::{Plan, run};
use kvbaton_fuzz::{Campaign, Check, Choices, Trace, corpus, ensure};
use std::time::Duration;

/// Breaks when a step of 200 or more comes after one of exactly 7.
const BROKEN: Campaign = Campaign {
    name: "broken",
    about: "a campaign that fails",
    bytes: 40..400,
    step_bytes: 4,
    run: breaks,
};

fn breaks(choices: &mut Choices<'_>, trace: &mut Trace) -> Check {
    let mut armed = false;
    while let Some([what, ..]) = choices.step() {
        trace.step(|| format!("step {what}"));
        ensure!(!(armed && what >= 200), "T01", "{what} after 7");
        armed |= what == 7;
    }
    Ok(())
}

#[test]
fn a_violation_is_shrunk_kept_and_runs_first_the_next_time() {
    let folder = tempfile::tempdir().unwrap();
    let time = Duration::from_secs(600); // ends with the violation
    let plan = Plan { time, seed: 1, jobs: 2, corpus: folder.path() };
    let outcome = run(&BROKEN, &plan, |_, _| {}).unwrap();
    let [found] = &outcome.found[..] else { panic!("{outcome:?}") };
    assert_eq!(found.story.violation.rule, "T01");
    assert_eq!(found.story.lines, ["step 7", "step 200"]);
    assert!(found.after.0 > 0 && outcome.steps > 0);
    assert_eq!(corpus::read(&found.path).unwrap(), [7, 0, 0, 0, 200]);

    let again = run(&BROKEN, &plan, |_, _| {}).unwrap();
    let [kept] = &again.found[..] else { panic!("{again:?}") };
    assert_eq!((kept.after, &kept.path, again.cases), ((0, 0), &found.path, 1));
}
