//! Runs the built command: engines are processes of their own, as in real use.

use serde_json::Value;
use std::process::{Command, Output};

fn demo(options: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvbaton"))
        .arg("demo")
        .args(["--json", "--prefills", "1", "--decodes", "1", "--concurrency", "4"])
        .args(["--requests", "8", "--prompt-tokens", "1..70"])
        // Slow machines and many tests at a time: the bound is there to end a hang.
        .args(["--timeout", "300"])
        .args(options.split_whitespace())
        .output()
        .expect("the command runs")
}

/// The report of a run that must have gone right.
fn right(options: &str) -> Value {
    let output = demo(options);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{options}: {text}{errors}");
    let report: Value = serde_json::from_str(&text).expect("the report is one JSON object");
    let number = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("no {name}: {text}"));
    assert_eq!(report["verdict"], "right");
    assert_eq!(number("right"), number("requests"), "{text}");
    assert_eq!(number("wrong") + number("failed") + number("bytes_different"), 0);
    assert!(number("bytes") > 0 && number("bytes_compared") > 0, "{text}");
    assert_eq!(report["leftovers"], Value::Array(Vec::new()));
    report
}

#[test]
fn every_model_is_moved_and_compared() {
    for model in ["dense", "mla", "hybrid", "deepseek146"] {
        right(&format!("--model {model} --prefill-tp 1"));
    }
}

#[test]
fn a04_heads_are_cut_and_gathered_between_unequal_tp() {
    for (prefill, decode) in [(2, 1), (1, 2), (4, 2)] {
        right(&format!("--prefill-tp {prefill} --decode-tp {decode}"));
    }
}

#[test]
fn a02_unequal_pipelines_exchange_their_layers() {
    for (prefill, decode) in [(2, 1), (1, 2)] {
        right(&format!("--prefill-tp 1 --prefill-pp {prefill} --decode-pp {decode}"));
    }
}

#[test]
fn a06_a_prefix_that_d_has_is_not_loaded_again() {
    let options = "--prefill-tp 1 --requests 16 --prompt-tokens 70..90 --concurrency 2";
    let hits = right(&format!("{options} --prefix-hits 100"));
    assert!(hits["hit_tokens"].as_u64() > Some(0), "{hits}");
    let none = right(options);
    assert_eq!(none["hit_tokens"], 0);
    assert!(hits["blocks"].as_u64() < none["blocks"].as_u64(), "{hits} {none}");
}

#[test]
fn x01_several_engines_of_each_side_serve_any_pair() {
    right("--prefills 2 --decodes 2 --prefill-tp 2 --decode-tp 1");
}

#[test]
fn p12_killed_engines_cost_no_answer_and_no_block() {
    let report = right("--prefills 2 --decodes 2 --prefill-tp 1 --requests 24 --chaos");
    let kills = report["kills"].as_array().expect("kills are listed");
    for side in ["prefill", "decode"] {
        let of_side = |kill: &&Value| kill["engine"].as_str().unwrap_or_default().contains(side);
        assert!(kills.iter().filter(of_side).count() >= 1, "{report}");
    }
    assert!(report["retried"].as_u64() > Some(0), "kills broke something: {report}");
}

#[test]
fn p12_one_engine_a_side_survives_kills_and_d_may_compute_itself() {
    right("--prefill-tp 1 --requests 16 --chaos --recompute --seed 7");
}

#[test]
fn l04_the_layout_is_sent_once_to_each_peer_and_then_left_out() {
    let report = right("--model deepseek146 --prefill-tp 1 --concurrency 1");
    let mean = |kind: &str| report[kind]["mean_bytes"].as_f64().unwrap_or_default();
    assert_eq!(report["first_pulls"]["count"], 1, "{report}");
    assert_eq!(report["later_pulls"]["count"], 7, "{report}");
    assert!(mean("later_pulls") > 0.0 && mean("first_pulls") > 2.0 * mean("later_pulls"));
    for latency in ["pull_resolve", "round_trip", "ready_to_loaded"] {
        assert!(report[latency]["p99_us"].as_f64() > Some(0.0), "{latency}: {report}");
    }
}

#[test]
fn many_short_requests_pass() {
    right("--prefill-tp 1 --requests 400 --prompt-tokens 1..2 --concurrency 32");
}

#[test]
fn what_core_refuses_is_refused_before_anything_starts() {
    let output = demo("--model hybrid --prefill-tp 2 --decode-tp 1");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("holds recurrent state"), "{errors}");
    assert_eq!(demo("--block-size 7").status.code(), Some(2));
}

#[test]
fn an_engine_that_cannot_start_is_reported_with_its_last_words() {
    // More KV memory than a process has addresses, for prompts that are never asked.
    let options = "--model deepseek146 --prefill-tp 1 --concurrency 1024 --requests 1";
    let output = demo(&format!("{options} --prompt-tokens 1,1000000 --prefix-hits 1"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains("died unexpectedly") && errors.contains("cannot map"), "{errors}");
}
