//! Who is connected, and which writes are under way under which grant.
//!
//! A sender asks before it writes under a grant and says when nothing of a write can land
//! any more. So ending a grant finds out here whom it concerns: usually nobody. Senders
//! whose writes are under way are told to stop; those that do not within a moment are cut
//! off `[G02, G03]`.

use super::fence::Inbound;
use crate::clock::Clock;
use crate::memory::Registrations;
use crate::promise::Promise;
use crate::wire::ToSender;
use futures_util::future::{BoxFuture, FutureExt, ready};
use kvbaton_actors::transport::{Rejection, Revoked};
use kvbaton_core::ids::{Generation, Grant};
use kvbaton_transport_tcp::data::memory::Memory;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// All inbound connections that have queue pairs.
#[derive(Default)]
pub(crate) struct Receivers {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    senders: BTreeMap<u64, Sender>,
    /// Bytes that landed under each live grant, as its senders said.
    landed: BTreeMap<Grant, (Generation, u64)>,
    /// Grants that end once their writes are over.
    ending: BTreeMap<Grant, (Promise<Revoked>, u64)>,
}

struct Sender {
    inbound: Arc<Inbound>,
    /// Writes under way, by the sender's numbers.
    writes: BTreeMap<u64, Grant>,
}

/// Why a sender is not connected.
pub(crate) enum NotConnected {
    Stale,
    Late,
}

/// Most writes that one sender may have under way; beyond it the connection is refused.
const MAX_WRITES: usize = 65_536;

impl Receivers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a sender in; an older connection of the same one is cut off first `[F70]`.
    pub(crate) fn connect(
        &self,
        inbound: Arc<Inbound>,
        registrations: &Registrations,
    ) -> Result<u64, NotConnected> {
        let mut state = self.lock();
        // Unregistering takes the registration out first and cuts off after that, so a
        // sender that is taken in here is found there.
        if !registrations.contains(inbound.generation) {
            return Err(NotConnected::Stale);
        }
        let same = |it: &&Sender| {
            it.inbound.instance == inbound.instance && it.inbound.generation == inbound.generation
        };
        let others: Vec<_> =
            state.senders.values().filter(same).map(|it| it.inbound.clone()).collect();
        if others.iter().any(|it| it.attempt > inbound.attempt) {
            return Err(NotConnected::Late);
        }
        state.next += 1;
        let number = state.next;
        state.senders.insert(number, Sender { inbound, writes: BTreeMap::new() });
        drop(state);
        for other in others {
            self.cut_off(&other);
        }
        Ok(number)
    }

    /// A write of a sender begins, if its grant is live.
    pub(crate) fn begin(
        &self,
        sender: u64,
        write: u64,
        grant: Grant,
        memory: &Memory,
    ) -> Result<Result<(), Rejection>, &'static str> {
        let mut state = self.lock();
        let Some(found) = state.senders.get_mut(&sender) else {
            return Err("it was cut off");
        };
        // Revoking ends the grant first and looks here after that.
        if let Err(why) = memory.admit(Some(found.inbound.generation), Some(grant), &[]) {
            return Ok(Err(why));
        }
        if found.writes.len() >= MAX_WRITES {
            return Err("it has too many writes under way");
        }
        if found.writes.insert(write, grant).is_some() {
            return Err("it used the number of a write twice");
        }
        let generation = found.inbound.generation;
        state.landed.entry(grant).or_insert((generation, 0));
        Ok(Ok(()))
    }

    /// A write of a sender is over.
    pub(crate) fn end(&self, sender: u64, write: u64, bytes: u64) {
        let mut state = self.lock();
        let found = state.senders.get_mut(&sender);
        let Some(grant) = found.and_then(|it| it.writes.remove(&write)) else { return };
        if let Some((_, landed)) = state.landed.get_mut(&grant) {
            *landed = landed.saturating_add(bytes);
        }
        if let Some((_, landed)) = state.ending.get_mut(&grant) {
            *landed = landed.saturating_add(bytes);
        }
        state.settle(&[grant]);
    }

    /// Cuts a sender off and forgets it; its writes are over.
    pub(crate) fn cut_off(&self, inbound: &Arc<Inbound>) {
        inbound.fence();
        let mut state = self.lock();
        let is_it = |it: &Sender| Arc::ptr_eq(&it.inbound, inbound);
        let numbers: Vec<u64> =
            state.senders.iter().filter(|(_, it)| is_it(it)).map(|(number, _)| *number).collect();
        for number in numbers {
            let Some(sender) = state.senders.remove(&number) else { continue };
            let grants: Vec<Grant> = sender.writes.into_values().collect();
            state.settle(&grants);
        }
    }

    /// Cuts off every sender of a registration, or of all.
    pub(crate) fn cut_off_all(&self, generation: Option<Generation>) {
        let mut state = self.lock();
        let of_it = |it: Generation| generation.is_none_or(|wanted| wanted == it);
        let found: Vec<_> = state
            .senders
            .values()
            .filter(|it| of_it(it.inbound.generation))
            .map(|it| it.inbound.clone())
            .collect();
        state.landed.retain(|_, (registration, _)| !of_it(*registration));
        drop(state);
        found.iter().for_each(|inbound| self.cut_off(inbound));
    }

    /// Waits until no write is under way under a grant that has ended, and cuts off who
    /// still writes after `grace`.
    pub(crate) fn settle_grant(
        self: &Arc<Self>,
        grant: Grant,
        was_live: bool,
        grace: Duration,
        clock: &Clock,
    ) -> BoxFuture<'static, Revoked> {
        let mut state = self.lock();
        if let Some((promise, _)) = state.ending.get(&grant) {
            return promise.clone().boxed();
        }
        let landed = state.landed.remove(&grant).map_or(0, |(_, landed)| landed);
        let writers = state.writers(grant);
        if writers.is_empty() {
            return ready(Revoked { was_live, bytes_landed: landed }).boxed();
        }
        let promise = Promise::new();
        state.ending.insert(grant, (promise.clone(), landed));
        drop(state);
        let told = writers.iter().all(|it| it.tell_now(&ToSender::Stop(grant)));
        let when = if told { Instant::now() + grace } else { Instant::now() };
        let receivers: Weak<Self> = Arc::downgrade(self);
        clock.at(when, move || {
            if let Some(receivers) = receivers.upgrade() {
                receivers.cut_off_writers(grant);
            }
        });
        promise.boxed()
    }

    fn cut_off_writers(&self, grant: Grant) {
        let writers = self.lock().writers(grant);
        for inbound in writers {
            tracing::info!(
                peer = inbound.peer,
                "did not stop a write whose grant ended; its queue pairs are cut off"
            );
            self.cut_off(&inbound);
        }
    }
}

impl State {
    fn writers(&self, grant: Grant) -> Vec<Arc<Inbound>> {
        let writes = |it: &&Sender| it.writes.values().any(|of| *of == grant);
        self.senders.values().filter(writes).map(|it| it.inbound.clone()).collect()
    }

    /// Keeps the promises of grants under which no write is left.
    fn settle(&mut self, grants: &[Grant]) {
        for grant in grants {
            if !self.ending.contains_key(grant) || !self.writers(*grant).is_empty() {
                continue;
            }
            if let Some((promise, bytes_landed)) = self.ending.remove(grant) {
                promise.set(Revoked { was_live: true, bytes_landed });
            }
        }
    }
}
