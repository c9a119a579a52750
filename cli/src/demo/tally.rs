//! What came of the requests, and the verdict.

use serde::Serialize;
use std::collections::BTreeMap;

/// Problems that are kept in words.
const MAX_PROBLEMS: usize = 10;

/// How the demo ended; its number is the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Everything was right.
    Right = 0,
    /// An answer, a byte or a block was not.
    Different = 1,
    /// The options make no sense together.
    Usage = 2,
    /// The demo could not run.
    CouldNotRun = 3,
}

impl Verdict {
    /// The exit code.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        self as u8
    }
}

/// One load that D finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadRecord {
    /// When D asked for it.
    pub started: u64,
    /// When D had it.
    pub loaded: u64,
    /// Logical blocks, over all groups.
    pub blocks: u64,
    /// Bytes, over D's ranks.
    pub bytes: u64,
    /// Tokens that D had already.
    pub hit_tokens: usize,
}

/// Counts and times of one phase's requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// Requests answered right.
    pub right: u64,
    /// Requests answered wrong.
    pub wrong: u64,
    /// Requests without an answer.
    pub failed: u64,
    /// Attempts that another attempt followed.
    pub retried: u64,
    /// Loads that failed.
    pub load_failures: u64,
    /// Requests whose KV D computed itself after its load failed.
    pub recomputed: u64,
    /// Bytes of loaded KV that were compared.
    pub compared: u64,
    /// Of these, bytes that differ.
    pub different: u64,
    /// What went wrong, the first few.
    pub problems: Vec<String>,
    /// Failures that chaos explains, the first few.
    pub expected_errors: Vec<String>,
    /// When P held each attempt's KV.
    pub held: BTreeMap<u64, u64>,
    /// Each attempt's load.
    pub loads: BTreeMap<u64, LoadRecord>,
}

impl Tally {
    /// Takes D's answer to a request.
    pub fn answer(&mut self, who: &str, expected: &[u32], got: &[u32]) {
        if expected == got {
            self.right += 1;
            return;
        }
        self.wrong += 1;
        self.problem(format!("{who} answered {got:?} instead of {expected:?}"));
    }

    /// Takes what a comparison of loaded bytes found.
    pub fn compared(&mut self, who: &str, bytes: u64, different: u64, first: Option<String>) {
        self.compared += bytes;
        self.different += different;
        if different > 0 {
            let first = first.unwrap_or_default();
            self.problem(format!(
                "{who}: {different} of {bytes} loaded bytes differ; first {first}"
            ));
        }
    }

    /// Notes what went wrong.
    pub fn problem(&mut self, what: String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(what);
        }
    }

    /// Notes a failure that is followed by another attempt.
    pub fn expected_error(&mut self, what: String) {
        if self.expected_errors.len() < MAX_PROBLEMS {
            self.expected_errors.push(what);
        }
    }

    /// The verdict over these requests. A problem in words is enough to fail.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let wrong = self.wrong + self.failed + self.different;
        if wrong == 0 && self.problems.is_empty() { Verdict::Right } else { Verdict::Different }
    }

    /// Nanoseconds from P ready to D loaded, for each load that was timed on both sides.
    #[must_use]
    pub fn ready_to_loaded(&self) -> Vec<u64> {
        let since = |(attempt, load): (&u64, &LoadRecord)| {
            self.held.get(attempt).map(|&held| load.loaded.saturating_sub(held))
        };
        self.loads.iter().filter_map(since).collect()
    }

    /// Nanoseconds during which at least one load had both sides ready and was not over.
    #[must_use]
    pub fn loading_nanos(&self) -> u64 {
        let span = |(attempt, load): (&u64, &LoadRecord)| {
            let from = self.held.get(attempt).copied().unwrap_or(load.started).max(load.started);
            (from.min(load.loaded), load.loaded)
        };
        let mut spans: Vec<(u64, u64)> = self.loads.iter().map(span).collect();
        spans.sort_unstable();
        let (mut total, mut covered) = (0, 0);
        for (from, to) in spans {
            total += to.saturating_sub(from.max(covered));
            covered = covered.max(to);
        }
        total
    }
}

