//! Something that every rank of an engine does, and that is over once the last has.

use kvbaton_core::ids::RequestId;
use std::collections::BTreeMap;

/// Ends that are outstanding: which ranks are still to report.
#[derive(Debug)]
pub struct Gather<T> {
    open: BTreeMap<RequestId, (Vec<bool>, T)>,
}

impl<T> Default for Gather<T> {
    fn default() -> Self {
        Self { open: BTreeMap::new() }
    }
}

impl<T> Gather<T> {
    /// Expects `ranks` reports.
    pub fn start(&mut self, request: RequestId, ranks: usize, value: T) {
        self.open.insert(request, (vec![false; ranks], value));
    }

    /// Takes one rank's report; gives the value back once it was the last.
    pub fn report(
        &mut self,
        request: &RequestId,
        rank: usize,
        note: impl FnOnce(&mut T),
    ) -> Option<T> {
        let (ranks, value) = self.open.get_mut(request)?;
        if std::mem::replace(&mut ranks[rank], true) {
            return None;
        }
        note(value);
        if ranks.iter().all(|reported| *reported) {
            return self.open.remove(request).map(|(_, value)| value);
        }
        None
    }

    /// Whether reports are outstanding.
    #[must_use]
    pub fn contains(&self, request: &RequestId) -> bool {
        self.open.contains_key(request)
    }

    /// Requests with reports outstanding.
    pub fn requests(&self) -> impl Iterator<Item = &RequestId> {
        self.open.keys()
    }
}
