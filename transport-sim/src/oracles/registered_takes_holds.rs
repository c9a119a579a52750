//! A node whose memory is registered, and which is not about to sleep, takes what its engine
//! holds: a sleep that failed leaves it usable.

use super::Oracle;
use super::lives::Lives;
use crate::history::{Event, Lane, What};
use std::collections::BTreeSet;

/// Core's words for a node without a registration.
const NOT_REGISTERED: &str = "KV memory is not registered";

/// Remembers who is registered, and which engines are falling asleep.
#[derive(Debug, Default)]
pub struct RegisteredTakesHolds {
    registered: Lives<bool>,
    falling_asleep: BTreeSet<u16>,
}

impl Oracle for RegisteredTakesHolds {
    fn name(&self) -> &'static str {
        "registered-takes-holds"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["S01"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        match (event.lane, &event.what) {
            (Lane::Engine(engine), What::SleepAsked) => {
                self.falling_asleep.insert(engine);
            }
            (Lane::Engine(engine), What::SleepFailed { .. } | What::Woke) => {
                self.falling_asleep.remove(&engine);
            }
            (Lane::Node(node), What::Started { .. }) => {
                self.falling_asleep.remove(&node.engine);
            }
            _ => {}
        }
        let Some((node, registered)) = self.registered.of(event) else { return Ok(()) };
        match &event.what {
            What::Registered { .. } => *registered = true,
            What::Unregistered { .. } => *registered = false,
            What::HoldRefused { request, why, .. }
                if why.contains(NOT_REGISTERED)
                    && *registered
                    && !self.falling_asleep.contains(&node.engine) =>
            {
                return Err(format!(
                    "{node}: its memory is registered, and it does not take {request}: {why}"
                ));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{OF_P, Story, caught, legal};

    fn refused(story: Story) -> Story {
        story.p(What::HoldRefused {
            request: "a".into(),
            transfer: "a".into(),
            why: format!("request a cannot be held: {NOT_REGISTERED}").into(),
        })
    }

    #[test]
    fn s01_a_failed_sleep_leaves_the_node_usable() {
        let asked = || Story::new().engine(0, What::SleepAsked);
        legal(RegisteredTakesHolds::default(), refused(asked()));
        let failed = asked().engine(0, What::SleepFailed { why: "in use".into() });
        caught(RegisteredTakesHolds::default(), refused(failed), "does not take a");
        let asleep = asked().p(What::Unregistered { generation: OF_P }).engine(0, What::Slept);
        legal(RegisteredTakesHolds::default(), refused(asleep));
    }
}
