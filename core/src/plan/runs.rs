//! Pairs P's blocks with D's, once per group, as runs of rows.

use super::copies::TokenEnds;
use super::prepare::GroupRule;
use crate::blocks::{BlockList, BlockRun};
use crate::incompatible::RequestError;
use crate::planted::{self, Bug};
use crate::region::GroupKind;

/// `rows` consecutive rows (kernel blocks) on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunPair {
    pub source: u64,
    pub destination: u64,
    pub rows: u64,
}

/// Reads blocks run by run, without the null blocks of state groups.
struct Cursor<'a> {
    rest: &'a [BlockRun],
    start: u64,
    left: u64,
    skip_null: bool,
}

impl<'a> Cursor<'a> {
    fn new(list: &'a BlockList, skip_null: bool) -> Self {
        let mut cursor = Self { rest: list.runs(), start: 0, left: 0, skip_null };
        cursor.refill();
        cursor
    }

    fn refill(&mut self) {
        while self.left == 0 {
            let Some((run, rest)) = self.rest.split_first() else { return };
            self.rest = rest;
            self.start = u64::from(run.start.0);
            self.left = u64::from(run.len);
            if self.skip_null && self.start == 0 {
                self.start = 1;
                self.left -= 1;
            }
        }
    }

    fn advance(&mut self, blocks: u64) {
        self.start += blocks;
        self.left -= blocks;
        self.refill();
    }

    fn skip(&mut self, mut blocks: u64) {
        while blocks > 0 && self.left > 0 {
            let step = blocks.min(self.left);
            self.advance(step);
            blocks -= step;
        }
    }
}

fn nulls(list: &BlockList) -> u64 {
    list.runs().iter().filter(|run| run.start.0 == 0).count() as u64
}

/// P's last blocks that D's end leaves out, by token position `[A06]`; negative when D
/// ends behind P. Never cuts a state, which is whole or nothing `[F48]`.
fn blocks_behind_end(rule: &GroupRule, ends: TokenEnds) -> i64 {
    match (ends.producer, ends.consumer) {
        (Some(ours), Some(theirs))
            if rule.block_tokens > 0 && rule.kind == GroupKind::Attention =>
        {
            i64::from(ours.div_ceil(rule.block_tokens))
                - i64::from(theirs.div_ceil(rule.block_tokens))
        }
        _ => 0,
    }
}

/// Appends the pairs of one group to `runs`, sorted by destination and merged. Returns
/// the number of logical blocks.
pub(super) fn zip_group(
    group: usize,
    rule: &GroupRule,
    local: &BlockList,
    remote: &BlockList,
    ends: TokenEnds,
    runs: &mut Vec<RunPair>,
) -> Result<u64, RequestError> {
    let is_state = rule.kind == GroupKind::State;
    let (mut ours, mut theirs) = (local.len(), remote.len());
    if is_state {
        ours -= nulls(local);
        theirs -= nulls(remote);
    }
    if theirs == 0 {
        return Ok(0);
    }
    let behind = blocks_behind_end(rule, ends);
    let usable = if behind >= 0 {
        ours.saturating_sub(behind.unsigned_abs())
    } else {
        ours.min(theirs.saturating_sub(behind.unsigned_abs()))
    };
    let Some(skip) = usable.checked_sub(theirs) else {
        return Err(RequestError::ProducerHasFewerBlocks { group, local: usable, remote: theirs });
    };
    let first = runs.len();
    let mut from = Cursor::new(local, is_state);
    let mut to = Cursor::new(remote, is_state);
    from.skip(if planted::is(Bug::HeadTakenForTail) { 0 } else { skip });
    // A block that D names again and again is its null block: sliding windows list it
    // where tokens have left the window. Positions stay paired, nothing is written.
    let drop_null = !is_state && nulls(remote) > 1;
    let factor = u64::from(rule.rows_per_block);
    while to.left > 0 {
        let mut blocks = from.left.min(to.left);
        if drop_null && to.start == 0 {
            blocks = 1;
        } else {
            runs.push(RunPair {
                source: from.start * factor,
                destination: to.start * factor,
                rows: blocks * factor,
            });
        }
        from.advance(blocks);
        to.advance(blocks);
    }
    sort_and_merge(group, runs, first)?;
    check_rows(group, rule, &runs[first..])?;
    Ok(theirs)
}

/// Orders `runs[first..]` by destination and merges what follows on; refuses rows that
/// would be written twice `[A07]`.
pub(super) fn sort_and_merge(
    group: usize,
    runs: &mut Vec<RunPair>,
    first: usize,
) -> Result<(), RequestError> {
    let tail = &mut runs[first..];
    if tail.len() < 2 {
        return Ok(());
    }
    if !tail.is_sorted_by_key(|run| run.destination) {
        tail.sort_unstable_by_key(|run| run.destination);
    }
    let mut kept = 0;
    for index in 1..tail.len() {
        let next = tail[index];
        let last = &mut tail[kept];
        if next.destination < last.destination + last.rows {
            return Err(RequestError::BlockNamedTwice { group, block: next.destination });
        }
        if last.destination + last.rows == next.destination
            && last.source + last.rows == next.source
        {
            last.rows += next.rows;
        } else {
            kept += 1;
            tail[kept] = next;
        }
    }
    runs.truncate(first + kept + 1);
    Ok(())
}

/// Every row exists on both sides `[A09]`.
fn check_rows(group: usize, rule: &GroupRule, runs: &[RunPair]) -> Result<(), RequestError> {
    let out_of_range =
        |side, block, rows| Err(RequestError::BlockOutOfRange { group, side, block, rows });
    for run in runs {
        if run.source + run.rows > rule.source_rows {
            return out_of_range("prefill", run.source + run.rows - 1, rule.source_rows);
        }
        if run.destination + run.rows > rule.destination_rows {
            return out_of_range("decode", run.destination + run.rows - 1, rule.destination_rows);
        }
    }
    Ok(())
}
