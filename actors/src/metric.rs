//! Every metric's name and meaning, in one place.
//!
//! Counters count terminal events once; gauges are set after each change; histograms are
//! in seconds. Recording never fails and never blocks.

use crate::runtime;
use crate::transport::{DataCounters, WriteOutcome};
use kvbaton_core::lifecycle::engine::{OperationError, Outcome, Standing};
use kvbaton_core::receiver::{LoadEnd, LoadFailureReason, Receiver};
use kvbaton_core::sender::{Ended, PlanCopies, Sender};
use kvbaton_core::wire::{FailureReason, Reply, Status};
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::PrometheusHandle;
use std::time::Duration;

const PULL_REQUESTS: &str = "kvbaton_pull_requests_total";
const PULL_SECONDS: &str = "kvbaton_pull_seconds";
const PLAN_SECONDS: &str = "kvbaton_pull_resolve_seconds";
const SENDS: &str = "kvbaton_sends_total";
const WRITES: &str = "kvbaton_writes_total";
const WRITE_SECONDS: &str = "kvbaton_write_seconds";
const BYTES_WRITTEN: &str = "kvbaton_bytes_written_total";
const LAYOUT_LOOKUPS: &str = "kvbaton_layout_lookups_total";
const LOADS: &str = "kvbaton_loads_total";
const LOAD_SECONDS: &str = "kvbaton_load_seconds";
const LAYOUTS: &str = "kvbaton_layouts_total";
const PULL_BYTES: &str = "kvbaton_pull_bytes_total";
const GRANTS_REVOKED: &str = "kvbaton_grants_revoked_total";
const MALFORMED: &str = "kvbaton_malformed_messages_total";
const ENGINE_STATE: &str = "kvbaton_engine_state";
const ENGINE_STATE_SECONDS: &str = "kvbaton_engine_state_seconds";
const ENGINE_OPERATION_SECONDS: &str = "kvbaton_engine_operation_seconds";
const DISCOVERY: &str = "kvbaton_bootstrap_queries_total";

/// Upper bounds of the histograms' buckets, in seconds: six a decade, 1 µs to 700 s.
pub const SECONDS: [f64; 54] = {
    let steps = [1.0, 1.5, 2.0, 3.0, 5.0, 7.0];
    let mut bounds = [0.0; 54];
    let (mut index, mut scale) = (0, 1e-6);
    while index < bounds.len() {
        bounds[index] = steps[index % steps.len()] * scale;
        index += 1;
        if index % steps.len() == 0 {
            scale *= 10.0;
        }
    }
    bounds
};

/// How often [`upkeep`] does its work.
const UPKEEP: Duration = Duration::from_secs(5);

/// Puts samples of histograms into their buckets from time to time. Until then each takes
/// memory of its own, and it may be that nobody ever asks for the text.
pub(crate) async fn upkeep(metrics: PrometheusHandle) {
    loop {
        runtime::sleep(UPKEEP).await;
        metrics.run_upkeep();
    }
}

/// Describes every metric to the recorder of this thread.
pub fn describe() {
    describe_counter!(PULL_REQUESTS, "P: requests of pulls answered, by outcome");
    describe_histogram!(PULL_SECONDS, "P: from a pull's receipt to its last answer");
    describe_histogram!(PLAN_SECONDS, "P: decoding, looking up and handing over one pull");
    describe_counter!(SENDS, "P: held requests whose blocks were given back, by why");
    describe_counter!(WRITES, "P: writes ended, by outcome and whether they are settled");
    describe_histogram!(WRITE_SECONDS, "P: one write");
    describe_counter!(BYTES_WRITTEN, "P: payload bytes written and acknowledged");
    describe_counter!(LAYOUT_LOOKUPS, "P: pulls by how their layout was found");
    describe_counter!(LOADS, "D: loads ended, by outcome");
    describe_histogram!(LOAD_SECONDS, "D: from a load's start to its end");
    describe_counter!(LAYOUTS, "D: pulls sent with and without the layout, and layouts missed");
    describe_counter!(PULL_BYTES, "D: bytes of pulls sent");
    describe_counter!(GRANTS_REVOKED, "D: grants closed at the end of a load");
    describe_counter!(MALFORMED, "P: control messages that could not be read");
    describe_counter!(DISCOVERY, "D: bootstrap servers asked, by outcome");
    describe_gauge!(ENGINE_STATE, "lifecycle: 1 for the state that the engine is in, else 0");
    describe_histogram!(ENGINE_STATE_SECONDS, "lifecycle: how long a state lasted, by state");
    describe_histogram!(ENGINE_OPERATION_SECONDS, "lifecycle: operations, by name and outcome");
    describe_gauge!("kvbaton_held_requests", "P: requests held for D");
    describe_gauge!("kvbaton_held_blocks", "P: logical blocks held for D, over all groups");
    describe_gauge!("kvbaton_transfers", "P: transfers known");
    describe_gauge!("kvbaton_open_pulls", "P: pulls without a last answer");
    describe_gauge!("kvbaton_queued_writes", "P: pulled and ready, waiting for a slot");
    describe_gauge!("kvbaton_writes_in_flight", "P: writes in flight");
    describe_gauge!("kvbaton_loads", "D: loads that have not ended");
}

