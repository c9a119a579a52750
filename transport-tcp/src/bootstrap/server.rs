//! The bootstrap server: HTTP around the directory.

use super::directory::{Registered, Registrations};
use super::json::{Engines, Register};
pub use crate::http::HttpConfig as BootstrapConfig;
use crate::http::HttpServer;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use kvbaton_actors::transport::TransportError;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Largest body of a registration, in bytes.
const MAX_BODY: usize = 64 << 10;

/// A running bootstrap server, on a thread of its own: it answers while the engine
/// around it is busy, registering memory for instance `[F63]`. Dropping it stops it.
pub struct BootstrapServer {
    server: HttpServer,
}

impl BootstrapServer {
    /// Starts it; once this returns it answers.
    ///
    /// # Errors
    /// When the address cannot be bound, or no thread can be had.
    pub fn start(config: BootstrapConfig) -> Result<Self, TransportError> {
        Ok(Self { server: HttpServer::start("bootstrap", &config, routes())? })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Its URL as clients take it, by the address it is bound to.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }
}

type Shared = Arc<Mutex<Registrations>>;

fn routes() -> Router {
    Router::new()
        .route("/register", post(register).delete(unregister))
        .route("/query", get(query))
        .route("/health", get(health))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(Shared::default())
}

async fn register(State(shared): State<Shared>, body: Bytes) -> Response {
    let rank = match parse(&body) {
        Ok(rank) => rank,
        Err(refusal) => return refusal,
    };
    let told = rank.clone();
    let registered = lock(&shared).register(rank);
    match registered {
        Ok(registered) => {
            report(&registered, &told);
            Json(json!({"status": "ok"})).into_response()
        }
        Err(what) => refuse(what),
    }
}

async fn unregister(State(shared): State<Shared>, body: Bytes) -> Response {
    match parse(&body) {
        Ok(rank) => {
            let found = lock(&shared).unregister(&rank);
            Json(json!({"status": "ok", "found": found})).into_response()
        }
        Err(refusal) => refusal,
    }
}

async fn query(State(shared): State<Shared>) -> Json<Engines> {
    Json(lock(&shared).engines())
}

async fn health() -> Json<serde_json::Value> {
    Json(json!({"status": "ok"}))
}

fn lock(shared: &Shared) -> std::sync::MutexGuard<'_, Registrations> {
    // Every change is complete before anything can panic.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

// The response is the error here, made once per refused request.
#[allow(clippy::result_large_err)]
fn parse(body: &[u8]) -> Result<Register, Response> {
    let rank: Register = serde_json::from_slice(body).map_err(|error| refuse(error.to_string()))?;
    rank.check().map_err(refuse)?;
    Ok(rank)
}

fn refuse(what: String) -> Response {
    (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({"detail": what}))).into_response()
}

fn report(registered: &Registered, rank: &Register) {
    let Register { engine_id, dp_rank, tp_rank, pp_rank, addr, .. } = rank;
    match registered {
        Registered::Added => {
            tracing::info!(engine_id, dp_rank, tp_rank, pp_rank, addr, "rank registered");
        }
        Registered::Unchanged => {}
        Registered::Updated => {
            tracing::info!(engine_id, dp_rank, tp_rank, pp_rank, addr, "rank registered anew");
        }
        Registered::ReplacedEngine { old } => tracing::warn!(
            engine_id,
            dp_rank,
            old,
            "a new engine took this data-parallel rank; if the old one still runs, two engines \
             are configured with the same rank"
        ),
    }
}
