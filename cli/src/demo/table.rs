//! The report as a table for people.

use super::report::{Latency, Pulls, Report};
use super::tally::Verdict;
use std::fmt::Write;

/// The table; with colours when `colour`.
#[must_use]
pub fn table(report: &Report, colour: bool) -> String {
    let mut text = format!("{}\n", report.setup);
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<34} {value}");
    };
    row(
        "requests",
        format!(
            "{}: {} right, {} wrong, {} failed, {} recomputed, {} retried",
            report.requests,
            report.right,
            report.wrong,
            report.failed,
            report.recomputed,
            report.retried
        ),
    );
    row("blocks loaded", report.blocks.to_string());
    row("bytes loaded", format!("{} ({})", report.bytes, human(report.bytes)));
    row(
        "bytes compared on D",
        format!("{}, {} different", report.bytes_compared, report.bytes_different),
    );
    if report.hit_tokens > 0 {
        row("tokens that D had already", report.hit_tokens.to_string());
    }
    row(
        "GB/s while loads ran",
        format!("{:.2} (compute and checks share the cores)", report.gb_per_s_loading),
    );
    row("GB/s overall", format!("{:.2} in {:.2} s", report.gb_per_s_overall, report.seconds));
    row("pull with layout", pulls(report.first_pulls));
    row("pull without", pulls(report.later_pulls));
    row("P resolves a pull, worst rank", latency(report.pull_resolve));
    row("one-block load, idle, D's view", latency(report.round_trip));
    row("P ready → D loaded", latency(report.ready_to_loaded));
    for kill in &report.kills {
        let back = match kill.back_after_ms {
            Some(ms) => format!("back after {ms} ms"),
            None => "not back before the requests ended".to_owned(),
        };
        row(
            "killed",
            format!(
                "{} (process {}) after {} answers, {} requests on it; {back}",
                kill.engine, kill.pid, kill.after, kill.running
            ),
        );
    }
    for error in &report.expected_errors {
        row("tried again", error.clone());
    }
    for what in &report.leftovers {
        row("did not come back", what.clone());
    }
    for what in &report.problems {
        row("WRONG", what.clone());
    }
    let (word, code) = match report.verdict {
        Verdict::Right => ("every answer and every byte was right; all blocks came back", "32"),
        _ => ("FAILED: see above", "31"),
    };
    let _ = match colour {
        true => writeln!(text, "\x1b[1;{code}m{word}\x1b[0m"),
        false => writeln!(text, "{word}"),
    };
    text
}

fn pulls(pulls: Pulls) -> String {
    format!("{:.0} bytes (mean of {})", pulls.mean_bytes, pulls.count)
}

fn latency(latency: Option<Latency>) -> String {
    let Some(Latency { p50_us, p99_us }) = latency else { return "not measured".to_owned() };
    format!("P50 {}, P99 {}", time(p50_us), time(p99_us))
}

fn time(us: f64) -> String {
    if us < 1000.0 { format!("{us:.0} µs") } else { format!("{:.1} ms", us / 1000.0) }
}

fn human(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KB", "MB", "GB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}
