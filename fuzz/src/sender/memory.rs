//! What P must remember of transfers that ended, in the plainest form.

use kvbaton_core::ids::{Grant, RequestId, TransferId};
use kvbaton_core::sender::Ended;

#[derive(Debug, Clone)]
pub(super) struct Remembered {
    pub ended: Ended,
    pub owner: Option<RequestId>,
    /// Whether P's engine knows.
    pub told: bool,
}

/// Bounded lists, the latest at the end `[P05, Z01]`.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    most: usize,
    ended: Vec<(TransferId, Remembered)>,
    dropped: Vec<(TransferId, Grant)>,
}

impl Memory {
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), ended: Vec::new(), dropped: Vec::new() }
    }

    pub fn remember(&mut self, id: &TransferId, what: Remembered) {
        self.forget(id);
        self.ended.push((id.clone(), what));
        if self.ended.len() > self.most {
            self.ended.remove(0);
        }
    }

    /// Looking counts as use.
    pub fn recall(&mut self, id: &TransferId) -> Option<&Remembered> {
        let known = self.forget(id)?;
        self.ended.push((id.clone(), known));
        self.ended.last().map(|(_, known)| known)
    }

    pub fn forget(&mut self, id: &TransferId) -> Option<Remembered> {
        let at = self.ended.iter().position(|(known, _)| known == id)?;
        Some(self.ended.remove(at).1)
    }

    pub fn remember_drop(&mut self, id: &TransferId, grant: Grant) {
        self.dropped.retain(|known| *known != (id.clone(), grant));
        self.dropped.push((id.clone(), grant));
        if self.dropped.len() > self.most {
            self.dropped.remove(0);
        }
    }

    pub fn was_dropped(&self, id: &TransferId, grant: Grant) -> bool {
        self.dropped.iter().any(|(known, of)| known == id && *of == grant)
    }
}