pub(crate) fn answered(reply: &Reply) {
    if let Some(ok) = &reply.ok {
        counter!(PULL_REQUESTS, "outcome" => "sent").increment(ok.len() as u64);
    }
    match &reply.extension {
        Some(extension) => {
            for (_, why, _) in &extension.outcomes {
                counter!(PULL_REQUESTS, "outcome" => reason(*why)).increment(1);
            }
        }
        None => {
            let failed = reply.failed.as_ref().map_or(0, Vec::len) as u64;
            counter!(PULL_REQUESTS, "outcome" => "failed").increment(failed);
        }
    }
    if reply.status == Status::Error {
        counter!(PULL_REQUESTS, "outcome" => "refused").increment(1);
    }
}

pub(crate) fn pull_time(took: Duration) {
    histogram!(PULL_SECONDS).record(took);
}

pub(crate) fn resolved(how: &'static str, took: Duration) {
    counter!(LAYOUT_LOOKUPS, "result" => how).increment(1);
    histogram!(PLAN_SECONDS).record(took);
}

pub(crate) fn malformed() {
    counter!(MALFORMED).increment(1);
}

pub(crate) fn send_ended(ended: Ended) {
    let outcome = match ended {
        Ended::Sent => "sent",
        Ended::Failed(why) => reason(why),
    };
    counter!(SENDS, "outcome" => outcome).increment(1);
}

pub(crate) fn write_ended(outcome: &WriteOutcome, bytes: u64, took: Duration) {
    let (outcome, settled) = match outcome {
        WriteOutcome::Written => ("written", true),
        WriteOutcome::Rejected(_) => ("rejected", true),
        WriteOutcome::Failed { settled, .. } => ("failed", *settled),
    };
    let settled = if settled { "yes" } else { "no" };
    counter!(WRITES, "outcome" => outcome, "settled" => settled).increment(1);
    histogram!(WRITE_SECONDS).record(took);
    if outcome == "written" {
        counter!(BYTES_WRITTEN).increment(bytes);
    }
}

pub(crate) fn sender<L: PlanCopies + Clone>(machine: &Sender<L>) {
    gauge!("kvbaton_held_requests").set(machine.held() as f64);
    gauge!("kvbaton_held_blocks").set(machine.held_blocks() as f64);
    gauge!("kvbaton_transfers").set(machine.transfers() as f64);
    gauge!("kvbaton_open_pulls").set(machine.open_pulls() as f64);
    gauge!("kvbaton_queued_writes").set(machine.queued() as f64);
    gauge!("kvbaton_writes_in_flight").set(machine.writes() as f64);
}

pub(crate) fn pull_sent(with_layout: bool, bytes: usize) {
    let layout = if with_layout { "sent" } else { "omitted" };
    counter!(LAYOUTS, "layout" => layout).increment(1);
    counter!(PULL_BYTES, "layout" => layout).increment(bytes as u64);
}

pub(crate) fn reply(reply: &Reply) {
    if reply.status == Status::LayoutMiss {
        counter!(LAYOUTS, "layout" => "missed").increment(1);
    }
}

