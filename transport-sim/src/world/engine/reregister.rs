//! Memory that is unregistered and registered again without the library's lifecycle, as engines
//! do it that have one of their own.

use super::host::Host;
use futures_channel::oneshot;
use futures_util::future::join_all;
use kvbaton_actors::runtime;
use std::time::Duration;

impl Host {
    /// Asks every rank at once; a rank that cannot keeps all as they were.
    pub(super) fn unregister(&self, reply: oneshot::Sender<Result<(), String>>) {
        let bound = Duration::from_millis(self.sim.plan.bounds.drain_ms);
        let ports: Vec<_> = self.ranks.iter().map(|rank| rank.port.clone()).collect();
        runtime::spawn_local(async move {
            let ended = join_all(ports.iter().map(|port| port.unregister(bound))).await;
            let failed = ended.iter().find_map(|rank| rank.as_ref().err()).cloned();
            if failed.is_some() {
                for (port, ended) in ports.iter().zip(&ended) {
                    if ended.is_ok() {
                        port.restore().await;
                    }
                }
            }
            let _ = reply.send(failed.map_or(Ok(()), Err));
        });
    }

    pub(super) fn restore(&self, reply: oneshot::Sender<()>) {
        let ports: Vec<_> = self.ranks.iter().map(|rank| rank.port.clone()).collect();
        runtime::spawn_local(async move {
            join_all(ports.iter().map(|port| port.restore())).await;
            let _ = reply.send(());
        });
    }
}
