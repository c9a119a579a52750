//! One seed, one history: in a process of its own as in a sweep. First of the suite, because
//! nothing else can be trusted without it.

#[cfg(not(madsim))]
compile_error!("a suite of simulations: run it with `cargo xtask test --only simulation`");

use std::collections::BTreeMap;
use std::process::Command;

const SEEDS: std::ops::Range<u64> = 1..51;

/// `scenario seed` and the hash of the run.
fn hashes(arguments: &[&str]) -> BTreeMap<String, String> {
    let mut program = Command::new(env!("CARGO_BIN_EXE_kvbaton-sim"));
    let output = program.arg("hash").args(arguments).output().expect("the program runs");
    // 1 says that a run failed; its history has a hash all the same.
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{complaint}");
    let text = String::from_utf8(output.stdout).expect("text");
    let split = |line: &str| {
        let (name, hash) = line.rsplit_once(' ').expect("a name and a hash");
        (name.to_owned(), hash.to_owned())
    };
    text.lines().map(split).collect()
}

#[test]
fn a_seed_has_one_history_in_fresh_processes_and_in_a_sweep() {
    let seeds = format!("{}..{}", SEEDS.start, SEEDS.end);
    let sweep = hashes(&["--seeds", &seeds, "--jobs", "4"]);
    assert_eq!(sweep.len() as u64, SEEDS.end - SEEDS.start);
    let mut alone: [BTreeMap<String, String>; 2] = Default::default();
    for seed in SEEDS {
        for hashes_of in &mut alone {
            hashes_of.extend(hashes(&["--seeds", &seed.to_string(), "--jobs", "1"]));
        }
    }
    let [first, second] = alone;
    assert_eq!(first, second, "two fresh processes differ");
    assert_eq!(first, sweep, "a sweep differs from fresh processes");
    let different: std::collections::BTreeSet<_> = sweep.values().collect();
    assert!(different.len() > 40, "seeds decide little: {} histories", different.len());
}