pub(crate) fn load_ended(end: &LoadEnd, took: Option<Duration>) {
    let outcome = match end {
        LoadEnd::Loaded => "loaded",
        LoadEnd::Dropped => "dropped",
        LoadEnd::Failed(failure) => match failure.reason {
            LoadFailureReason::UnknownEngine => "unknown_engine",
            LoadFailureReason::Incompatible => "incompatible",
            LoadFailureReason::Prefill(why) => reason(why),
            LoadFailureReason::Refused => "refused",
            LoadFailureReason::Unreachable => "unreachable",
            LoadFailureReason::TimedOut => "timed_out",
            LoadFailureReason::Unregistered => "unregistered",
            LoadFailureReason::Reset => "reset",
            LoadFailureReason::WeightsUpdated => "weights_updated",
        },
    };
    counter!(LOADS, "outcome" => outcome).increment(1);
    if let Some(took) = took {
        histogram!(LOAD_SECONDS).record(took);
    }
}

pub(crate) fn receiver(machine: &Receiver) {
    gauge!("kvbaton_loads").set(machine.loads() as f64);
}

pub(crate) fn revoked(was_live: bool) {
    let live = if was_live { "yes" } else { "no" };
    counter!(GRANTS_REVOKED, "was_live" => live).increment(1);
}

pub(crate) fn discovery(answered: bool) {
    let outcome = if answered { "answered" } else { "failed" };
    counter!(DISCOVERY, "outcome" => outcome).increment(1);
}

/// What the data plane has counted, as Prometheus text: it counts on threads of its own,
/// where no recorder is.
pub(crate) fn data_text(counters: DataCounters) -> String {
    let refused = [
        ("grant", counters.refused_grant),
        ("generation", counters.refused_generation),
        ("range", counters.refused_range),
    ];
    let mut text = String::new();
    let mut line = |name: &str, help: &str, rows: &[(String, u64)]| {
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} counter\n"));
        for (labels, value) in rows {
            text.push_str(&format!("{name}{labels} {value}\n"));
        }
    };
    let plain = |value: u64| [(String::new(), value)];
    line(
        "kvbaton_data_bytes_sent",
        "Payload bytes acknowledged by peers",
        &plain(counters.bytes_sent.0),
    );
    line(
        "kvbaton_data_bytes_received",
        "Payload bytes that landed in local memory",
        &plain(counters.bytes_received.0),
    );
    let refused = refused.map(|(why, count)| (format!("{{why=\"{why}\"}}"), count));
    line("kvbaton_data_refused_writes", "Inbound writes refused, by why", &refused);
    line(
        "kvbaton_data_refused_connections",
        "Connections closed for malformed or unauthenticated input",
        &plain(counters.refused_connections),
    );
    text
}

fn reason(why: FailureReason) -> &'static str {
    match why {
        FailureReason::Aborted => "aborted",
        FailureReason::Released => "released",
        FailureReason::Expired => "expired",
        FailureReason::TimedOut => "timed_out",
        FailureReason::UnknownIncarnation => "unknown_incarnation",
        FailureReason::WriteFailed => "write_failed",
        FailureReason::BlocksDiffer => "blocks_differ",
        FailureReason::Dropped => "dropped",
        FailureReason::AlreadyUsed => "already_used",
        FailureReason::Unavailable => "unavailable",
        FailureReason::Overloaded => "overloaded",
        FailureReason::Reset => "prefill_reset",
        FailureReason::OtherWeights => "other_weights",
        FailureReason::Other => "other",
    }
}

pub(crate) fn engine_state(now: &'static str) {
    for name in Standing::NAMES {
        gauge!(ENGINE_STATE, "state" => name).set(if name == now { 1.0 } else { 0.0 });
    }
}

pub(crate) fn engine_state_left(state: &'static str, lasted: Duration) {
    histogram!(ENGINE_STATE_SECONDS, "state" => state).record(lasted);
}

pub(crate) fn engine_operation(
    operation: &'static str,
    answer: &Result<Outcome, OperationError>,
    took: Duration,
) {
    let outcome = match answer {
        Ok(Outcome::Reset { done: false, .. }) => "refused",
        Ok(_) => "done",
        Err(OperationError::Busy { .. }) => "busy",
        Err(OperationError::Resumed { .. }) => "resumed",
        Err(OperationError::NotPossible { .. }) => "not_possible",
        Err(OperationError::TimedOut { .. }) => "timed_out",
        Err(OperationError::Failed { .. }) => "failed",
        Err(OperationError::NotUndone { .. }) => "not_undone",
        Err(OperationError::Stopped) => "stopped",
    };
    let labels = [("operation", operation), ("outcome", outcome)];
    histogram!(ENGINE_OPERATION_SECONDS, &labels).record(took);
}
