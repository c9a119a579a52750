//! The 27 cases of the published matrix, and what each asks of the two engines.

use super::setup::FIRST_VERSION;
use super::traffic::{D, P};
use crate::engine::{Awake, Mode, Operate};

/// One thing that an operator does while requests run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// These, at the same time.
    Do(Vec<(usize, Operate)>),
    /// As [`Self::Do`]; the prefix caches are empty afterwards, or are not, as told.
    Reset(bool),
    /// Half of the clients go away.
    Disconnect,
}

/// What sleeps between down and up, and must have been given back to the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asleep {
    /// KV memory.
    pub kv: bool,
    /// Weights.
    pub weights: bool,
}

/// One case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    pub name: String,
    /// What is done.
    pub down: Vec<Act>,
    /// What is done a moment later, so that requests go on.
    pub up: Vec<Act>,
    pub asleep: Asleep,
    /// Whether it ends requests without an answer.
    pub aborts: bool,
    /// Whether it ends requests on P, so that the router tries them again.
    pub aborts_on_p: bool,
    /// Whether it cuts loads or requests short, which are recomputed then.
    pub cuts_short: bool,
}

impl Case {
    fn new(name: impl Into<String>, down: Vec<Act>, up: Vec<Act>) -> Self {
        Self {
            name: name.into(),
            down,
            up,
            asleep: Asleep::default(),
            aborts: false,
            aborts_on_p: false,
            cuts_short: true,
        }
    }
}

fn on_both(operate: Operate) -> Act {
    Act::Do(vec![(P, operate), (D, operate)])
}

/// All of them, in the matrix' order.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for mode in [Mode::Abort, Mode::Wait, Mode::Keep] {
        for who in [&[P][..], &[D], &[D, P]] {
            for clear in [false, true] {
                cases.push(pause(mode, who, clear));
            }
        }
    }
    for level in 0..=2 {
        let down = vec![on_both(Operate::Sleep { level, mode: Mode::Keep })];
        let mut up = vec![on_both(Operate::Wake { parts: Awake::All })];
        if level == 2 {
            up.push(on_both(Operate::UpdateWeights {
                version: FIRST_VERSION + 1,
                mode: Mode::Keep,
            }));
        }
        let asleep = Asleep { kv: level > 0, weights: level > 0 };
        let cuts_short = level > 0;
        let case = Case::new(format!("sleep {level}"), down, up);
        cases.push(Case { asleep, cuts_short, ..case });
    }
    let aborted = vec![on_both(Operate::AbortRequests)];
    let case = Case::new("abort_requests", aborted, Vec::new());
    cases.push(Case { aborts: true, aborts_on_p: true, ..case });
    cases.push(Case::new(
        "reset_prefix_cache",
        vec![Act::Reset(false), Act::Reset(true)],
        Vec::new(),
    ));
    let down = vec![on_both(Operate::ReleaseKv { mode: Mode::Keep })];
    let up = vec![on_both(Operate::Wake { parts: Awake::All })];
    let asleep = Asleep { kv: true, weights: false };
    cases.push(Case { asleep, ..Case::new("release of KV memory", down, up) });
    // One after the other: in between P holds KV of other weights than D's.
    let reload = Operate::UpdateWeights { version: FIRST_VERSION + 1, mode: Mode::Keep };
    let [down, up] = [D, P].map(|slot| vec![Act::Do(vec![(slot, reload)])]);
    cases.push(Case::new("in-place weight reload", down, up));
    let gone = Case::new("client disconnects", vec![Act::Disconnect], Vec::new());
    cases.push(Case { aborts: true, cuts_short: false, ..gone });
    cases.push(Case::new("abort_transfers", vec![on_both(Operate::AbortTransfers)], Vec::new()));
    cases
}

/// D is paused first where requests are to finish on both: what it loads P must still prefill.
fn pause(mode: Mode, who: &[usize], clear: bool) -> Case {
    let names = ["P", "D"];
    let who_name = if who.len() == 2 { "both" } else { names[who[0]] };
    let mode_name = match mode {
        Mode::Abort => "abort",
        Mode::Wait => "wait",
        Mode::Keep => "keep",
    };
    let operate = Operate::Pause { mode, clear };
    let each = who.iter().map(|&slot| (slot, operate));
    let down = match mode {
        Mode::Wait => each.map(|one| Act::Do(vec![one])).collect(),
        _ => vec![Act::Do(each.collect())],
    };
    let up = vec![Act::Do(who.iter().map(|&slot| (slot, Operate::Resume)).collect())];
    let cleared = if clear { ", clear" } else { "" };
    let case = Case::new(format!("pause {mode_name} {who_name}{cleared}"), down, up);
    let ends = |slot| mode == Mode::Abort && who.contains(&slot);
    Case { aborts: ends(D), aborts_on_p: ends(P), cuts_short: clear || ends(P), ..case }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn there_are_27_of_different_names() {
        let names: BTreeSet<String> = all().into_iter().map(|case| case.name).collect();
        assert_eq!(names.len(), 27, "{names:?}");
        assert!(names.contains("pause wait both, clear"), "{names:?}");
    }
}
