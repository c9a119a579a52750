//! The bootstrap server: HTTP around the directory.

use super::directory::{Registered, Registrations};
use super::intake::Intake;
use super::json::{Engines, Register};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use kvbaton_actors::transport::TransportError;
use serde_json::json;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Largest body of a registration, in bytes.
const MAX_BODY: usize = 64 << 10;

/// How a bootstrap server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootstrapConfig {
    /// Interface to listen on: an address or a host name of this machine.
    pub host: String,
    /// Port; 0 takes any free one.
    pub port: u16,
    /// Connections at a time; a new one closes the oldest.
    pub max_connections: usize,
    /// How long a connection lives at most.
    pub connection_lifetime: Duration,
}

impl Default for BootstrapConfig {
    /// Loopback, any port, 512 connections of at most a minute.
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 0,
            max_connections: 512,
            connection_lifetime: Duration::from_secs(60),
        }
    }
}

/// A running bootstrap server, on a thread of its own: it answers while the engine
/// around it is busy, registering memory for instance `[F63]`. Dropping it stops it.
pub struct BootstrapServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl BootstrapServer {
    /// Starts it; once this returns it answers.
    ///
    /// # Errors
    /// When the address cannot be bound, or no thread can be had.
    pub fn start(config: BootstrapConfig) -> Result<Self, TransportError> {
        let local = |error: std::io::Error| TransportError::Local {
            what: format!(
                "cannot start a bootstrap server on {} port {}",
                config.host, config.port
            ),
            reason: error.to_string(),
        };
        let socket = StdListener::bind((config.host.as_str(), config.port)).map_err(local)?;
        let address = socket.local_addr().map_err(local)?;
        socket.set_nonblocking(true).map_err(local)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(local)?;
        let intake = {
            let _inside = runtime.enter();
            let socket = TcpListener::from_std(socket).map_err(local)?;
            Intake::new(socket, config.max_connections, config.connection_lifetime)
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name("kvbaton-bootstrap".to_owned());
        let serve = move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    _ = axum::serve(intake, routes()) => {}
                }
            });
        };
        let thread = Some(thread.spawn(serve).map_err(local)?);
        tracing::info!(%address, "bootstrap server listening");
        Ok(Self { address, stop: Some(stop), thread })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL as clients take it, by the address it is bound to.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for BootstrapServer {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // Its panic, if there was one, has been reported by the panic hook.
            let _ = thread.join();
        }
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
