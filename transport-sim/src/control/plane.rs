//! One node's end of the control plane.

use super::{inbound, reply};
use crate::history::{ConnectionId, NodeId, What};
use crate::sim::Sim;
use bytes::Bytes;
use futures_channel::mpsc::{UnboundedReceiver, unbounded};
use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{LocalBoxStream, Stream};
use kvbaton_actors::runtime;
use kvbaton_actors::transport::{Answer, ControlPlane, Inbound, Inbox, TransportError};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The control plane of one node's life.
pub struct SimControl {
    sim: Arc<Sim>,
    node: NodeId,
    address: Arc<str>,
}

impl SimControl {
    /// A control plane that listens at `address` once it is told to.
    #[must_use]
    pub const fn new(sim: Arc<Sim>, node: NodeId, address: Arc<str>) -> Self {
        Self { sim, node, address }
    }
}

impl ControlPlane for SimControl {
    fn listen(&self, inbox: Inbox) -> LocalBoxFuture<'static, Result<String, TransportError>> {
        let (arrivals, mut arrived) = unbounded::<(ConnectionId, Bytes)>();
        let (sim, node, address) = (self.sim.clone(), self.node, self.address.clone());
        sim.listen(address.clone(), node, arrivals);
        runtime::spawn_local(async move {
            while let Some((connection, payload)) = arrived.next().await {
                sim.note_at(node, inbound(connection, None, &payload));
                let answering = sim.clone();
                let answer: Answer =
                    Arc::new(move |bytes| answering.answer(connection, node, bytes));
                inbox(Inbound { payload, answer, peer: None });
            }
        });
        Box::pin(async move { Ok(address.to_string()) })
    }

    fn request(
        &self,
        address: &str,
        payload: Bytes,
    ) -> LocalBoxStream<'static, Result<Bytes, TransportError>> {
        let (back, answers) = unbounded();
        let connection = self.sim.connect(self.node, address, back);
        let address: Arc<str> = address.into();
        self.sim.note_at(self.node, inbound(connection, Some(address.clone()), &payload));
        self.sim.send_request(connection, &payload);
        let (sim, node) = (self.sim.clone(), self.node);
        Box::pin(Answers { sim, node, connection, address, answers, broken: false })
    }
}

/// Answers of one connection; dropping them closes it.
struct Answers {
    sim: Arc<Sim>,
    node: NodeId,
    connection: ConnectionId,
    address: Arc<str>,
    answers: UnboundedReceiver<Result<Bytes, TransportError>>,
    broken: bool,
}

impl Stream for Answers {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.broken {
            return Poll::Ready(None);
        }
        let polled = self.answers.poll_next_unpin(context);
        let connection = self.connection;
        match &polled {
            Poll::Ready(Some(Ok(payload))) => {
                let what = match reply(payload) {
                    Some(reply) => {
                        What::ReplyReceived { connection, from: self.address.clone(), reply }
                    }
                    None => What::Unreadable { connection },
                };
                self.sim.note_at(self.node, what);
            }
            Poll::Ready(Some(Err(_))) => {
                self.broken = true;
                self.sim.note_at(self.node, What::ConnectionBroken { connection });
            }
            Poll::Ready(None) | Poll::Pending => {}
        }
        polled
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.sim.close(self.connection);
        if !self.broken {
            let connection = self.connection;
            self.sim.note_at(self.node, What::ConnectionClosed { connection });
        }
    }
}
