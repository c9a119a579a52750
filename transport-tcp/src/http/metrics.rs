//! Metrics for whoever scrapes them.

use super::{HttpConfig, HttpServer};
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use kvbaton_actors::transport::TransportError;
use std::net::SocketAddr;
use std::sync::Arc;

/// Prometheus' text format, version 0.0.4.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves `GET /metrics` and `GET /health` while it lives. Give it
/// `Node::metrics_source()`; several nodes of one process need one server each.
pub struct MetricsServer {
    server: HttpServer,
}

impl MetricsServer {
    /// Starts it; once this returns it answers.
    ///
    /// # Errors
    /// When the address cannot be bound, or no thread can be had.
    pub fn start(
        config: &HttpConfig,
        render: Arc<dyn Fn() -> String + Send + Sync>,
    ) -> Result<Self, TransportError> {
        let metrics = move || {
            let text = render();
            async move { ([(CONTENT_TYPE, TEXT)], text) }
        };
        let routes =
            Router::new().route("/metrics", get(metrics)).route("/health", get(|| async { "ok" }));
        Ok(Self { server: HttpServer::start("metrics", config, routes)? })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.server.address()
    }
}
