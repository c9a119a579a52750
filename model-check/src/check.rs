//! Exploring a world whole.

use crate::options::Options;
use crate::rules::Rule;
use crate::step::Step;
use crate::world::{Tables, World};
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::sync::Arc;
use std::time::{Duration, Instant};

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
            G01, G02, L03, L04, L06, L09, P01, P02, P03, P08, P12, S01, Progress, Rest, Assertion
        )
    }
}

/// What an exploration found.
#[derive(Debug)]
pub struct Report {
    /// Different states.
    pub states: usize,
    /// States that were generated, also those that were known.
    pub generated: usize,
    /// Steps of the longest way from the start.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// What was reached.
    pub tables: Arc<Tables>,
    /// The rule that was broken, and the way there in words.
    pub violation: Option<(Rule, Vec<String>)>,
}

/// Explores every state of a world, on so many threads; stops at the first broken rule.
/// `progress` is called with the number of states now and then.
#[must_use]
pub fn explore(options: Options, threads: usize, progress: impl Fn(usize)) -> Report {
    let begin = Instant::now();
    let model = Handover::new(options);
    let tables = model.tables.clone();
    let checker = model
        .checker()
        .threads(threads)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_dfs();
    while !checker.is_done() {
        progress(checker.unique_state_count());
        std::thread::sleep(Duration::from_millis(20));
    }
    let checker = checker.join();
    let violation = checker.discoveries().into_values().next().map(|path| {
        let rule = path.last_state().broken.expect("a discovery is a broken rule");
        let steps = path.into_vec();
        let words = steps.iter().filter_map(|(world, step)| Some(step.as_ref()?.words(world)));
        (rule, words.collect())
    });
    Report {
        states: checker.unique_state_count(),
        generated: checker.state_count(),
        depth: checker.max_depth(),
        took: begin.elapsed(),
        tables,
        violation,
    }
}
