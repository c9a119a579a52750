//! Runs a scenario over a few seeds: nothing may be violated, and what the scenario is about
//! must have happened.

use kvbaton_transport_sim::campaign::coverage::{Coverage, State};
use kvbaton_transport_sim::campaign::{Scenario, run_alone};
use kvbaton_transport_sim::history::Event;
use kvbaton_transport_sim::plan::Plan;
use kvbaton_transport_sim::scenarios;
use kvbaton_transport_sim::world::{self, RunOptions};
use std::fmt;

/// How many seeds each test runs.
const SEEDS: u64 = 20;

/// What some run must have reached.
pub enum Point {
    /// A thing that campaigns count, by name.
    Fact(&'static str),
    /// A fault, by name, that began while an engine which it touches was in a state.
    Meets(&'static str, State),
    /// Anything else, in words.
    Seen(&'static str, fn(&[Event]) -> bool),
}

pub use Point::{Fact, Meets, Seen};

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fact(name) | Seen(name, _) => f.write_str(name),
            Meets(fault, state) => write!(f, "{fault} while {}", state.name()),
        }
    }
}

fn scenario(name: &str) -> &'static Scenario {
    scenarios::ALL.iter().find(|it| it.name == name).expect("a scenario of that name")
}

/// Runs one plan of a scenario and gives its events back.
///
/// # Panics
/// When an oracle objects.
pub fn run(plan: &Plan) -> Vec<Event> {
    let (_, outcome) = run_alone(&world::run, || plan.clone(), &RunOptions::default());
    if let Some(violation) = outcome.violation {
        panic!(
            "{}: {}\n  cargo xtask sim replay --scenario {} --seed {} --log",
            violation.oracle, violation.text, plan.scenario, plan.seed
        );
    }
    outcome.events
}

/// The plans of a scenario.
pub fn plans(name: &str) -> impl Iterator<Item = Plan> {
    let make = scenario(name).make;
    (0..SEEDS).map(make)
}

/// Runs a scenario.
///
/// # Panics
/// When an oracle objects, or a point was not reached in any run.
pub fn reaches(name: &str, points: &[Point]) {
    let mut reached = Coverage::default();
    let mut seen = vec![false; points.len()];
    for plan in plans(name) {
        let events = run(&plan);
        reached.add(&Coverage::of(&plan, &events));
        for (seen, point) in seen.iter_mut().zip(points) {
            *seen |= match point {
                Fact(name) => reached.facts.contains_key(*name),
                Meets(fault, state) => reached.cells.contains_key(&(*fault, *state)),
                Seen(_, sees) => sees(&events),
            };
        }
    }
    let missed = points.iter().zip(&seen).filter(|(_, seen)| !**seen);
    let missed: Vec<String> = missed.map(|(point, _)| point.to_string()).collect();
    assert!(missed.is_empty(), "{name} does not reach: {}", missed.join("; "));
}
