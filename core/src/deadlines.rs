//! Deadlines by time, so that waiting costs nothing however many wait.

use crate::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// At most one deadline per key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadlines<K> {
    by_time: BTreeSet<(Timestamp, K)>,
    by_key: BTreeMap<K, Timestamp>,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self { by_time: BTreeSet::new(), by_key: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Deadlines<K> {
    /// Sets or moves the key's deadline; [`Timestamp::NEVER`] removes it.
    pub fn set(&mut self, key: K, at: Timestamp) {
        self.clear(&key);
        if at != Timestamp::NEVER {
            self.by_time.insert((at, key.clone()));
            self.by_key.insert(key, at);
        }
    }

    /// Removes the key's deadline.
    pub fn clear(&mut self, key: &K) {
        if let Some((key, at)) = self.by_key.remove_entry(key) {
            self.by_time.remove(&(at, key));
        }
    }

    /// The earliest deadline.
    #[must_use]
    pub fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Removes and returns the earliest key whose deadline is not after `now`.
    pub fn pop_due(&mut self, now: Timestamp) -> Option<K> {
        let (at, _) = self.by_time.first()?;
        if *at > now {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.by_key.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_due_in_order_and_once() {
        let mut deadlines = Deadlines::default();
        deadlines.set("b", Timestamp(2));
        deadlines.set("a", Timestamp(9));
        deadlines.set("a", Timestamp(1));
        deadlines.set("c", Timestamp::NEVER);
        assert_eq!(deadlines.next(), Some(Timestamp(1)));
        assert_eq!(deadlines.pop_due(Timestamp(0)), None);
        assert_eq!(deadlines.pop_due(Timestamp(2)), Some("a"));
        assert_eq!(deadlines.pop_due(Timestamp(2)), Some("b"));
        assert_eq!(deadlines.pop_due(Timestamp(99)), None);
        assert_eq!(deadlines, Deadlines::default());
    }
}
