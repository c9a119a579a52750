//! Which worlds a run explores.

use crate::options::{Fault, Faults, Options};

/// A world and the faults that it is named after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Faults, each once per mention.
    pub faults: Vec<Fault>,
    /// The world.
    pub options: Options,
}

impl Run {
    /// A world of that size, with these faults.
    #[must_use]
    pub fn new(size: Options, faults: &[Fault]) -> Self {
        let options = Options { faults: Faults::of(faults), ..size };
        Self { faults: faults.to_vec(), options }
    }

    /// Its faults in words.
    #[must_use]
    pub fn name(&self) -> String {
        let names: Vec<&str> = self.faults.iter().map(|it| it.name()).collect();
        if names.is_empty() { "no fault".into() } else { names.join(" + ") }
    }
}

/// One run for every choice of `many` of the faults; all of them for a large `many`.
#[must_use]
pub fn every(size: Options, faults: &[Fault], many: usize) -> Vec<Run> {
    let many = many.min(faults.len());
    let mut chosen = Vec::new();
    let mut runs = Vec::new();
    choose(faults, many, &mut chosen, &mut |faults| runs.push(Run::new(size, faults)));
    runs
}

fn choose(rest: &[Fault], many: usize, chosen: &mut Vec<Fault>, each: &mut impl FnMut(&[Fault])) {
    if many == 0 {
        return each(chosen);
    }
    for (at, fault) in rest.iter().enumerate() {
        if rest.len() - at < many {
            return;
        }
        chosen.push(*fault);
        choose(&rest[at + 1..], many - 1, chosen, each);
        chosen.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_comes_once() {
        let runs = every(Options::default(), &Fault::ALL, 2);
        assert_eq!(runs.len(), 45);
        assert_eq!(runs[0].name(), "restart + evict");
        let names: std::collections::BTreeSet<String> = runs.iter().map(Run::name).collect();
        assert_eq!(names.len(), 45);
        assert_eq!(every(Options::default(), &Fault::ALL, 99).len(), 1);
        assert_eq!(every(Options::default(), &[], 2)[0].name(), "no fault");
    }
}
