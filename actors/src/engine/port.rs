//! What the lifecycle asks of an engine and of its ranks.

use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures_channel::oneshot;
use futures_util::future::BoxFuture;
use kvbaton_core::lifecycle::engine::{Bounds, EngineOrder, RankOrder};

/// The end of an order: well, or in words why not. A future that is dropped is an order whose
/// end nobody waits for any more; it may go on.
pub type Told = BoxFuture<'static, Result<(), String>>;

/// A host engine, as the lifecycle sees it.
///
/// Orders come one at a time, except for [`EngineOrder::Abort`], which may come beside others,
/// and [`EngineOrder::Run`], which may come while [`EngineOrder::Finish`],
/// [`EngineOrder::Freeze`] or [`EngineOrder::AwaitBlocks`] has not ended. Each order is safe to
/// give twice.
///
/// **Memory.** Once [`EngineOrder::Map`] of the KV cache has ended well, and until
/// [`EngineOrder::Unmap`] of it is given, what the ranks registered must be mapped, readable
/// and writable, at the same addresses.
pub trait EnginePort: Send + Sync + 'static {
    /// Carries an order out.
    fn order(&self, order: EngineOrder) -> Told;

    /// What runs or has blocks: which request, since when; for messages to operators.
    fn in_use(&self) -> BoxFuture<'static, Vec<String>>;
}

/// A rank's node, in this process or another one.
pub trait RankPort: Send + Sync + 'static {
    /// Carries an order out.
    fn order(&self, order: RankOrder, bounds: &Bounds) -> Told;

    /// What uses the rank's memory: which request, which peer, since when.
    fn in_use(&self) -> BoxFuture<'static, Vec<String>>;

    /// Why the rank's memory cannot sleep, if so `[S03]`.
    fn cannot_sleep(&self) -> Option<String>;
}

/// One question to an engine that has an event loop of its own.
#[derive(Debug)]
pub enum Asked {
    /// To be carried out; then send its end. A receiver that is gone is fine.
    Order(EngineOrder, oneshot::Sender<Result<(), String>>),
    /// What runs or has blocks.
    InUse(oneshot::Sender<Vec<String>>),
}

/// An [`EnginePort`] that puts what is asked into an engine's event loop.
#[derive(Debug, Clone)]
pub struct Mailbox(UnboundedSender<Asked>);

/// A port, and where what it is asked comes out.
#[must_use]
pub fn mailbox() -> (Mailbox, UnboundedReceiver<Asked>) {
    let (sender, receiver) = unbounded();
    (Mailbox(sender), receiver)
}

impl EnginePort for Mailbox {
    fn order(&self, order: EngineOrder) -> Told {
        let (told, end) = oneshot::channel();
        let _ = self.0.unbounded_send(Asked::Order(order, told));
        Box::pin(async move { end.await.unwrap_or_else(|_| Err("the engine has stopped".into())) })
    }

    fn in_use(&self) -> BoxFuture<'static, Vec<String>> {
        let (told, users) = oneshot::channel();
        let _ = self.0.unbounded_send(Asked::InUse(told));
        Box::pin(async move { users.await.unwrap_or_default() })
    }
}
