//! Whether states that stand for one another do behave alike: looked up, world by world.

use crate::options::Options;
use crate::rules::Rule;
use crate::world::{Tables, World};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

/// What was compared.
#[derive(Debug)]
pub struct Proof {
    /// Different states.
    pub states: usize,
    /// Groups of states that stand for one another.
    pub groups: usize,
    /// Two states of one group that differ in what can follow, in words.
    pub differ: Option<String>,
}

/// What a step leads to, as the walk tells states apart.
type Next = BTreeMap<(u128, u32, Option<Rule>), String>;

/// Visits every state of a world, without leaving any out, and compares what can follow it
/// with what can follow the first of its group. If they never differ, groups are a bisimulation:
/// whatever can happen after a state can happen, up to its group, after every other one of the
/// group, and breaks the same rules. Keeps a whole state per group: for small worlds.
#[must_use]
pub fn prove(options: &Options) -> Proof {
    let tables = Tables::default();
    let whole = Options { reduced: false, ..*options };
    let first = World::new(options);
    let mut visited = HashSet::from([(first.print(&whole), first.rest(&whole))]);
    let mut groups: HashMap<(u128, u32), World> = HashMap::new();
    let mut stack = vec![first];
    let mut differ = None;
    while let (Some(world), None) = (stack.pop(), &differ) {
        let mut next = Next::new();
        for (step, after) in steps(&world, options, &tables) {
            next.entry(group(&after, options)).or_insert(step);
            if after.broken.is_none() && visited.insert((after.print(&whole), after.rest(&whole))) {
                stack.push(after);
            }
        }
        match groups.entry((world.print(options), world.rest(options))) {
            Entry::Occupied(same) => {
                let steps = steps(same.get(), options, &tables);
                let other = steps.map(|(step, after)| (group(&after, options), step)).collect();
                differ = difference(&next, &other).map(|step| {
                    format!("only one of these can {step}:\n{world:?}\n{:?}", same.get())
                });
            }
            Entry::Vacant(new) => drop(new.insert(world)),
        }
    }
    Proof { states: visited.len(), groups: groups.len(), differ }
}

fn steps<'a>(
    world: &'a World,
    options: &'a Options,
    tables: &'a Tables,
) -> impl Iterator<Item = (String, World)> + 'a {
    world.next(options).into_iter().map(move |step| {
        let mut after = world.clone();
        after.apply(step, (options, tables));
        (step.words(world), after)
    })
}

fn group(world: &World, options: &Options) -> (u128, u32, Option<Rule>) {
    (world.print(options), world.rest(options), world.broken)
}

fn difference(one: &Next, other: &Next) -> Option<String> {
    let only =
        |a: &Next, b: &Next| a.iter().find(|it| !b.contains_key(it.0)).map(|it| it.1.clone());
    only(one, other).or_else(|| only(other, one))
}
