//! Exploring a world whole.

use crate::explorer::walk;
use crate::options::Options;
use crate::rules::Rule;
use crate::step::Step;
use crate::world::{Tables, World};
use stateright::{Checker, CheckerBuilder, HasDiscoveries, Model, Property};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// States that a search for a shorter way to a broken rule may visit.
const SHORTER: usize = 300_000;

/// A world as the checker sees it.
#[derive(Debug, Clone)]
pub struct Handover {
    options: Options,
    tables: Arc<Tables>,
}

impl Handover {
    /// The model of worlds of that size.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, tables: Arc::default() }
    }
}

macro_rules! always {
    ($($rule:ident),*) => {
        vec![$(Property::<Handover>::always(Rule::$rule.words(), |_, world| {
            world.broken != Some(Rule::$rule)
        })),*]
    };
}

impl Model for Handover {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.options)]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        world.steps(&self.options, steps);
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        next.apply(step, (&self.options, &*self.tables));
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        always!(
            G01, G02, L03, L04, L06, L09, P01, P02, P03, P08, P12, S01, Late, Progress, Rest,
            Assertion
        )
    }
}

/// A broken rule, and the steps that lead there, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The way.
    pub steps: Vec<String>,
}

/// What an exploration found.
#[derive(Debug)]
pub struct Report {
    /// Different states.
    pub states: usize,
    /// States that steps led to, also those that were known.
    pub generated: usize,
    /// Steps of the longest way that was walked.
    pub depth: usize,
    /// Bytes that the visited states took.
    pub bytes: usize,
    /// How long it took.
    pub took: Duration,
    /// What was reached.
    pub tables: Arc<Tables>,
    /// The first rule that was found broken.
    pub violation: Option<Violation>,
}

/// Explores every state of a world, on so many threads; stops at the first broken rule.
/// `progress` is called with the number of states now and then.
#[must_use]
pub fn explore(options: Options, threads: usize, progress: impl Fn(usize)) -> Report {
    let begin = Instant::now();
    let tables = Arc::new(Tables::default());
    let walk = walk(&options, &tables, threads, progress);
    let found = walk.broken.and_then(|steps| retrace(options, &steps));
    Report {
        states: walk.states,
        generated: walk.generated,
        depth: walk.depth,
        bytes: walk.bytes,
        took: begin.elapsed(),
        tables,
        violation: found.map(|found| shorter(options, found)),
    }
}

/// A way in words.
fn retrace(options: Options, steps: &[Step]) -> Option<Violation> {
    let tables = Tables::default();
    let mut world = World::new(&options);
    let mut words = Vec::new();
    for step in steps {
        words.push(step.words(&world));
        world.apply(*step, (&options, &tables));
    }
    Some(Violation { rule: world.broken?, steps: words })
}

fn until_broken(model: Handover, threads: usize) -> CheckerBuilder<Handover> {
    model.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures)
}

/// A way as short as can be, if one is found soon.
fn shorter(options: Options, found: Violation) -> Violation {
    let mut best = found;
    loop {
        // A state after so many steps lies one deeper, and the limit is not reached.
        let builder =
            until_broken(Handover::new(options), 1).target_max_depth(best.steps.len() + 1);
        let next = violation(&builder.target_state_count(SHORTER).spawn_bfs().join());
        match next {
            Some(next) if next.steps.len() < best.steps.len() => best = next,
            _ => return best,
        }
    }
}

fn violation(checker: &impl Checker<Handover>) -> Option<Violation> {
    let found = checker.discoveries().into_values();
    let paths = found.map(|path| (path.last_state().broken, path.into_vec()));
    let (rule, path) = paths.min_by_key(|(rule, path)| (path.len(), *rule))?;
    let words = path.iter().filter_map(|(world, step)| Some((*step)?.words(world)));
    Some(Violation { rule: rule?, steps: words.collect() })
}
