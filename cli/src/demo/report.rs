//! The demo's result: as one JSON object, or as a table.

use super::args::DemoArgs;
use super::chaos::Kill;
use super::scrape;
use super::tally::{Tally, Verdict, percentile};
use crate::engine::Snapshot;
use serde::Serialize;
use std::time::Duration;

/// Half of the cases, and all but one in a hundred, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// Half took no longer.
    pub p50_us: f64,
    /// 99 of 100 took no longer.
    pub p99_us: f64,
}

/// Pulls of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Pulls {
    /// How many were sent.
    pub count: u64,
    /// Mean size in bytes.
    pub mean_bytes: f64,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The verdict; its exit code is [`Self::exit_code`].
    pub verdict: Verdict,
    /// The exit code.
    pub exit_code: u8,
    /// What ran.
    pub setup: String,
    /// Requests asked for.
    pub requests: usize,
    /// Answered right.
    pub right: u64,
    /// Answered wrong.
    pub wrong: u64,
    /// Not answered.
    pub failed: u64,
    /// Of the right ones, computed by D itself after its load failed.
    pub recomputed: u64,
    /// Attempts that another attempt followed.
    pub retried: u64,
    /// Loads that failed.
    pub load_failures: u64,
    /// Logical blocks loaded.
    pub blocks: u64,
    /// Bytes loaded, over all ranks of D.
    pub bytes: u64,
    /// Bytes of KV compared on D with what the model says.
    pub bytes_compared: u64,
    /// Of these, how many differ.
    pub bytes_different: u64,
    /// Prompt tokens that D had already.
    pub hit_tokens: u64,
    /// From the first request to the last answer, in seconds.
    pub seconds: f64,
    /// Bytes loaded per second of [`Self::seconds`], compute and checks included, in GB/s.
    pub gb_per_s_overall: f64,
    /// Bytes loaded per second during which a load ran that P was ready for, in GB/s. Compute
    /// and checks run on the same cores meanwhile.
    pub gb_per_s_loading: f64,
    /// D's pulls that carried the layout. Like all that nodes count, of those alive at the
    /// end: a killed engine's numbers are gone.
    pub first_pulls: Pulls,
    /// D's pulls that left it out.
    pub later_pulls: Pulls,
    /// P: decoding, looking up and handing over a pull; the worst rank's.
    pub pull_resolve: Option<Latency>,
    /// D: one-block load on idle engines, from the order to the last rank's report.
    pub round_trip: Option<Latency>,
    /// From P's KV held to D's KV loaded.
    pub ready_to_loaded: Option<Latency>,
    /// Engines that chaos killed.
    pub kills: Vec<Kill>,
    /// Failures that chaos explains, the first few.
    pub expected_errors: Vec<String>,
    /// What did not come back.
    pub leftovers: Vec<String>,
    /// What went wrong.
    pub problems: Vec<String>,
}

/// What a report is made of.
pub struct Found {
    /// The requests.
    pub tally: Tally,
    /// The one-token requests at the end.
    pub probes: Tally,
    /// How long the requests took.
    pub took: Duration,
    /// How the engines stood after the requests, by name.
    pub after: Vec<(String, Snapshot)>,
    /// How they stood at the end.
    pub end: Vec<(String, Snapshot)>,
    /// Engines that chaos killed.
    pub kills: Vec<Kill>,
    /// Engines that did not stop in good order.
    pub bad_ends: Vec<String>,
}

