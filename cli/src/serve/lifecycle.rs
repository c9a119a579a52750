//! The lifecycle over HTTP: `POST /pause` and its like.

use super::api::Serving;
use crate::engine::Operate;
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use kvbaton_core::lifecycle::engine::{Operation, OperationError, Outcome};
use serde_json::{Map, Value, json};

/// Where each operation is asked for.
pub(super) const PATHS: [(&str, &str); 9] = [
    ("/pause", "pause"),
    ("/resume", "resume"),
    ("/sleep", "sleep"),
    ("/wake", "wake"),
    ("/release-kv", "release_kv"),
    ("/update-weights", "update_weights"),
    ("/abort-transfers", "abort_transfers"),
    ("/abort-requests", "abort_requests"),
    ("/reset", "reset_prefix_cache"),
];

/// The handler of one operation: its options are the body's fields.
pub(super) fn handler(operation: &'static str) -> MethodRouter<Serving> {
    post(move |State(it): State<Serving>, body: Bytes| async move {
        match read(operation, &body) {
            Ok(operation) => answer(it.lifecycle.ask(operation).await),
            Err(why) => failed(StatusCode::BAD_REQUEST, "bad_request", &why),
        }
    })
}

fn read(operation: &str, body: &[u8]) -> Result<Operation, String> {
    let mut fields: Map<String, Value> = match body {
        [] => Map::new(),
        some => serde_json::from_slice(some).map_err(|error| error.to_string())?,
    };
    fields.insert("operation".into(), operation.into());
    let operate: Operate =
        serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())?;
    operate.try_into()
}

fn failed(status: StatusCode, kind: &str, why: &impl ToString) -> Response {
    (status, Json(json!({"error": why.to_string(), "kind": kind}))).into_response()
}

fn answer(ended: Result<Outcome, OperationError>) -> Response {
    let error = match ended {
        Ok(Outcome::Done) => return Json(json!({"status": "ok"})).into_response(),
        Ok(Outcome::Reset { done: true, .. }) => {
            return Json(json!({"status": "ok", "emptied": true})).into_response();
        }
        Ok(Outcome::Reset { done: false, users }) => {
            let why = format!("the cache was not emptied: {}", users.join("; "));
            let body = json!({"error": why, "kind": "in_use", "emptied": false});
            return (StatusCode::CONFLICT, Json(body)).into_response();
        }
        Err(error) => error,
    };
    let (status, kind) = match &error {
        OperationError::Busy { .. } => (StatusCode::CONFLICT, "busy"),
        OperationError::Resumed { .. } => (StatusCode::CONFLICT, "resumed"),
        OperationError::NotPossible { .. } => (StatusCode::CONFLICT, "not_possible"),
        OperationError::TimedOut { .. } => (StatusCode::GATEWAY_TIMEOUT, "timed_out"),
        OperationError::Failed { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
        OperationError::NotUndone { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "not_undone"),
        OperationError::Stopped => (StatusCode::SERVICE_UNAVAILABLE, "stopped"),
    };
    failed(status, kind, &error)
}

/// The engine's part of `GET /status`.
pub(super) async fn status(it: &Serving) -> Value {
    let Some(status) = it.lifecycle.status().await else { return Value::Null };
    let doing = match status.doing {
        None => Value::Null,
        Some((operation, step, since)) => {
            let waits_for = it.node.in_use().await;
            json!({"operation": operation, "step": step, "for_seconds": since.as_secs_f64(),
                   "waits_for": waits_for})
        }
    };
    json!({
        "state": status.standing.name(), "for_seconds": status.state_for.as_secs_f64(),
        "weights": status.standing.version.0, "doing": doing,
        "kv_resident_bytes": it.mapping.resident(),
    })
}
