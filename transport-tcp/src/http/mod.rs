//! Small HTTP servers on threads of their own, bounded in connections and time `[Z03]`.

mod intake;
mod metrics;

pub use metrics::MetricsServer;

use axum::Router;
use intake::Intake;
use kvbaton_actors::transport::TransportError;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// How a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpConfig {
    /// Interface to listen on: an address or a host name of this machine.
    pub host: String,
    /// Port; 0 takes any free one.
    pub port: u16,
    /// Connections at a time; a new one closes the oldest.
    pub max_connections: usize,
    /// How long a connection lives at most.
    pub connection_lifetime: Duration,
}

impl Default for HttpConfig {
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

/// A running server. It answers while the engine around it is busy; dropping it stops it.
pub(crate) struct HttpServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Starts it; once this returns it answers. `what` names it to operators.
    pub(crate) fn start(
        what: &'static str,
        config: &HttpConfig,
        routes: Router,
    ) -> Result<Self, TransportError> {
        let local = |error: std::io::Error| TransportError::Local {
            what: format!("cannot start a {what} server on {} port {}", config.host, config.port),
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
        let thread = std::thread::Builder::new().name(format!("kvbaton-{what}"));
        let serve = move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    _ = axum::serve(intake, routes) => {}
                }
            });
        };
        let thread = Some(thread.spawn(serve).map_err(local)?);
        tracing::info!(%address, "{what} server listening");
        Ok(Self { address, stop: Some(stop), thread })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // Its panic, if there was one, has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}
