//! Heights: a row per event, a little more where time passes, and room for the violation.

use super::select::Selection;
use super::svg::{escape, wrap};
use crate::history::Event;
use crate::oracles::Violation;
use std::collections::BTreeMap;
use std::fmt::Write;

const TOP: i64 = 16;
const ROW: i64 = 17;
const GAP: i64 = 12;
/// Time without events that makes a gap, in nanoseconds.
const PAUSE: u64 = 10_000_000;
const LETTERS: usize = 110;

/// Where each event stands.
pub struct Rows {
    heights: BTreeMap<usize, i64>,
    /// Height and text of the time axis.
    stamps: Vec<(i64, String, bool)>,
    /// Where the violation's words begin.
    violation: Option<i64>,
    height: i64,
}

impl Rows {
    pub fn new(events: &[Event], shown: &Selection, violation: Option<&Violation>) -> Self {
        let words = violation.map_or(0, |it| words(it).len() as i64);
        let mut rows =
            Self { heights: BTreeMap::new(), stamps: Vec::new(), violation: None, height: TOP };
        let mut last: Option<u64> = None;
        for index in shown.iter() {
            let at = events[index].at;
            if let Some(gap) = last.map(|it| at.saturating_sub(it)).filter(|it| *it >= PAUSE) {
                rows.stamps.push((rows.height, format!("… {} ms …", gap / 1_000_000), true));
                rows.height += GAP;
            }
            if last.is_none_or(|it| it / 100_000 != at / 100_000) {
                let (ms, tenths) = (at / 1_000_000, at / 100_000 % 10);
                rows.stamps.push((rows.height, format!("{ms}.{tenths} ms"), false));
            }
            last = Some(at);
            rows.heights.insert(index, rows.height);
            rows.height += ROW;
            if violation.is_some_and(|it| it.event == index) {
                rows.mark(words);
            }
        }
        if violation.is_some() && rows.violation.is_none() {
            rows.mark(words);
        }
        rows
    }

    fn mark(&mut self, words: i64) {
        self.violation = Some(self.height);
        self.height += words * ROW + GAP;
    }

    /// The middle of an event's row.
    pub fn y(&self, index: usize) -> Option<i64> {
        self.heights.get(&index).copied()
    }

    pub const fn height(&self) -> i64 {
        self.height + TOP
    }

    pub fn axis(&self, html: &mut String, width: i64) {
        for (y, text, gap) in &self.stamps {
            let class = if *gap { "gap" } else { "time" };
            let down = y + 4;
            let _ = writeln!(html, "<text class=\"{class}\" x=\"88\" y=\"{down}\">{text}</text>");
            if !gap {
                let _ = writeln!(
                    html,
                    "<line class=\"grid\" x1=\"92\" y1=\"{y}\" x2=\"{width}\" y2=\"{y}\" />"
                );
            }
        }
    }

    /// The band, with the oracle's words.
    pub fn violation(&self, html: &mut String, width: i64, violation: Option<&Violation>) {
        let (Some(y), Some(violation)) = (self.violation, violation) else { return };
        let lines = words(violation);
        let (top, height) = (y - ROW - 9, (lines.len() as i64 + 1) * ROW + 9);
        let _ = writeln!(
            html,
            "<rect id=\"violation\" class=\"violation\" x=\"0\" y=\"{top}\" width=\"{width}\" \
             height=\"{height}\" />"
        );
        for (index, line) in lines.iter().enumerate() {
            let down = y + 4 + index as i64 * ROW;
            let text = escape(line);
            let _ = writeln!(html, "<text class=\"bad\" x=\"12\" y=\"{down}\">{text}</text>");
        }
    }
}

fn words(violation: &Violation) -> Vec<String> {
    let Violation { oracle, rules, text, .. } = violation;
    wrap(&format!("{oracle} [{}]: {text}", rules.join(" ")), LETTERS)
}
