//! What has not come back at the end of a run.

use super::host::Host;
use futures_channel::oneshot;
use std::sync::Arc;

impl Host {
    pub(super) async fn release_all(&self) {
        for rank in &self.ranks {
            rank.port.release_all().await;
        }
    }

    /// Notes how full the nodes' tables are, and says what has not come back.
    pub(super) async fn inspect(&mut self, reply: oneshot::Sender<Vec<Arc<str>>>) {
        let mut left: Vec<Arc<str>> = Vec::new();
        for rank in &self.ranks {
            if let Some(tables) = rank.port.tables(&rank.witness, &rank.data).await {
                left.extend(rank.witness.left_over(tables));
            }
        }
        let counts = self.model.scheduler().counts();
        if counts.held > 0 {
            left.push(format!("{} blocks are held", counts.held).into());
        }
        left.extend(self.running.keys().map(|id| format!("request {id} has no answer").into()));
        left.extend(self.loads.requests().map(|id| format!("{id} is loading").into()));
        left.extend(self.sends.requests().map(|id| format!("{id} is held").into()));
        let _ = reply.send(left);
    }
}
