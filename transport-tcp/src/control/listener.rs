//! Listening: binds, accepts, bounds the number of connections.

use super::ControlConfig;
use super::connection::{Shared, serve};
use super::counters::Counters;
use super::registry::{ConnectionId, Registry};
use crate::key::warn_if_exposed;
use kvbaton_actors::transport::{Inbox, TransportError};
use socket2::{SockRef, TcpKeepalive};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Pause after a failed accept (no file descriptors left, for example).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// An open listener. Dropping it closes it and its connections.
pub(super) struct Listener {
    advertised: String,
    accepting: JoinHandle<()>,
    /// Closes the connections when dropped; tasks hold it weakly.
    _registry: Rc<Registry>,
}

impl Listener {
    pub(super) async fn open(
        config: Rc<ControlConfig>,
        counters: Arc<Counters>,
        inbox: Inbox,
    ) -> Result<Self, TransportError> {
        let what = || format!("cannot listen on {} port {}", config.host, config.port);
        let local = |reason: String| TransportError::Local { what: what(), reason };
        let bind = TcpListener::bind((config.host.as_str(), config.port)).await;
        let socket = bind.map_err(|error| local(error.to_string()))?;
        let bound = socket.local_addr().map_err(|error| local(error.to_string()))?;
        let host = advertised_host(&config, bound.ip()).map_err(local)?;
        warn_if_exposed(bound.ip(), config.key.as_ref());
        let registry = Rc::new(Registry::new(&config.limits));
        let shared = Shared { config, counters, inbox, registry: Rc::downgrade(&registry) };
        let accepting = tokio::task::spawn_local(accept(socket, Rc::new(shared)));
        let advertised = format!("tcp://{host}:{}", bound.port());
        Ok(Self { advertised, accepting, _registry: registry })
    }

    pub(super) fn advertised(&self) -> &str {
        &self.advertised
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The host that peers are told, in URL form.
fn advertised_host(config: &ControlConfig, bound: IpAddr) -> Result<String, String> {
    let host = match &config.advertise_host {
        Some(host) => host.clone(),
        None if bound.is_unspecified() => {
            return Err("peers cannot connect to a wildcard address; set `advertise_host` to the \
                        address that they reach this machine by"
                .to_owned());
        }
        None => config.host.clone(),
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    Ok(if bare.contains(':') { format!("[{bare}]") } else { bare.to_owned() })
}

async fn accept(socket: TcpListener, shared: Rc<Shared>) {
    loop {
        let accepted = socket.accept().await;
        let Some(registry) = shared.registry.upgrade() else { return };
        match accepted {
            Ok((stream, peer)) => admit(&shared, &registry, stream, peer),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a control connection");
                if registry.evict_silent() {
                    shared.counters.crowded_out.increment();
                }
                drop(registry);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn admit(shared: &Rc<Shared>, registry: &Rc<Registry>, stream: TcpStream, peer: SocketAddr) {
    let (room, evicted) = registry.make_room();
    if evicted || !room {
        shared.counters.crowded_out.increment();
    }
    if !room {
        tracing::warn!(%peer, "refused a control connection: `max_connections` are busy");
        return;
    }
    shared.counters.accepted.increment();
    tune(&stream);
    let (id, entry) = registry.add();
    let leave = Leave { shared: shared.clone(), id };
    let shared = shared.clone();
    let task = tokio::task::spawn_local(async move {
        let _leave = leave;
        serve(shared, stream, peer, id, entry).await;
    });
    registry.attach(id, task.abort_handle());
}

/// Takes a connection off the registry when its task ends, however it ends.
struct Leave {
    shared: Rc<Shared>,
    id: ConnectionId,
}

impl Drop for Leave {
    fn drop(&mut self) {
        if let Some(registry) = self.shared.registry.upgrade() {
            registry.remove(self.id);
        }
    }
}

/// Small messages leave at once; a peer whose machine died is noticed within half a
/// minute. Where the system refuses an option the connection works without it.
pub(super) fn tune(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(15))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&keepalive);
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(Duration::from_secs(30)));
}
