//! The ranks of an engine as its lifecycle sees them.

use super::ports::Port;
use crate::history::What;
use crate::sim::Strike;
use crate::stock::StockNode;
use crate::world::witness::Witness;
use futures_channel::mpsc::{UnboundedSender, unbounded};
use futures_channel::oneshot;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use kvbaton_actors::engine::{RankPort, Told};
use kvbaton_actors::node::NodeHandle;
use kvbaton_actors::runtime;
use kvbaton_core::ids::WeightVersion;
use kvbaton_core::lifecycle::State;
use kvbaton_core::lifecycle::engine::{Bounds, RankOrder};
use std::sync::Arc;
use std::time::Duration;

/// How long an order lasts while something happens.
pub const LASTS: Duration = Duration::from_millis(5);
/// How often it is looked whether a stock P holds nothing any more.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

const STOCK: &str = "a stock peer's memory stays registered [S03]";

/// One rank.
pub struct ObservedRank {
    witness: Witness,
    node: Node,
}

#[derive(Clone)]
enum Node {
    Ours(NodeHandle),
    /// Answers once the node holds nothing.
    Stock(UnboundedSender<oneshot::Sender<()>>),
}

impl ObservedRank {
    /// A rank, watched.
    #[must_use]
    pub fn new(port: &Port, witness: Witness) -> Self {
        let node = match port {
            Port::Ours(node) => Node::Ours(node.clone()),
            Port::Stock(node) => Node::Stock(watch_holds(node.clone())),
        };
        Self { witness, node }
    }
}

/// A stock node stays on its own task.
fn watch_holds(node: StockNode) -> UnboundedSender<oneshot::Sender<()>> {
    let (sender, mut asked) = unbounded::<oneshot::Sender<()>>();
    runtime::spawn_local(async move {
        while let Some(told) = asked.next().await {
            while node.tables().held > 0 && !told.is_canceled() {
                runtime::sleep(LOOK_AGAIN).await;
            }
            let _ = told.send(());
        }
    });
    sender
}

impl Node {
    async fn order(self, order: RankOrder, bounds: &Bounds) -> Result<(), String> {
        match (self, order) {
            (Self::Ours(node), RankOrder::Prepare) => {
                // Whoever still starts would register behind the release's back.
                let status = node.status().await;
                if status.is_some_and(|it| it.registration == State::New) {
                    return Err("it has not registered yet".into());
                }
                RankPort::order(&node, order, bounds).await
            }
            (Self::Ours(node), _) => RankPort::order(&node, order, bounds).await,
            (Self::Stock(_), RankOrder::Prepare | RankOrder::Commit) => Err(STOCK.into()),
            (Self::Stock(holds), RankOrder::AwaitHolds) => {
                let (told, none) = oneshot::channel();
                let _ = holds.unbounded_send(told);
                none.await.map_err(|_| "it has stopped".into())
            }
            // It gives nothing up, and knows no weights.
            (Self::Stock(_), _) => Ok(()),
        }
    }
}

impl ObservedRank {
    /// Every rank is told at its engine's start, before any operation: no plan strikes that.
    fn tell_first_weights(&self, version: WeightVersion, bounds: &Bounds) -> Told {
        let (node, witness, bounds) = (self.node.clone(), self.witness.clone(), bounds.clone());
        Box::pin(async move {
            node.order(RankOrder::SetWeights(version), &bounds).await?;
            witness.note(What::WeightsSet { version: version.0 });
            Ok(())
        })
    }
}

impl RankPort for ObservedRank {
    fn order(&self, order: RankOrder, bounds: &Bounds) -> Told {
        if let (RankOrder::SetWeights(version), true) = (order, self.witness.is_fresh()) {
            return self.tell_first_weights(version, bounds);
        }
        let (number, strike) = self.witness.ordered();
        self.witness.note(What::RankTold { number, order });
        let (node, witness, bounds) = (self.node.clone(), self.witness.clone(), bounds.clone());
        Box::pin(async move {
            if strike == Some(Strike::Lasts) {
                runtime::sleep(LASTS).await;
            }
            let done = match strike {
                Some(Strike::Fails) => Err("the plan says that it cannot".into()),
                _ => node.order(order, &bounds).await,
            };
            let failed: Option<Arc<str>> = done.as_ref().err().map(|why| why.as_str().into());
            if let (RankOrder::SetWeights(version), None) = (order, &failed) {
                witness.note(What::WeightsSet { version: version.0 });
            }
            witness.note(What::OrderDone { number, failed });
            done
        })
    }

    fn in_use(&self) -> BoxFuture<'static, Vec<String>> {
        match &self.node {
            Node::Ours(node) => RankPort::in_use(node),
            Node::Stock(_) => Box::pin(async { Vec::new() }),
        }
    }

    fn cannot_sleep(&self) -> Option<String> {
        match &self.node {
            Node::Ours(node) => RankPort::cannot_sleep(node),
            Node::Stock(_) => Some(STOCK.into()),
        }
    }
}
