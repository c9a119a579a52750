//! How an engine stands.

use super::host::EngineHost;
use super::notice::Snapshot;

impl EngineHost {
    /// How it stands: what is still in use, and what the nodes have counted.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let counts = self.scheduler.counts();
        if counts.held > 0 || self.scheduler.requests() > 0 {
            snapshot.leftovers.push(format!(
                "{} blocks held by {} requests",
                counts.held,
                self.scheduler.requests()
            ));
        }
        for (index, (_, rank)) in self.ranks.iter().enumerate() {
            let Some(status) = rank.node().status() else {
                snapshot.leftovers.push(format!("rank {index}: its node has stopped"));
                continue;
            };
            let (sender, receiver) = (status.sender, status.receiver);
            let busy = sender.held + sender.transfers + sender.writes + sender.open_pulls;
            if busy + receiver.loads + receiver.open_pulls > 0 {
                snapshot.leftovers.push(format!("rank {index}: {sender:?} {receiver:?}"));
            }
            snapshot.bytes_received += status.data.bytes_received.0;
            let data = status.data;
            snapshot.refused_writes +=
                data.refused_grant + data.refused_generation + data.refused_range;
            snapshot.metrics.push(rank.node().metrics());
        }
        snapshot.metrics.push(self.engine.metrics());
        snapshot
    }
}
