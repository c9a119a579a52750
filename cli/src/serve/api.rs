//! The stand-alone node's HTTP interface.

use super::engine::ServeEngine;
use super::lifecycle;
use super::options::ServeArgs;
use crate::mapping::Mapping;
use anyhow::{Context, Result};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use kvbaton_actors::engine::{Engine, EngineHandle};
use kvbaton_actors::events::Event;
use kvbaton_actors::node::{Load, Node, NodeHandle};
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::RequestId;
use kvbaton_core::receiver::{LoadEnd, LoadError};
use kvbaton_core::sender::Ended;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Longest wait of one request for events, and longest drain.
const LONGEST_SECONDS: f64 = 600.0;
/// Most bytes of KV in one answer.
const LONGEST_READ: usize = 64 << 20;

/// What handlers share.
#[derive(Clone)]
pub(super) struct Serving {
    pub node: NodeHandle,
    metrics: Arc<dyn Fn() -> String + Send + Sync>,
    pub mapping: Arc<Mapping>,
    engine: Arc<ServeEngine>,
    pub lifecycle: EngineHandle,
}

/// Serves until the process is told to end; `ready` is called with the address.
pub(super) fn serve(
    node: &Node,
    (engine, lifecycle): (Arc<ServeEngine>, &Engine),
    mapping: &Arc<Mapping>,
    args: &ServeArgs,
    ready: impl FnOnce(&str),
) -> Result<()> {
    let metrics = [node.metrics_source(), lifecycle.metrics_source()];
    let serving = Serving {
        node: node.handle(),
        metrics: Arc::new(move || metrics.iter().map(|of| of()).collect()),
        mapping: mapping.clone(),
        engine,
        lifecycle: lifecycle.handle(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let address = (args.host.as_str(), args.http_port);
        let listener = tokio::net::TcpListener::bind(address).await.with_context(|| {
            format!("cannot listen on {} port {} for HTTP", args.host, args.http_port)
        })?;
        ready(&format!("http://{}", listener.local_addr()?));
        axum::serve(listener, router(serving)).with_graceful_shutdown(told_to_end()).await?;
        Ok(())
    })
}

async fn told_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        let _ = tokio::signal::ctrl_c().await;
        return;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

fn router(serving: Serving) -> Router {
    let operations = lifecycle::PATHS.iter().fold(Router::new(), |router, (path, operation)| {
        router.route(path, lifecycle::handler(operation))
    });
    operations
        .route("/health", get(|| async { "ok" }))
        .route("/status", get(status))
        .route("/metrics", get(|State(it): State<Serving>| async move { (it.metrics)() }))
        .route("/events", get(events))
        .route("/kv", get(kv))
        .route("/hold", post(hold))
        .route("/abort", post(abort))
        .route("/release", post(release))
        .route("/load", post(load))
        .route("/drop", post(drop_loads))
        .route("/unregister", post(unregister))
        .route("/restore", post(restore))
        .with_state(serving)
}

/// A caller's seconds; what is no number of seconds counts as none.
fn bounded(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.min(LONGEST_SECONDS)).unwrap_or_default()
}

fn conflict(why: &impl ToString) -> Response {
    (StatusCode::CONFLICT, Json(json!({"error": why.to_string()}))).into_response()
}

fn done() -> Response {
    Json(json!({"status": "ok"})).into_response()
}

async fn status(State(it): State<Serving>) -> Response {
    let Some(status) = it.node.status().await else { return conflict(&"the node has stopped") };
    Json(json!({
        "engine": lifecycle::status(&it).await,
        "registration": format!("{:?}", status.registration),
        "held": status.sender.held, "transfers": status.sender.transfers,
        "writes": status.sender.writes, "open_pulls": status.sender.open_pulls,
        "loads": status.receiver.loads,
        "bytes_sent": status.data.bytes_sent.0, "bytes_received": status.data.bytes_received.0,
        "refused_grant": status.data.refused_grant,
        "refused_generation": status.data.refused_generation,
        "refused_range": status.data.refused_range,
        "refused_connections": status.data.refused_connections,
    }))
    .into_response()
}

#[derive(Deserialize)]
struct Wait {
    #[serde(default)]
    wait: f64,
}

async fn events(State(it): State<Serving>, Query(query): Query<Wait>) -> Json<Vec<Value>> {
    let bound = bounded(query.wait);
    let events = tokio::time::timeout(bound, it.node.events()).await.unwrap_or_default();
    for event in &events {
        if let Event::LoadEnded { request, .. } = event {
            it.engine.ended(request);
        }
    }
    Json(events.iter().map(event).collect())
}