/// The value that `percent` percent of the values do not exceed; `None` without values.
#[must_use]
pub fn percentile(values: &mut [u64], percent: usize) -> Option<u64> {
    values.sort_unstable();
    let rank = (values.len() * percent).div_ceil(100).max(1);
    values.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Model, ModelKind, WEIGHTS};
    use crate::mapping::Mapping;
    use kvbaton_core::ids::{Address, BlockId, RequestId};
    use kvbaton_model_engine::{
        BlockTable, KvMemory, PrefixChain, Rank, RankLayout, RankPlace, Step,
    };

    /// What a comparison finds in real memory of which one byte was changed by `flip`.
    fn compare_after(flip: u8) -> kvbaton_model_engine::Comparison {
        let shape = Model::new(ModelKind::Dense, None).unwrap().shape();
        let layout = RankLayout::new(&shape, RankPlace::SINGLE, 4, Address(4096)).unwrap();
        let mut memory = Mapping::new(layout.range().len.0 as usize).unwrap();
        let rank = Rank::new(shape, RankPlace::SINGLE, 4, memory.start()).unwrap();
        let prefix = PrefixChain::new(WEIGHTS, &(0..20).collect::<Vec<_>>()).hashes().to_vec();
        let table = BlockTable { groups: vec![vec![BlockId(3), BlockId(1)]] };
        let step = Step { request: RequestId::from("r"), from: 0, to: 20, prefix, table };
        rank.write(&mut memory, &step);
        let victim = Address(memory.start().0 + layout.tensors[0].page_size + 17);
        let mut byte = [0];
        memory.read(victim, &mut byte);
        memory.write(victim, &[byte[0] ^ flip]);
        rank.compare(&memory, &step)
    }

    #[test]
    fn one_flipped_byte_fails_the_demo() {
        for (flip, verdict, code) in [(0, Verdict::Right, 0), (1, Verdict::Different, 1)] {
            let found = compare_after(flip);
            assert_eq!(found.bytes, 20 * 8 * 8 * 256);
            let mut tally = Tally::default();
            tally.answer("request 0", &[7], &[7]);
            let first = found.first.map(|first| first.to_string());
            tally.compared("request 0", found.bytes, found.different, first);
            assert_eq!((tally.different, tally.verdict()), (u64::from(flip), verdict));
            assert_eq!(tally.verdict().exit_code(), code);
        }
    }

    #[test]
    fn a_wrong_or_missing_answer_fails_the_demo() {
        let mut tally = Tally::default();
        tally.answer("request 0", &[1, 2], &[1, 3]);
        assert_eq!((tally.wrong, tally.verdict()), (1, Verdict::Different));
        let failed = Tally { failed: 1, ..Tally::default() };
        assert_eq!(failed.verdict(), Verdict::Different);
        assert_eq!((Verdict::Usage.exit_code(), Verdict::CouldNotRun.exit_code()), (2, 3));
    }

    #[test]
    fn time_of_loads_that_overlap_counts_once_and_waiting_for_p_does_not() {
        let load =
            |started, loaded| LoadRecord { started, loaded, blocks: 1, bytes: 1, hit_tokens: 0 };
        let tally = Tally {
            held: [(0, 10), (1, 25), (2, 90)].into(),
            loads: [(0, load(0, 30)), (1, load(20, 40)), (2, load(95, 100))].into(),
            ..Tally::default()
        };
        assert_eq!(tally.loading_nanos(), 35);
        assert_eq!(tally.ready_to_loaded(), [20, 15, 10]);
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let mut values: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(percentile(&mut values, 50), Some(50));
        assert_eq!(percentile(&mut values, 99), Some(99));
        assert_eq!(percentile(&mut [7], 99), Some(7));
        assert_eq!(percentile(&mut [], 50), None);
    }
}
