//! An engine's memory goes and comes back; what is left over at the end.

use super::host::Host;
use super::order::Input;
use crate::history::What;
use futures_channel::oneshot;
use futures_util::future::join_all;
use kvbaton_actors::runtime;
use std::sync::Arc;
use std::time::Duration;

/// How long idleness is waited for, in nanoseconds.
const IDLE_BOUND: u64 = 3_000_000_000;
/// How often registering again is tried.
const TRIES: u32 = 20;

impl Host {
    pub(super) async fn release_all(&self) {
        for rank in &self.ranks {
            rank.port.release_all().await;
        }
    }

    /// Whether nothing of this engine can touch memory.
    fn is_idle(&mut self) -> bool {
        self.steps_out == 0 && self.model.scheduler().counts().held == 0
    }

    pub(super) fn await_idle(&mut self, reply: oneshot::Sender<bool>) {
        self.idle.push((self.sim.now() + IDLE_BOUND, reply));
        self.send_later(IDLE_BOUND, Input::WaitedForIdle);
    }

    pub(super) fn look_for_idleness(&mut self) {
        if self.idle.is_empty() {
            return;
        }
        let (idle, now) = (self.is_idle(), self.sim.now());
        for (until, reply) in std::mem::take(&mut self.idle) {
            if idle || until <= now {
                let _ = reply.send(idle);
            } else {
                self.idle.push((until, reply));
            }
        }
    }

    /// Asks every rank at once; a rank that cannot keeps all as they were.
    pub(super) fn unregister(&self, reply: oneshot::Sender<Result<(), Arc<str>>>) {
        let bound = Duration::from_millis(self.sim.plan.bounds.drain_ms);
        let ports: Vec<_> = self.ranks.iter().map(|rank| rank.port.clone()).collect();
        let inbox = self.inbox.clone();
        runtime::spawn_local(async move {
            let each = ports.iter().map(|port| port.unregister(bound));
            let ended = join_all(each).await;
            let _ = inbox.unbounded_send(Input::Unregistered(ended, reply));
        });
    }

    pub(super) async fn unregistered(
        &mut self,
        ranks: Vec<Result<(), String>>,
        reply: oneshot::Sender<Result<(), Arc<str>>>,
    ) {
        let failed = ranks.iter().find_map(|rank| rank.as_ref().err()).cloned();
        if let Some(why) = failed {
            for (rank, ended) in self.ranks.iter().zip(&ranks) {
                if ended.is_ok() {
                    // Tried again when it fails: the ranks belong together.
                    restore(&rank.port).await;
                }
            }
            let _ = reply.send(Err(why.into()));
            return;
        }
        let _ = reply.send(Ok(()));
    }

    /// Takes the pages away. Cached KV goes with them.
    pub(super) fn unmap(&mut self) {
        let version = self.weights();
        let empty = self.model.scheduler().update_weights(version);
        debug_assert!(empty, "the caller waited for idleness");
        for rank in &self.ranks {
            rank.memory.unmap();
            rank.witness.note(What::Unmapped);
        }
        self.note(What::Slept);
    }

    pub(super) async fn wake(&mut self, reply: oneshot::Sender<Result<(), Arc<str>>>) {
        for rank in &self.ranks {
            rank.memory.map();
            rank.witness.note(What::Mapped);
        }
        for rank in &self.ranks {
            restore(&rank.port).await;
        }
        self.note(What::Woke);
        let _ = reply.send(Ok(()));
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

/// Registers again, a few times if need be.
async fn restore(port: &super::ports::Port) {
    for _ in 0..TRIES {
        if port.restore().await.is_ok() {
            return;
        }
        runtime::sleep(Duration::from_millis(100)).await;
    }
}
