//! Control plane: ZMTP 3 over TCP, as stock peers' ZeroMQ speaks it.
//!
//! The `zeromq` crate (0.7) reserves whatever length a frame header claims, so 73 bytes
//! from anyone abort the process; it also bounds neither parts nor connections, and does
//! not say when a peer died. Stock peers use one DEALER per pull and one ROUTER, and
//! the NULL mechanism: that much of the protocol is small, and is spoken here.
//!
//! - `zmtp`: bytes. `framed`: bounded reading and writing. `handshake`: greeting,
//!   READY, proof of the cluster key `[Z04]`. `listener`, `connection`: the ROUTER
//!   side. `request`: the DEALER side.
//! - Between our own nodes with a key, READY carries each side's nonce in a property
//!   that others ignore, and each message has two parts: tag, payload.

mod config;
mod connection;
mod counters;
mod framed;
mod handshake;
mod listener;
mod registry;
mod request;
mod zmtp;

pub use config::{ControlConfig, ControlLimits};
pub use counters::ControlCounters;

use bytes::Bytes as Payload;
use counters::Counters;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::LocalBoxStream;
use kvbaton_actors::transport::{ControlPlane, Inbox, TransportError};
use listener::Listener;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// The control plane over TCP. Lives on one thread, inside a `LocalSet` (an actix
/// system is one). Dropping it closes its listeners and their connections; streams of
/// [`ControlPlane::request`] live on by themselves.
pub struct TcpControl {
    config: Rc<ControlConfig>,
    counters: Arc<Counters>,
    listeners: Rc<RefCell<Vec<Listener>>>,
}

impl TcpControl {
    /// A control plane that has not opened anything yet.
    #[must_use]
    pub fn new(config: ControlConfig) -> Self {
        Self { config: Rc::new(config), counters: Arc::default(), listeners: Rc::default() }
    }

    /// What was counted since the start.
    #[must_use]
    pub fn counters(&self) -> ControlCounters {
        self.counters.snapshot()
    }
}

impl ControlPlane for TcpControl {
    fn listen(&self, inbox: Inbox) -> LocalBoxFuture<'static, Result<String, TransportError>> {
        let (config, counters) = (self.config.clone(), self.counters.clone());
        let listeners = self.listeners.clone();
        Box::pin(async move {
            let listener = Listener::open(config, counters, inbox).await?;
            let advertised = listener.advertised().to_owned();
            listeners.borrow_mut().push(listener);
            Ok(advertised)
        })
    }

    fn request(
        &self,
        address: &str,
        payload: Payload,
    ) -> LocalBoxStream<'static, Result<Payload, TransportError>> {
        request::start(self.config.clone(), address.to_owned(), payload)
    }
}
