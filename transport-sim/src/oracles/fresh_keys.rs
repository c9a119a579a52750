//! No write is refused as stale that names D's current registration: its keys were old.

use super::Oracle;
use super::lives::Lives;
use crate::history::{Event, What, WriteName};
use crate::sites;
use kvbaton_actors::transport::Rejection;
use kvbaton_core::ids::Generation;
use std::collections::BTreeMap;

/// Remembers registrations, and which one each write names.
#[derive(Debug, Default)]
pub struct FreshKeys {
    current: Lives<Option<Generation>>,
    named: BTreeMap<WriteName, Generation>,
    falsified: bool,
}

impl Oracle for FreshKeys {
    fn name(&self) -> &'static str {
        "fresh-keys"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["S04"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        match &event.what {
            // The next write names another registration than P meant.
            What::SiteFired(sites::WRITE_STALE) => self.falsified = true,
            What::WriteStarted { write, generation: Some(generation), .. }
                if !std::mem::take(&mut self.falsified) =>
            {
                self.named.insert(*write, *generation);
            }
            _ => {}
        }
        let Some((node, current)) = self.current.of(event) else { return Ok(()) };
        match &event.what {
            What::Registered { generation } => *current = Some(*generation),
            What::Unregistering { .. } => *current = None,
            What::Refused { write, why } if **why == *Rejection::StaleGeneration.to_string() => {
                let named = self.named.get(write);
                if named.is_some() && named == current.as_ref() {
                    return Err(format!(
                        "{node}: {write} names the current registration and is refused as \
                         stale: P used keys of an earlier one"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{OF_D, Story, caught, legal, write, write_name};

    fn refused(why: Rejection) -> Story {
        let what = What::Refused { write: write_name(1), why: why.to_string().into() };
        Story::new().p(write(1, 7, &[])).d(what)
    }

    #[test]
    fn s04_a_write_for_the_current_registration_has_its_keys() {
        caught(FreshKeys::default(), refused(Rejection::StaleGeneration), "is refused as stale");
        legal(FreshKeys::default(), refused(Rejection::UnknownGrant));
        let stale = What::Refused {
            write: write_name(1),
            why: Rejection::StaleGeneration.to_string().into(),
        };
        let again =
            Story::new().p(write(1, 7, &[])).d(What::Registered { generation: Generation(9) });
        legal(FreshKeys::default(), again.d(stale.clone()));
        let asleep = Story::new().p(write(1, 7, &[])).d(What::Unregistering { generation: OF_D });
        legal(FreshKeys::default(), asleep.d(stale.clone()));
        let falsified = Story::new().world(What::SiteFired(sites::WRITE_STALE));
        legal(FreshKeys::default(), falsified.p(write(1, 7, &[])).d(stale));
    }
}
