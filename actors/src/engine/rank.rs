//! A node of this process as a rank of an engine.

use super::port::{RankPort, Told};
use crate::node::NodeHandle;
use crate::runtime;
use futures_util::future::BoxFuture;
use kvbaton_core::lifecycle::engine::{Bounds, RankOrder};
use std::time::Duration;

/// How often registering again is tried, and how long between two tries.
const TRIES: u32 = 20;
const TRY_AGAIN: Duration = Duration::from_millis(100);

impl RankPort for NodeHandle {
    fn order(&self, order: RankOrder, bounds: &Bounds) -> Told {
        let node = self.clone();
        let (drain, lease) = (bounds.release, bounds.lease);
        Box::pin(async move {
            match order {
                RankOrder::AwaitHolds => node.await_holds().await,
                RankOrder::AbortTransfers => node.abort_transfers().await,
                RankOrder::Prepare => return said(node.prepare_release(drain, lease).await),
                RankOrder::Commit => return said(node.commit_release().await),
                RankOrder::Cancel => node.cancel_release().await,
                RankOrder::Restore => return restore(&node).await,
                RankOrder::SetWeights(version) => node.set_weights(version).await,
            }
            Ok(())
        })
    }

    fn in_use(&self) -> BoxFuture<'static, Vec<String>> {
        let node = self.clone();
        Box::pin(async move { node.in_use().await })
    }

    fn cannot_sleep(&self) -> Option<String> {
        self.capabilities().cannot_sleep()
    }
}

fn said<E: ToString>(result: Result<(), E>) -> Result<(), String> {
    result.map_err(|error| error.to_string())
}

/// The ranks of an engine belong together, so a rank that cannot register tries again.
async fn restore(node: &NodeHandle) -> Result<(), String> {
    let mut tries = 1;
    loop {
        // SAFETY: the engine's port promised that what was registered is mapped again
        // (`EnginePort`), and that it stays so until it is told to unmap it, which follows
        // an unregister.
        match unsafe { node.restore() }.await {
            Ok(()) => return Ok(()),
            Err(error) if tries >= TRIES => return Err(error.to_string()),
            Err(error) => tracing::warn!(%error, tries, "memory could not be registered again"),
        }
        runtime::sleep(TRY_AGAIN).await;
        tries += 1;
    }
}
