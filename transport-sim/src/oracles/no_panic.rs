//! Nothing panics.

use super::Oracle;
use crate::history::{Event, What};

/// Objects to panics.
#[derive(Debug, Default)]
pub struct NoPanic;

impl Oracle for NoPanic {
    fn name(&self) -> &'static str {
        "no-panic"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["R06", "P13", "Z01"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        match &event.what {
            What::Panicked(text) => Err(format!("{} panicked: {text}", event.lane)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{Story, caught, legal};

    #[test]
    fn r06_a_panic_is_never_an_answer() {
        legal(NoPanic, Story::new().d(What::Killed));
        let story = Story::new().engine(1, What::Panicked("index".into()));
        caught(NoPanic, story, "e1 panicked: index");
    }
}
