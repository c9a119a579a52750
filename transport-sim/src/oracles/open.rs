//! What was asked and has not ended, by the names that end it.

use crate::history::PullFacts;
use kvbaton_core::ids::{Grant, RequestId, TransferId};
use std::collections::BTreeMap;

/// A request's and a transfer's name.
pub(super) type Names = (RequestId, TransferId);

/// Loads or holds of one node. The same names may be open twice while the second is about
/// to be refused `[P11]`.
#[derive(Debug)]
pub(super) struct Open<T> {
    all: BTreeMap<Names, Vec<T>>,
    by_grant: BTreeMap<Grant, Names>,
}

impl<T> Default for Open<T> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), by_grant: BTreeMap::new() }
    }
}

impl<T> Open<T> {
    pub fn ask(&mut self, request: &RequestId, transfer: &TransferId, it: T) {
        self.all.entry((request.clone(), transfer.clone())).or_default().push(it);
    }

    /// The youngest of these names was refused.
    pub fn refuse(&mut self, request: &RequestId, transfer: &TransferId) -> Option<T> {
        self.take(request, transfer, Vec::len)
    }

    /// The oldest of these names has ended.
    pub fn end(&mut self, request: &RequestId, transfer: &TransferId) -> Option<T> {
        self.take(request, transfer, |_| 1)
    }

    fn take(
        &mut self,
        request: &RequestId,
        transfer: &TransferId,
        which: impl Fn(&Vec<T>) -> usize,
    ) -> Option<T> {
        let names = (request.clone(), transfer.clone());
        let found = self.all.get_mut(&names)?;
        let it = found.remove(which(found).checked_sub(1)?);
        if found.is_empty() {
            self.all.remove(&names);
        }
        Some(it)
    }

    /// A pull tells the grants of its loads.
    pub fn pull(&mut self, pull: &PullFacts) {
        for (request, transfer, _, grant) in &pull.requests {
            if let Some(grant) = grant {
                self.by_grant.insert(*grant, (request.clone(), transfer.clone()));
            }
        }
    }

    /// The grants of these names; they are forgotten.
    pub fn grants(&mut self, request: &RequestId, transfer: &TransferId) -> Vec<Grant> {
        let named = |it: &Names| it.0 == *request && it.1 == *transfer;
        let found = self.by_grant.iter().filter(|(_, it)| named(it));
        let grants: Vec<Grant> = found.map(|(grant, _)| *grant).collect();
        grants.iter().for_each(|it| drop(self.by_grant.remove(it)));
        grants
    }

    pub fn of_grant(&mut self, grant: Grant) -> Option<&mut T> {
        let names = self.by_grant.get(&grant)?;
        self.all.get_mut(names)?.first_mut()
    }

    pub fn get_mut(&mut self, request: &RequestId, transfer: &TransferId) -> Option<&mut T> {
        self.all.get_mut(&(request.clone(), transfer.clone()))?.first_mut()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Names, &T)> {
        self.all.iter().flat_map(|(names, all)| all.iter().map(move |it| (names, it)))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Names, &mut T)> {
        self.all.iter_mut().flat_map(|(names, all)| all.iter_mut().map(move |it| (names, it)))
    }
}
