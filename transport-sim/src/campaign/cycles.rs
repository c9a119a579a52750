//! What a run of many sleeps came to: answers, and whether tables stay as they are.

use crate::history::{Answer, Event, Lane, NodeId, Tables, What};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// What it came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cycles {
    /// KV caches that were unmapped and woke again, over all engines.
    pub wakes: u64,
    /// Those of them that met requests.
    pub loaded: u64,
    /// Requests that have their tokens.
    pub answered: u64,
    /// Requests that ended otherwise, by how.
    pub otherwise: BTreeMap<String, u64>,
    /// Entries of all tables of a node, at most, in the second quarter of its wakes.
    pub early: u64,
    /// The same in the last quarter.
    pub late: u64,
}

impl Cycles {
    /// Looks through a run.
    #[must_use]
    pub fn of(events: &[Event]) -> Self {
        let (mut open, otherwise) = (0_u64, BTreeMap::new());
        let mut it = Self { wakes: 0, loaded: 0, answered: 0, otherwise, early: 0, late: 0 };
        let mut tables: BTreeMap<NodeId, Vec<u64>> = BTreeMap::new();
        for event in events {
            match (&event.what, event.lane) {
                (What::Woke, _) => {
                    it.wakes += 1;
                    it.loaded += u64::from(open > 0);
                }
                (What::Submitted { .. }, _) => open += 1,
                (What::Answered { answer: Answer::Tokens { .. }, .. }, _) => {
                    open = open.saturating_sub(1);
                    it.answered += 1;
                }
                (What::Answered { answer, .. }, _) => {
                    open = open.saturating_sub(1);
                    *it.otherwise.entry(answer.to_string()).or_default() += 1;
                }
                (What::Tables(of), Lane::Node(node)) => {
                    tables.entry(node).or_default().push(entries(of));
                }
                _ => {}
            }
        }
        for sizes in tables.values() {
            let quarter = sizes.len() / 4;
            let most = |from: usize, to: usize| sizes[from..to].iter().copied().max().unwrap_or(0);
            it.early = it.early.max(most(quarter, quarter * 2));
            it.late = it.late.max(most(quarter * 3, sizes.len()));
        }
        it
    }

    /// Whether every request has its tokens, there were some nearly all the time, and no table
    /// has grown.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.otherwise.is_empty()
            && self.loaded * 10 >= self.wakes * 9
            && self.late <= self.early + self.early / 2 + 16
    }
}

fn entries(it: &Tables) -> u64 {
    it.held
        + it.pulls
        + it.writes
        + it.loads
        + it.open_pulls
        + it.transfers
        + it.layouts
        + it.grants
        + it.connections
}

impl fmt::Display for Cycles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} wakes, {} of them under load, {} requests answered, entries of a node's tables at \
             most: {} early, {} late",
            self.wakes, self.loaded, self.answered, self.early, self.late
        )?;
        self.otherwise.iter().try_for_each(|(how, count)| write!(f, "; {count} × {how}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_grow_and_requests_that_fail_are_seen() {
        let node = Lane::Node(NodeId { engine: 0, rank: 0, life: 0 });
        let tables = |held| What::Tables(Tables { held, ..Tables::default() });
        let run = |size: fn(u64) -> u64| -> Vec<Event> {
            (0..40).map(|at| Event { at, lane: node, what: tables(size(at)) }).collect()
        };
        assert!(Cycles::of(&run(|_| 7)).is_well());
        let grown = Cycles::of(&run(|at| at * 2));
        assert_eq!((grown.early, grown.late), (38, 78));
        assert!(!grown.is_well());
        let what = What::Answered { request: 1, attempt: 0, answer: Answer::LoadFailed };
        let failed = Cycles::of(&[Event { at: 0, lane: Lane::Clients, what }]);
        assert!(!failed.is_well() && failed.to_string().contains("1 × its load failed"));
    }
}
