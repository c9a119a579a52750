//! Bytes land only under the node's current registration, and each registration has a
//! generation of its own.

use super::Oracle;
use super::lives::Lives;
use crate::history::{Event, What};
use kvbaton_core::ids::Generation;
use std::collections::BTreeSet;

/// Remembers each node's registration.
#[derive(Debug, Default)]
pub struct CurrentGeneration {
    current: Lives<Option<Generation>>,
    used: BTreeSet<Generation>,
}

impl Oracle for CurrentGeneration {
    fn name(&self) -> &'static str {
        "current-generation"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["S02", "S04", "Z02"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, current)) = self.current.of(event) else { return Ok(()) };
        match &event.what {
            What::Registered { generation } => {
                *current = Some(*generation);
                if !self.used.insert(*generation) {
                    return Err(format!("{node}: generation {generation} was used before"));
                }
            }
            What::Unregistered { generation } if *current == Some(*generation) => *current = None,
            What::GrantOpened { grant, generation, .. } if *current != Some(*generation) => {
                return Err(format!("{node}: {grant} is opened under old {generation}"));
            }
            What::Landed { write, generation, seen: true, .. } => match (*current, *generation) {
                (None, _) => {
                    return Err(format!("{node}: {write} landed, but no memory is registered"));
                }
                (Some(current), Some(carried)) if current != carried => {
                    return Err(format!(
                        "{node}: {write} landed under {carried}; the registration is {current}"
                    ));
                }
                _ => {}
            },
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{OF_D, Story, caught, grant, landed, legal};

    const NEXT: Generation = Generation(77);

    fn slept() -> Story {
        let story = Story::new().d(What::Unregistering { generation: OF_D });
        story.d(What::Unregistered { generation: OF_D })
    }

    fn woke() -> Story {
        slept().d(What::Registered { generation: NEXT })
    }

    #[test]
    fn z02_writes_of_the_current_registration_and_of_stock_peers_land() {
        let story = Story::new().d(grant(7, &[], false)).d(landed(1, Some(7), &[(0, 8)]));
        legal(CurrentGeneration::default(), story.d(landed(1, None, &[(0, 8)])));
        legal(CurrentGeneration::default(), woke().d(landed(1, None, &[(0, 8)])));
    }

    #[test]
    fn s04_no_write_lands_through_an_old_registration() {
        caught(
            CurrentGeneration::default(),
            woke().d(landed(1, Some(7), &[(0, 8)])),
            "landed under",
        );
        caught(CurrentGeneration::default(), slept().d(landed(1, None, &[(0, 8)])), "no memory is");
        caught(CurrentGeneration::default(), woke().d(grant(7, &[], false)), "is opened under old");
    }

    #[test]
    fn s02_a_registration_has_a_generation_of_its_own() {
        let story = slept().d(What::Registered { generation: OF_D });
        caught(CurrentGeneration::default(), story, "was used before");
    }
}
