//! What must hold in every run. One small file each; none knows the code it judges, only
//! the history.

use crate::history::Event;
use crate::plan::Plan;

/// Watches a run. Stateful; sees each event once, in order.
pub trait Oracle {
    /// Its name, kebab-case.
    fn name(&self) -> &'static str;

    /// The rules it judges by, such as `L04`.
    fn rules(&self) -> &'static [&'static str];

    /// Takes the next event.
    ///
    /// # Errors
    /// What is wrong, in words that name who, what and when it should have been.
    fn observe(&mut self, event: &Event) -> Result<(), String>;

    /// The run is over.
    ///
    /// # Errors
    /// What is missing.
    fn end(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// What an oracle found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The oracle.
    pub oracle: &'static str,
    /// Its rules.
    pub rules: &'static [&'static str],
    /// Its words.
    pub text: String,
    /// Index of the event that it objected to; the number of events when it was the end.
    pub event: usize,
}

/// All oracles that judge runs of `plan`.
#[must_use]
pub fn all(_plan: &Plan) -> Vec<Box<dyn Oracle + Send>> {
    Vec::new()
}
