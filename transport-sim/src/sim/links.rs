//! What stands between two engines: cuts, slowness, chance.

use super::dice::Dice;
use crate::plan::Odds;
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;

/// All links, each in one direction, named by engines.
#[derive(Debug)]
pub struct Links {
    odds: Odds,
    dice: Dice,
    /// How many faults cut a link now.
    cut: BTreeMap<(u16, u16), u32>,
    /// Factors that slow a link now.
    slow: BTreeMap<(u16, u16), Vec<u32>>,
}

/// What becomes of a control message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It never comes.
    Lost,
    /// It comes after these times, in nanoseconds; twice when it was duplicated.
    Comes {
        /// The times.
        after: Vec<u64>,
        /// Whether it may overtake what was sent before.
        overtakes: bool,
    },
    /// The connection breaks, after this time.
    Breaks(u64),
}

fn name(from: u16, to: u16) -> u32 {
    u32::from(from) << 16 | u32::from(to)
}

impl Links {
    /// Links with these odds.
    #[must_use]
    pub fn new(seed: u64, odds: Odds) -> Self {
        Self { odds, dice: Dice::new(seed), cut: BTreeMap::new(), slow: BTreeMap::new() }
    }

    /// From now on nothing goes wrong by chance.
    pub fn calm(&mut self) {
        self.odds = self.odds.calmed();
    }

    /// What is left to chance now.
    #[must_use]
    pub const fn odds(&self) -> &Odds {
        &self.odds
    }

    /// The streams, for what is no link's.
    pub const fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    /// Cuts a link, or takes one cut back.
    pub fn cut(&mut self, from: u16, to: u16, cut: bool) {
        let cuts = self.cut.entry((from, to)).or_default();
        *cuts = if cut { *cuts + 1 } else { cuts.saturating_sub(1) };
    }

    /// Whether a link is cut.
    #[must_use]
    pub fn is_cut(&self, from: u16, to: u16) -> bool {
        self.cut.get(&(from, to)).is_some_and(|cuts| *cuts > 0)
    }

    /// Slows a link, or takes that back.
    pub fn slow(&mut self, from: u16, to: u16, times: u32, slow: bool) {
        let factors = self.slow.entry((from, to)).or_default();
        if slow {
            factors.push(times);
        } else if let Some(at) = factors.iter().position(|it| *it == times) {
            factors.remove(at);
        }
    }

    fn factor(&self, from: u16, to: u16) -> u64 {
        self.slow.get(&(from, to)).into_iter().flatten().map(|it| u64::from(*it)).product()
    }

    /// How long anything takes from one engine to another, in nanoseconds.
    pub fn latency(&mut self, from: u16, to: u16) -> u64 {
        let (low, high) = (self.odds.latency_min_ms * MS, self.odds.latency_max_ms * MS);
        self.dice.between("latency", name(from, to), low, high) * self.factor(from, to)
    }

    /// How long `bytes` take to be put on a link, in nanoseconds.
    #[must_use]
    pub fn transmission(&self, from: u16, to: u16, bytes: u64) -> u64 {
        (bytes * MS / self.odds.bandwidth.max(1)).max(MS) * self.factor(from, to)
    }

    /// Draws what becomes of a control message.
    pub fn message(&mut self, from: u16, to: u16) -> Fate {
        let link = name(from, to);
        let Odds { loss, duplication, reordering, reset, delay_ms, .. } = self.odds;
        if self.is_cut(from, to) || self.dice.happens("loss", link, loss) {
            return Fate::Lost;
        }
        let first = self.latency(from, to);
        if self.dice.happens("reset", link, reset) {
            return Fate::Breaks(first);
        }
        let overtakes = self.dice.happens("reordering", link, reordering);
        let late = if overtakes { self.dice.between("delay", link, 0, delay_ms * MS) } else { 0 };
        let mut after = vec![first + late];
        if self.dice.happens("duplication", link, duplication) {
            after.push(self.latency(from, to) + self.dice.between("delay", link, 0, delay_ms * MS));
        }
        Fate::Comes { after, overtakes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(odds: Odds) -> Links {
        Links::new(7, odds)
    }

    #[test]
    fn a_cut_is_one_way_and_counts() {
        let mut links = links(Odds::default());
        links.cut(0, 1, true);
        links.cut(0, 1, true);
        links.cut(0, 1, false);
        assert_eq!(links.message(0, 1), Fate::Lost);
        assert!(matches!(links.message(1, 0), Fate::Comes { .. }));
        links.cut(0, 1, false);
        assert!(matches!(links.message(0, 1), Fate::Comes { .. }));
    }

    #[test]
    fn a_slow_link_is_slow_in_its_direction_until_it_is_not() {
        let odds = Odds { latency_min_ms: 2, latency_max_ms: 2, ..Odds::default() };
        let mut links = links(odds);
        links.slow(0, 1, 10, true);
        assert_eq!((links.latency(0, 1), links.latency(1, 0)), (20 * MS, 2 * MS));
        links.slow(0, 1, 10, false);
        assert_eq!(links.latency(0, 1), 2 * MS);
    }

    #[test]
    fn what_one_link_draws_does_not_depend_on_another() {
        let odds = Odds { loss: 5_000, latency_max_ms: 50, ..Odds::default() };
        let (mut one, mut two) = (links(odds.clone()), links(odds));
        for _ in 0..50 {
            two.message(1, 0);
        }
        for _ in 0..50 {
            assert_eq!(one.message(0, 1), two.message(0, 1));
        }
    }
}
