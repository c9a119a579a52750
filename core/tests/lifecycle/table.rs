//! The table of operations and states in `LIFECYCLE.md` is what the machine does.

use crate::starts::{operations, start, states};
use crate::world::World;
use kvbaton_core::lifecycle::engine::{Operation, OperationError, Outcome};
use std::fmt::Write;
use std::path::Path;

const FROM: &str = "<!-- made by core/tests/lifecycle/table.rs -->\n";
const TO: &str = "<!-- end -->\n";

/// How an operation ends, and where the engine stands then.
fn cell(before: &World, operation: &Operation) -> String {
    let mut world = before.clone();
    let answer = world.run(operation.clone());
    let (was, is) = (before.machine.standing(), world.machine.standing());
    let mut cell = match answer {
        Ok(Outcome::Done) if world.log.is_empty() && was == is => return "—".into(),
        Ok(Outcome::Done) if was == is => "done".into(),
        Ok(Outcome::Done) => format!("→ {}", is.name()),
        Ok(Outcome::Reset { done, .. }) => format!("{done}"),
        Err(OperationError::NotPossible { .. }) => return "refused".into(),
        Err(error) => panic!("{error}"),
    };
    if was.version != is.version {
        cell.push_str(", new weights");
    }
    cell
}

fn table() -> String {
    let states = states();
    let worlds: Vec<World> = states.iter().map(|(_, steps)| start(2, steps)).collect();
    let mut text = String::from("| |");
    for (name, _) in &states {
        write!(text, " {name} |").unwrap();
    }
    writeln!(text, "\n|---|{}", "---|".repeat(states.len())).unwrap();
    for (name, operation) in operations() {
        write!(text, "| **{name}** |").unwrap();
        for world in &worlds {
            write!(text, " {} |", cell(world, &operation)).unwrap();
        }
        text.push('\n');
    }
    text
}

#[test]
fn the_table_in_the_documentation_is_what_the_machine_does() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../LIFECYCLE.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (head, rest) = text.split_once(FROM).expect("a marker");
    let (there, tail) = rest.split_once(TO).expect("an end marker");
    let made = table();
    if std::env::var_os("KVBATON_UPDATE").is_some() {
        std::fs::write(&path, format!("{head}{FROM}{made}{TO}{tail}")).unwrap();
        return;
    }
    assert!(there == made, "run with KVBATON_UPDATE=1 to bring LIFECYCLE.md up to date:\n{made}");
}