impl Report {
    /// Puts together what was found, and judges it.
    #[must_use]
    pub fn new(args: &DemoArgs, found: Found) -> Self {
        let Found { tally, probes, took, after, end, kills, bad_ends } = found;
        let leftovers = leftovers(&after).chain(leftovers(&end)).collect::<Vec<_>>();
        let loads = || tally.loads.values();
        let bytes: u64 = loads().map(|load| load.bytes).sum();
        let mut problems = tally.problems.clone();
        problems.extend(probes.problems.clone());
        problems.extend(bad_ends);
        problems.extend(byte_count(&tally, &kills, bytes, &after));
        let clean = problems.is_empty() && leftovers.is_empty();
        let verdict = match (tally.verdict(), probes.verdict()) {
            (Verdict::Right, Verdict::Right) if clean => Verdict::Right,
            _ => Verdict::Different,
        };
        let metrics = || after.iter().flat_map(|(_, it)| it.metrics.iter().map(String::as_str));
        let pulls = |label: &str| {
            let count = scrape::sum(metrics(), "kvbaton_layouts_total", label);
            let bytes = scrape::sum(metrics(), "kvbaton_pull_bytes_total", label);
            let mean_bytes = if count > 0.0 { bytes / count } else { 0.0 };
            Pulls { count: count as u64, mean_bytes }
        };
        let resolve = |q| scrape::worst_quantile(metrics(), "kvbaton_pull_resolve_seconds", q);
        let trips = probes.loads.values().map(|it| it.loaded.saturating_sub(it.started));
        Self {
            exit_code: verdict.exit_code(),
            verdict,
            setup: setup(args),
            requests: args.requests as usize,
            right: tally.right,
            wrong: tally.wrong,
            failed: tally.failed,
            recomputed: tally.recomputed,
            retried: tally.retried,
            load_failures: tally.load_failures,
            blocks: loads().map(|load| load.blocks).sum(),
            bytes,
            bytes_compared: tally.compared + probes.compared,
            bytes_different: tally.different + probes.different,
            hit_tokens: loads().map(|load| load.hit_tokens as u64).sum(),
            seconds: took.as_secs_f64(),
            gb_per_s_overall: rate(bytes, took.as_nanos() as u64),
            gb_per_s_loading: rate(bytes, tally.loading_nanos()),
            first_pulls: pulls("layout=\"sent\""),
            later_pulls: pulls("layout=\"omitted\""),
            pull_resolve: resolve(0.5)
                .zip(resolve(0.99))
                .map(|(p50, p99)| Latency { p50_us: p50 * 1e6, p99_us: p99 * 1e6 }),
            round_trip: latency(trips.collect()),
            ready_to_loaded: latency(tally.ready_to_loaded()),
            kills,
            expected_errors: tally.expected_errors,
            leftovers,
            problems,
        }
    }
}

/// Without failed loads the nodes must have received exactly the bytes of the loads: one
/// missing or written twice shows.
fn byte_count(
    tally: &Tally,
    kills: &[Kill],
    bytes: u64,
    after: &[(String, Snapshot)],
) -> Option<String> {
    let received: u64 = after.iter().map(|(_, it)| it.bytes_received).sum();
    (kills.is_empty() && tally.load_failures == 0 && received != bytes)
        .then(|| format!("the loads name {bytes} bytes, but the data planes received {received}"))
}

fn leftovers(engines: &[(String, Snapshot)]) -> impl Iterator<Item = String> {
    engines
        .iter()
        .flat_map(|(name, it)| it.leftovers.iter().map(move |what| format!("{name}: {what}")))
}

fn latency(mut nanos: Vec<u64>) -> Option<Latency> {
    let p50_us = percentile(&mut nanos, 50)? as f64 / 1e3;
    Some(Latency { p50_us, p99_us: percentile(&mut nanos, 99)? as f64 / 1e3 })
}

/// GB/s.
fn rate(bytes: u64, nanos: u64) -> f64 {
    if nanos == 0 { 0.0 } else { bytes as f64 / nanos as f64 }
}

fn setup(args: &DemoArgs) -> String {
    format!(
        "{}: {} prefill (TP {} × PP {}) → {} decode (TP {} × PP {})",
        args.model.as_str(),
        args.prefills,
        args.prefill_tp,
        args.prefill_pp,
        args.decodes,
        args.decode_tp(),
        args.decode_pp,
    )
}
