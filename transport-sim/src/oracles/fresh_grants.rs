//! Each load has a random grant of its own; a grant that was revoked never lives again.

use super::Oracle;
use super::lives::Lives;
use crate::history::{Event, What};
use kvbaton_core::ids::Grant;
use std::collections::{BTreeMap, BTreeSet};

/// Two random grants of a run are farther apart than this, or a counter made them.
const NEAR: u64 = 1_000_000;

#[derive(Debug, Default)]
struct Node {
    live: BTreeMap<Grant, Vec<kvbaton_core::region::MemoryRange>>,
    revoked: BTreeSet<Grant>,
}

/// Remembers grants.
#[derive(Debug, Default)]
pub struct FreshGrants {
    nodes: Lives<Node>,
    all: BTreeSet<Grant>,
}

impl Oracle for FreshGrants {
    fn name(&self) -> &'static str {
        "fresh-grants"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["G01", "G02"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, it)) = self.nodes.of(event) else { return Ok(()) };
        match &event.what {
            What::GrantOpened { grant, rows, .. } => {
                if it.revoked.contains(grant) {
                    return Err(format!("{node}: {grant} is opened again after it was revoked"));
                }
                if it.live.get(grant).is_some_and(|open| open != rows) {
                    return Err(format!("{node}: {grant} is opened again for other rows"));
                }
                it.live.insert(*grant, rows.clone());
                let near =
                    Grant(grant.0.saturating_sub(NEAR))..=Grant(grant.0.saturating_add(NEAR));
                if let Some(other) = self.all.range(near).find(|other| *other != grant) {
                    return Err(format!(
                        "{node}: {grant} is next to {other}: a counter makes them"
                    ));
                }
                self.all.insert(*grant);
            }
            What::Revoked { grant } => {
                it.live.remove(grant);
                it.revoked.insert(*grant);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{Story, caught, grant, legal};

    const FAR: u64 = 1 << 40;

    #[test]
    fn g01_each_load_has_a_random_grant() {
        let story = Story::new().d(grant(FAR, &[(0, 8)], false)).d(grant(FAR, &[(0, 8)], true));
        legal(FreshGrants::default(), story.clone().d(grant(2 * FAR, &[(8, 8)], false)));
        caught(FreshGrants::default(), story.clone().d(grant(FAR + 1, &[], false)), "a counter");
        caught(FreshGrants::default(), story.clone().d(grant(FAR - 1, &[], false)), "a counter");
        caught(FreshGrants::default(), story.d(grant(FAR, &[(8, 8)], true)), "other rows");
    }

    #[test]
    fn g02_a_revoked_grant_stays_revoked() {
        let story = Story::new().d(grant(FAR, &[], false)).d(What::Revoked { grant: Grant(FAR) });
        caught(FreshGrants::default(), story.d(grant(FAR, &[], false)), "after it was revoked");
    }
}
