//! What planted bugs need here, where nothing random may be drawn.

use std::hash::{DefaultHasher, Hash, Hasher};

/// The same number for the same value, in every process.
pub(crate) fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
