//! What must happen in time. Time does not count for a node while it is stopped.

use crate::history::{Event, Lane, NodeId, What};
use crate::plan::Plan;
use std::collections::{BTreeMap, BTreeSet};

/// Nanoseconds of a millisecond.
pub(super) const MS: u64 = 1_000_000;

/// How engines' clocks deviate from the world's.
#[derive(Debug)]
pub(super) struct Clocks(Vec<i64>);

impl Clocks {
    pub fn of(plan: &Plan) -> Self {
        Self(plan.fleet.engines.iter().map(|it| i64::from(it.drift_ppm)).collect())
    }

    fn scale(&self, node: NodeId, ms: u64, drift: impl Fn(i64) -> i64) -> u64 {
        let drift = drift(self.0.get(usize::from(node.engine)).copied().unwrap_or(0));
        let million = 1_000_000_i64;
        let rate = (million + drift).max(1).unsigned_abs();
        let ns = u128::from(ms) * u128::from(MS) * 1_000_000 / u128::from(rate);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// The longest that a node's `ms` take in the world, in nanoseconds.
    pub fn longest(&self, node: NodeId, ms: u64) -> u64 {
        self.scale(node, ms, |drift| drift.min(0))
    }

    /// The shortest.
    pub fn shortest(&self, node: NodeId, ms: u64) -> u64 {
        self.scale(node, ms, |drift| drift.max(0))
    }
}

#[derive(Debug)]
struct Life<K> {
    stopped_since: Option<u64>,
    stopped: u64,
    by_time: BTreeSet<(u64, K)>,
    by_key: BTreeMap<K, u64>,
}

impl<K: Ord> Life<K> {
    /// How long it has run, counted from the world's start.
    fn running(&self, now: u64) -> u64 {
        now - self.stopped - self.stopped_since.map_or(0, |since| now - since)
    }
}

/// Deadlines of the lives that run, ours and stock ones.
#[derive(Debug)]
pub(super) struct Due<K> {
    lives: BTreeMap<NodeId, Life<K>>,
    /// Nothing is late before.
    next: u64,
}

impl<K> Default for Due<K> {
    fn default() -> Self {
        Self { lives: BTreeMap::new(), next: u64::MAX }
    }
}

impl<K: Ord + Clone> Due<K> {
    /// Takes each event before the oracle itself does. Returns what is late, if anything is.
    pub fn late(&mut self, event: &Event) -> Option<(NodeId, K)> {
        if event.at > self.next {
            self.next = u64::MAX;
            for (node, life) in &self.lives {
                let Some((due, key)) = life.by_time.first() else { continue };
                let running = life.running(event.at);
                if running > *due {
                    return Some((*node, key.clone()));
                }
                self.next = self.next.min(event.at + (due - running));
            }
        }
        if let Lane::Node(node) = event.lane {
            self.lived(node, event);
        }
        None
    }

    fn lived(&mut self, node: NodeId, event: &Event) {
        match event.what {
            What::Started { .. } => {
                let life = Life {
                    stopped_since: None,
                    stopped: 0,
                    by_time: BTreeSet::new(),
                    by_key: BTreeMap::new(),
                };
                self.lives.insert(node, life);
            }
            What::Killed => {
                self.lives.remove(&node);
            }
            What::Stopped => {
                if let Some(life) = self.lives.get_mut(&node) {
                    life.stopped_since.get_or_insert(event.at);
                }
            }
            What::Continued => {
                if let Some(life) = self.lives.get_mut(&node) {
                    let since = life.stopped_since.take().unwrap_or(event.at);
                    life.stopped += event.at - since;
                }
            }
            _ => {}
        }
    }

    /// Sets or moves a deadline: `within` nanoseconds from `now`.
    pub fn set(&mut self, node: NodeId, key: K, now: u64, within: u64) {
        self.clear(node, &key);
        let Some(life) = self.lives.get_mut(&node) else { return };
        let due = life.running(now).saturating_add(within);
        life.by_time.insert((due, key.clone()));
        life.by_key.insert(key, due);
        self.next = self.next.min(now.saturating_add(within));
    }

    /// Sets a deadline unless a later one is set.
    pub fn extend(&mut self, node: NodeId, key: K, now: u64, within: u64) {
        let Some(life) = self.lives.get(&node) else { return };
        let due = life.running(now).saturating_add(within);
        if life.by_key.get(&key).is_none_or(|set| *set < due) {
            self.set(node, key, now, within);
        }
    }

    /// It has happened, or need not any more.
    pub fn clear(&mut self, node: NodeId, key: &K) {
        let Some(life) = self.lives.get_mut(&node) else { return };
        if let Some((key, due)) = life.by_key.remove_entry(key) {
            life.by_time.remove(&(due, key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{D, P, Story, plan};

    #[test]
    fn time_stands_still_for_a_node_that_is_stopped() {
        let mut due = Due::default();
        let story = Story::new().at(1).d(What::Stopped).at(100).d(What::Continued).at(110);
        for event in story.world(What::Healed).events() {
            if event.at == MS && event.what == What::Stopped {
                due.set(D, "key", MS, 12 * MS);
            }
            assert_eq!(due.late(&event), None, "{event}");
        }
        let late = Event { at: 112 * MS, lane: Lane::World, what: What::Healed };
        assert_eq!(due.late(&Event { at: 112 * MS - 1, ..late.clone() }), None);
        assert_eq!(due.late(&late), None);
        assert_eq!(due.late(&Event { at: 112 * MS + 1, ..late.clone() }), Some((D, "key")));
        due.clear(D, &"key");
        assert_eq!(due.late(&Event { at: 999 * MS, ..late }), None);
    }

    #[test]
    fn clocks_bound_both_ways() {
        let mut plan = plan();
        plan.fleet.engines[0].drift_ppm = -500_000;
        plan.fleet.engines[1].drift_ppm = 1_000_000;
        let clocks = Clocks::of(&plan);
        assert_eq!((clocks.longest(P, 1), clocks.shortest(P, 1)), (2 * MS, MS));
        assert_eq!((clocks.longest(D, 1), clocks.shortest(D, 1)), (MS, MS / 2));
    }
}