fn event(event: &Event) -> Value {
    match event {
        Event::SendEnded { request, transfer, ended } => {
            let outcome = match ended {
                Ended::Sent => "sent".to_owned(),
                Ended::Failed(why) => format!("{why:?}"),
            };
            json!({"event": "send_ended", "request": request.as_str(),
                   "transfer": transfer.as_str(), "outcome": outcome})
        }
        Event::LoadEnded { request, transfer, end } => {
            let (outcome, reason, message) = match end {
                LoadEnd::Loaded => ("loaded", None, None),
                LoadEnd::Dropped => ("dropped", None, None),
                LoadEnd::Failed(it) => {
                    ("failed", Some(format!("{:?}", it.reason)), Some(it.message.clone()))
                }
            };
            json!({"event": "load_ended", "request": request.as_str(),
                   "transfer": transfer.as_str(), "outcome": outcome, "reason": reason,
                   "message": message})
        }
    }
}

#[derive(Deserialize)]
struct Range {
    offset: usize,
    len: usize,
}

async fn kv(State(it): State<Serving>, Query(range): Query<Range>) -> Response {
    let bytes = (range.len <= LONGEST_READ).then(|| it.mapping.copy(range.offset, range.len));
    match bytes.flatten() {
        Some(bytes) => bytes.into_response(),
        None => {
            let why = match it.mapping.is_mapped() {
                true => {
                    format!("the range lies outside the KV memory or exceeds {LONGEST_READ} bytes")
                }
                false => "the KV memory is asleep".to_owned(),
            };
            (StatusCode::RANGE_NOT_SATISFIABLE, why).into_response()
        }
    }
}

/// Block ids per group.
type Blocks = Vec<Vec<u32>>;

fn lists(blocks: &[Vec<u32>]) -> Vec<BlockList> {
    blocks.iter().map(|group| BlockList::from(group.as_slice())).collect()
}

#[derive(Deserialize)]
struct Hold {
    request: String,
    transfer: String,
    blocks: Blocks,
    end_token: Option<u32>,
}

async fn hold(State(it): State<Serving>, Json(body): Json<Hold>) -> Response {
    if let Err(error) = it.engine.may_hold() {
        return conflict(&error);
    }
    let (request, transfer) = (body.request.into(), body.transfer.into());
    match it.node.hold(request, transfer, lists(&body.blocks), body.end_token).await {
        Ok(()) => done(),
        Err(error) => conflict(&error),
    }
}

#[derive(Deserialize)]
struct Transfer {
    transfer: String,
}

async fn abort(State(it): State<Serving>, Json(body): Json<Transfer>) -> Response {
    it.node.abort(body.transfer.into()).await;
    done()
}

async fn release(State(it): State<Serving>, Json(body): Json<Transfer>) -> Response {
    it.node.release(body.transfer.into()).await;
    done()
}

#[derive(Deserialize)]
struct OneLoad {
    request: String,
    transfer: String,
    engine: String,
    bootstrap: String,
    blocks: Blocks,
    end_token: Option<u32>,
}

#[derive(Deserialize)]
struct Loads {
    loads: Vec<OneLoad>,
}

async fn load(State(it): State<Serving>, Json(body): Json<Loads>) -> Response {
    let requests: Vec<RequestId> =
        body.loads.iter().map(|load| load.request.as_str().into()).collect();
    if let Err(error) = it.engine.admit(requests.iter().cloned()) {
        return conflict(&error);
    }
    let loads = body.loads.into_iter().map(|load| Load {
        request: load.request.into(),
        transfer: load.transfer.into(),
        engine: load.engine.into(),
        bootstrap: load.bootstrap.into(),
        blocks: lists(&load.blocks),
        end_token: load.end_token,
    });
    let results = it.node.load(loads.collect()).await;
    // A request that was loading already is refused here and stays the earlier load's.
    let lost = |result: &Result<(), LoadError>| matches!(result, Err(error) if !matches!(error, LoadError::AlreadyLoading { .. }));
    for (request, _) in requests.iter().zip(&results).filter(|(_, result)| lost(result)) {
        it.engine.ended(request);
    }
    let refused: Vec<Value> = results
        .into_iter()
        .map(|result| result.map_or_else(|error| json!(error.to_string()), |()| Value::Null))
        .collect();
    let status =
        if refused.iter().all(Value::is_null) { StatusCode::OK } else { StatusCode::CONFLICT };
    (status, Json(json!({"refused": refused}))).into_response()
}

#[derive(Deserialize)]
struct Requests {
    requests: Vec<String>,
}

async fn drop_loads(State(it): State<Serving>, Json(body): Json<Requests>) -> Response {
    it.node.drop_loads(body.requests.into_iter().map(Into::into).collect()).await;
    done()
}

#[derive(Deserialize)]
struct Drain {
    #[serde(default)]
    drain_seconds: f64,
}

async fn unregister(State(it): State<Serving>, Json(body): Json<Drain>) -> Response {
    let drain = bounded(body.drain_seconds);
    match it.node.unregister(drain).await {
        Ok(()) => done(),
        Err(error) => conflict(&error),
    }
}

async fn restore(State(it): State<Serving>) -> Response {
    match it.engine.restore().await {
        Ok(()) => done(),
        Err(error) => conflict(&error),
    }
}
