//! Which events a page shows.

use crate::history::{Event, What};
use crate::oracles::Violation;

/// Indexes of the events that are shown, in order.
pub struct Selection {
    indexes: Vec<usize>,
    left_out: usize,
}

impl Selection {
    /// All events but tables; beyond `most`, those before the violation and a few after it.
    pub fn new(events: &[Event], violation: Option<&Violation>, most: usize) -> Self {
        let told = |it: &&usize| !matches!(events[**it].what, What::Tables(_));
        let bad = violation.map(|it| it.event);
        let all: Vec<_> = (0..events.len()).collect();
        let all: Vec<_> = all.iter().filter(|it| told(it) || bad == Some(**it)).copied().collect();
        if all.len() <= most {
            return Self { indexes: all, left_out: 0 };
        }
        let after = most / 10;
        let at = bad.map_or(all.len(), |it| all.partition_point(|index| *index < it));
        let end = (at + after).min(all.len());
        let start = end.saturating_sub(most);
        let end = (start + most).min(all.len());
        Self { indexes: all[start..end].to_vec(), left_out: all.len() - most }
    }

    /// The indexes.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.indexes.iter().copied()
    }

    /// What is not shown, in words.
    pub fn note(&self) -> Option<String> {
        let (shown, left_out) = (self.indexes.len(), self.left_out);
        (left_out > 0).then(|| {
            format!(
                "Only the {shown} events around the violation are shown, and lanes that have \
                 any of them; {left_out} are left out."
            )
        })
    }
}
