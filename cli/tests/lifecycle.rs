//! Small runs of `kvbaton bench lifecycle` and `bench wake`: real processes over TCP.

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// The JSON objects that a bench prints; it must have found nothing wrong.
fn bench(options: &str) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_kvbaton"))
        .args(["bench"])
        .args(options.split_whitespace())
        .arg("--json")
        .output()
        .expect("the command runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{options}: {text}{errors}");
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

fn number(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("no {name} in {of}"))
}

#[test]
fn r01_r02_r03_r04_s05_the_matrix_of_real_processes() {
    let options = "--requests 48 --concurrency 12 --weights 1 --timeout 300 --cycles 0";
    let results = bench(&format!("lifecycle {options}"));
    let (held, results) = results.split_last().expect("there are results");
    assert_eq!((number(held, "requests"), number(held, "loads")), (64, 64), "{held}");
    let names: BTreeSet<&str> = results.iter().filter_map(|it| it["case"].as_str()).collect();
    assert_eq!((results.len(), names.len()), (54, 27), "{names:?}");
    for it in results {
        let of = |name| number(it, name);
        assert_eq!(of("right") + of("aborted"), 48, "{it}");
        assert!(of("bytes_compared") > 0 && it["problems"] == Value::Array(Vec::new()), "{it}");
        match it["case"].as_str() {
            Some("sleep 1" | "sleep 2") => assert_eq!(of("asleep_bytes"), 0, "{it}"),
            Some("release of KV memory") => assert_eq!(of("asleep_bytes"), 3 << 20, "{it}"),
            _ => assert!(of("asleep_bytes") > 3 << 20, "{it}"),
        }
    }
}

#[test]
fn s02_s05_s06_cycles_of_sleep_and_wake_under_requests() {
    let options = "--only nothing --concurrency 24 --weights 1 --timeout 300 --cycles 15";
    let cycles = bench(&format!("lifecycle {options}")).pop().expect("there are cycles");
    assert_eq!((number(&cycles, "cycles"), number(&cycles, "kv_asleep")), (15, 0), "{cycles}");
    assert_eq!(number(&cycles, "right"), number(&cycles, "requests"), "{cycles}");
    assert!(number(&cycles, "recomputed") > 0 && number(&cycles, "loads") > 0, "{cycles}");
}

#[test]
fn s04_g02_transfers_after_wakes_and_aborted_loads() {
    let lines = bench("wake --wakes 2 --tokens 64 --aborts 3");
    let (wakes, aborts) = lines.split_at(2);
    for wake in wakes {
        assert!(wake["first_p50_us"].as_f64() > Some(0.0), "{wake}");
        assert!(wake["steady_p50_us"].as_f64() > Some(0.0), "{wake}");
    }
    assert_eq!(aborts.len(), 4, "{aborts:?}");
    let of = |what: &str| aborts.iter().find(|it| it["what"].to_string().contains(what));
    assert!(number(of("before its prefill").expect("it is there"), "aborts") > 0, "{aborts:?}");
}
