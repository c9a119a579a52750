//! Something that every rank of an engine does, and that is over once the last has.

use std::collections::BTreeMap;

/// Ends that are outstanding, by request: which ranks are still to report.
#[derive(Debug)]
pub struct Gather<T> {
    open: BTreeMap<String, Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    ranks: Vec<bool>,
    value: T,
}

impl<T> Default for Gather<T> {
    fn default() -> Self {
        Self { open: BTreeMap::new() }
    }
}

impl<T> Gather<T> {
    /// Expects `ranks` reports for `request`.
    pub fn start(&mut self, request: &str, ranks: usize, value: T) {
        self.open.insert(request.to_owned(), Entry { ranks: vec![false; ranks], value });
    }

    /// Takes one rank's report, after `note` has seen what is kept with the request; gives
    /// that back once it was the last. A rank reports once; more change nothing.
    pub fn report(&mut self, request: &str, rank: usize, note: impl FnOnce(&mut T)) -> Option<T> {
        let entry = self.open.get_mut(request)?;
        if std::mem::replace(&mut entry.ranks[rank], true) {
            return None;
        }
        note(&mut entry.value);
        if entry.ranks.iter().all(|reported| *reported) {
            return self.open.remove(request).map(|entry| entry.value);
        }
        None
    }

    /// Whether reports of `request` are outstanding.
    pub fn contains(&self, request: &str) -> bool {
        self.open.contains_key(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p08_it_is_over_once_and_only_after_the_last_rank() {
        let mut gather = Gather::default();
        gather.start("r", 2, Vec::new());
        assert_eq!(gather.report("r", 1, |said| said.push("one")), None);
        assert_eq!(gather.report("r", 1, |said| said.push("again")), None);
        assert!(gather.contains("r"));
        assert_eq!(gather.report("r", 0, |said| said.push("zero")), Some(vec!["one", "zero"]));
        assert_eq!(gather.report("r", 0, |said| said.push("late")), None);
        assert!(!gather.contains("r"));
    }
}
