//! The command as people and machines use it.

use serde_json::Value;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvbaton-model-check"));
    command.args(arguments).output().expect("the command starts")
}

#[test]
fn a_world_whose_rules_hold_ends_with_0_and_one_line_of_json() {
    let output = run(&["--ranks", "1", "--loads", "1", "--faults", "drop", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert!(report["states"].as_u64() > Some(10) && report["depth"].as_u64() > Some(5));
    assert_eq!((&report["broken"], &report["faults"][0]), (&Value::Null, &"drop".into()));
    assert!(report["reached"]["dropped"].as_u64() > Some(0));
}

#[test]
fn every_choice_of_faults_is_a_line_and_the_last_line_sums_up() {
    let arguments = ["--ranks", "1", "--loads", "1", "--every", "1", "--faults", "drop,lose"];
    let output = run(&arguments);
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[2].ends_with("0 worlds with a broken rule"));
}

#[test]
fn a_wrong_use_ends_with_2() {
    assert_eq!(run(&["--ranks", "9"]).status.code(), Some(2));
    assert_eq!(run(&["--faults", "flood"]).status.code(), Some(2));
}
