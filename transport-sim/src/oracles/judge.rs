//! Shows each event to every oracle.

use super::{Oracle, Violation};
use crate::history::Event;

/// Judges a run while it grows; ends at the first event to which an oracle objects.
pub struct Judge {
    oracles: Vec<Box<dyn Oracle + Send>>,
    seen: usize,
    found: Vec<Violation>,
}

impl Judge {
    /// A judge with these oracles.
    #[must_use]
    pub fn new(oracles: Vec<Box<dyn Oracle + Send>>) -> Self {
        Self { oracles, seen: 0, found: Vec::new() }
    }

    /// Takes the next event. What was found stays; later events are not looked at.
    pub fn observe(&mut self, event: &Event) -> Option<&Violation> {
        if self.found.is_empty() {
            self.ask(|oracle| oracle.observe(event));
            self.seen += 1;
        }
        self.found.first()
    }

    /// The run is over.
    pub fn end(&mut self) -> Option<&Violation> {
        if self.found.is_empty() {
            self.ask(|oracle| oracle.end());
        }
        self.found.first()
    }

    /// What every oracle said of the event at which the judge ended, in their order.
    #[must_use]
    pub fn found(&self) -> &[Violation] {
        &self.found
    }

    fn ask(&mut self, mut question: impl FnMut(&mut dyn Oracle) -> Result<(), String>) {
        for oracle in &mut self.oracles {
            if let Err(text) = question(oracle.as_mut()) {
                let (name, rules) = (oracle.name(), oracle.rules());
                self.found.push(Violation { oracle: name, rules, text, event: self.seen });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::What;
    use crate::oracles::made_up::Story;

    struct Nth(usize, &'static str);
    impl Oracle for Nth {
        fn name(&self) -> &'static str {
            self.1
        }
        fn rules(&self) -> &'static [&'static str] {
            &["L01"]
        }
        fn observe(&mut self, event: &Event) -> Result<(), String> {
            self.0 = self.0.checked_sub(1).ok_or_else(|| event.what.to_string())?;
            Ok(())
        }
        fn end(&mut self) -> Result<(), String> {
            if self.0 > 0 { Err("too short".into()) } else { Ok(()) }
        }
    }

    fn judge(of: &[(usize, &'static str)]) -> Judge {
        Judge::new(
            of.iter().map(|it| Box::new(Nth(it.0, it.1)) as Box<dyn Oracle + Send>).collect(),
        )
    }

    #[test]
    fn it_ends_at_the_first_event_and_keeps_what_each_said() {
        let mut judge = judge(&[(9, "a"), (1, "b"), (1, "c")]);
        let story = Story::empty().world(What::Healed).world(What::Ended).world(What::Healed);
        let said: Vec<bool> = story.events().iter().map(|it| judge.observe(it).is_some()).collect();
        assert_eq!(said, [false, true, true]);
        let found: Vec<_> =
            judge.found().iter().map(|it| (it.oracle, it.event, &*it.text)).collect();
        assert_eq!(found, [("b", 1, "end"), ("c", 1, "end")]);
        assert_eq!(judge.end().map(|it| it.oracle), Some("b"), "an end adds nothing");
    }

    #[test]
    fn what_is_missing_at_the_end_counts_all_events() {
        let mut judge = judge(&[(1, "a"), (2, "b")]);
        assert_eq!(judge.observe(&Story::empty().world(What::Ended).events()[0]), None);
        assert_eq!(judge.end().map(|it| (it.oracle, it.event)), Some(("b", 1)));
    }
}
