//! Deadlines by time, so that waiting costs nothing however many wait.

use crate::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// At most one deadline per key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
    use proptest::prelude::*;

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

    proptest! {
        #[test]
        fn f25_every_key_comes_due_once_at_its_latest_deadline(
            sets in prop::collection::vec((0u8..6, 0u64..20), 0..40),
            cleared in 0u8..6,
        ) {
            let mut deadlines = Deadlines::default();
            let mut expected = BTreeMap::new();
            for (key, at) in sets {
                let at = if at == 19 { Timestamp::NEVER } else { Timestamp(at) };
                deadlines.set(key, at);
                expected.insert(key, at);
            }
            deadlines.clear(&cleared);
            expected.remove(&cleared);
            expected.retain(|_, at| *at != Timestamp::NEVER);
            for now in (0..20).map(Timestamp) {
                prop_assert_eq!(deadlines.next(), expected.values().min().copied());
                while let Some(key) = deadlines.pop_due(now) {
                    prop_assert_eq!(expected.remove(&key), Some(now));
                }
            }
            prop_assert!(expected.is_empty());
            prop_assert_eq!(deadlines, Deadlines::default());
        }
    }
}
