//! Layout ids are random: odd, below 2^63, never used by two registrations, never counted up.

use super::Oracle;
use super::lives::Lives;
use crate::history::{Event, NodeId, What};
use kvbaton_core::ids::LayoutId;
use std::collections::BTreeMap;

/// Two random ids of a run are farther apart than this, or a counter made them.
const NEAR: u64 = 1_000_000;

/// Remembers the ids that each registration uses. One registration may use several.
#[derive(Debug, Default)]
pub struct FreshLayoutIds {
    registrations: Lives<u32>,
    owners: BTreeMap<LayoutId, (NodeId, u32)>,
}

impl Oracle for FreshLayoutIds {
    fn name(&self) -> &'static str {
        "fresh-layout-ids"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["L01", "L11", "S02"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, registration)) = self.registrations.of(event) else { return Ok(()) };
        let id = match &event.what {
            What::Registered { .. } => {
                *registration += 1;
                return Ok(());
            }
            What::PullSent { pull, .. } => pull.layout_id,
            _ => return Ok(()),
        };
        if id.0 % 2 == 0 || id.0 >= 1 << 63 {
            return Err(format!("{node}: layout id {id} is not an odd number below 2^63"));
        }
        let me = (node, *registration);
        if let Some(owner) = self.owners.get(&id) {
            return if *owner == me {
                Ok(())
            } else {
                Err(format!(
                    "{node}: layout id {id} is that of an earlier registration of {}",
                    owner.0
                ))
            };
        }
        let near = LayoutId(id.0.saturating_sub(NEAR))..=LayoutId(id.0 + NEAR);
        if let Some((other, _)) = self.owners.range(near).next() {
            return Err(format!("{node}: layout id {id} is next to {other}: a counter makes them"));
        }
        self.owners.insert(id, me);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{D, OF_D, Story, caught, legal, pull, pull_sent, started};

    const ID: u64 = 0x0123_4567_89ab_cdef;

    fn sent(story: Story, layout: u64) -> Story {
        story.d(pull_sent(1, pull(layout, true, &[])))
    }

    #[test]
    fn l01_ids_are_random() {
        let story = sent(sent(sent(Story::new(), ID), ID), ID + (1 << 40));
        legal(FreshLayoutIds::default(), story);
        for id in [0, 2, ID - 1, ID | 1 << 63] {
            caught(FreshLayoutIds::default(), sent(Story::new(), id), "is not an odd number");
        }
        caught(FreshLayoutIds::default(), sent(sent(Story::new(), ID), ID + 2), "a counter");
        caught(FreshLayoutIds::default(), sent(sent(Story::new(), ID), ID - 2), "a counter");
    }

    #[test]
    fn l11_s02_a_registration_or_life_has_ids_of_its_own() {
        let story = sent(Story::new(), ID).d(What::Registered { generation: OF_D });
        caught(FreshLayoutIds::default(), sent(story, ID), "an earlier registration");
        let next = NodeId { life: 1, ..D };
        let story = sent(Story::new(), ID).d(What::Killed).node(next, started(false, "d"));
        let story = story.node(next, pull_sent(1, pull(ID, true, &[])));
        caught(FreshLayoutIds::default(), story, "an earlier registration of e1.r0");
    }
}
