//! One write on its way: sent in batches, each read from P's memory when it is sent and
//! landing in D's a while later.

use super::state::SimData;
use crate::history::WriteName;
use crate::sim::names;
use crate::sites;
use futures_channel::oneshot;
use kvbaton_actors::transport::{Rejection, TransportError, Write, WriteOutcome};
use kvbaton_core::ids::{Address, Bytes, Generation, Grant};
use kvbaton_core::region::{Copy, MemoryRange};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Batches of one write at most: more would only cost time.
const BATCHES: usize = 6;
/// How often what cannot go on now looks again.
const AGAIN: u64 = 20_000_000;

/// Bytes on their way.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub to: Address,
    pub bytes: Vec<u8>,
}

impl Piece {
    pub(super) fn range(&self) -> MemoryRange {
        MemoryRange { start: self.to, len: Bytes(self.bytes.len() as u64) }
    }
}

/// A write that was handed to a data plane.
pub(super) struct Flight {
    source: Arc<SimData>,
    write: Write,
    name: WriteName,
    /// Engine of the receiver.
    to: Option<u16>,
    progress: Mutex<Progress>,
}

struct Progress {
    /// Copies still to be sent, batch by batch, last first.
    batches: Vec<Vec<Copy>>,
    /// Batches sent and not yet landed or refused.
    flying: u32,
    /// Batches whose acknowledgement has not come back.
    unacknowledged: usize,
    /// Life of the receiver that took the first piece: no other takes more.
    receiver: Option<u16>,
    cancelled: bool,
    /// Its issuer does not wait any more.
    given_up: bool,
    done: Option<oneshot::Sender<WriteOutcome>>,
}

impl Flight {
    /// Starts a write; its outcome comes on the channel.
    pub(super) fn start(
        source: &Arc<SimData>,
        write: Write,
        name: WriteName,
    ) -> (Arc<Self>, oneshot::Receiver<WriteOutcome>) {
        let (done, landed) = oneshot::channel();
        let (sim, engine) = (source.sim.clone(), source.node.engine);
        let piece = sim.links().odds().piece;
        let mut batches = batches(&write.copies, piece);
        // They are taken from the end.
        if !sim.fires(sites::PIECES_REVERSED, engine) {
            batches.reverse();
        }
        let progress = Progress {
            unacknowledged: batches.len(),
            batches,
            flying: 0,
            receiver: None,
            cancelled: false,
            given_up: false,
            done: Some(done),
        };
        let to = names::engine_of(&write.session.host);
        let source = source.clone();
        let flight = Arc::new(Self { source, write, name, to, progress: Mutex::new(progress) });
        let late = sim.fires(sites::WRITE_LATE, engine);
        let wait = if late { sim.some_ms("write late", engine, 1, 300) } else { 0 };
        let first = flight.clone();
        sim.after(wait, move || first.send_batch());
        (flight, landed)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().expect("no panic under the lock")
    }

    pub(super) const fn name(&self) -> WriteName {
        self.name
    }

    pub(super) const fn grant(&self) -> Option<Grant> {
        self.write.grant
    }

    pub(super) const fn generation(&self) -> Option<Generation> {
        self.write.generation
    }

    pub(super) fn keys(&self) -> &[u8] {
        &self.write.keys
    }

    pub(super) fn bytes(&self) -> u64 {
        self.write.copies.iter().map(|copy| copy.len.0).sum()
    }

    /// Sends no more; ends once what flies has landed.
    pub(super) fn cancel(&self) {
        let mut progress = self.progress();
        progress.cancelled = true;
        progress.batches.clear();
        if progress.flying == 0 {
            let error = TransportError::Cancelled { peer: self.write.session.to_string() };
            progress.end(WriteOutcome::Failed { error, settled: true });
        }
    }

    /// The issuer's bound has passed: nothing more is sent, but what flies may land.
    pub(super) fn give_up(&self, what: &'static str, after: Duration) -> WriteOutcome {
        let mut progress = self.progress();
        progress.given_up = true;
        progress.done = None;
        progress.batches.clear();
        let error = TransportError::TimedOut { peer: self.write.session.to_string(), what, after };
        WriteOutcome::Failed { error, settled: progress.flying == 0 }
    }

    fn later(self: &Arc<Self>, nanos: u64, deed: impl FnOnce(Arc<Self>) + Send + 'static) {
        let flight = self.clone();
        self.source.sim.after(nanos, move || deed(flight));
    }

    fn fail(&self, reason: &str, settled: bool) {
        let (peer, reason) = (self.write.session.to_string(), reason.to_owned());
        let error = TransportError::Disconnected { peer, reason };
        let mut progress = self.progress();
        progress.batches.clear();
        let settled = settled || progress.flying == 0;
        progress.end(WriteOutcome::Failed { error, settled });
    }

    /// Reads the next batch from P's memory and sends it.
    fn send_batch(self: &Arc<Self>) {
        let (sim, node) = (&self.source.sim, self.source.node);
        if !sim.is_alive(node) {
            return; // What was sent still lands: torn by the crash.
        }
        if sim.is_stopped(node.engine) {
            return self.later(AGAIN, |it| it.send_batch());
        }
        let Some(to) = self.to else { return self.fail("no such host", true) };
        let Some(batch) = self.progress().batches.pop() else { return };
        let odds = sim.links().odds().clone();
        if sim.links().dice().happens("write fails", u32::from(node.engine), odds.write_fails) {
            return self.fail("connection reset", false);
        }
        let mut pieces: Vec<Piece> = batch.iter().map(|copy| self.read(copy)).collect();
        self.stray(&mut pieces);
        let bytes: u64 = batch.iter().map(|copy| copy.len.0).sum();
        let busy = sim.links().transmission(node.engine, to, bytes);
        let mut flight = busy + sim.links().latency(node.engine, to);
        let stalls =
            sim.links().dice().happens("write stalls", u32::from(node.engine), odds.write_stalls);
        if stalls {
            flight += sim.some_ms("stall", node.engine, 1, odds.stall_ms);
        }
        self.progress().flying += 1;
        self.later(flight, move |it| it.arrive(pieces));
        self.later(busy, |it| it.send_batch());
    }

    /// Sends a piece to D's first row, the null block's, which no load may name.
    fn stray(&self, pieces: &mut [Piece]) {
        let (source, checks) = (&self.source, super::Checks::Grants);
        let receiver = source.sim.people().sessions.get(&self.write.session).cloned();
        if let (Some(receiver), Some(piece)) = (receiver, pieces.first_mut())
            && receiver.checks == checks
            && self.write.grant.is_some()
            && source.sim.fires(sites::WRITE_STRAYS, source.node.engine)
        {
            piece.to = receiver.memory.range().start;
        }
    }

    fn read(&self, copy: &Copy) -> Piece {
        let mut bytes = vec![0; usize::try_from(copy.len.0).expect("a small world")];
        let memory = &self.source.memory;
        if let Some(pages) = memory.pages().filter(|_| memory.contains(copy.source, copy.len)) {
            pages.read(copy.source, &mut bytes);
        }
        Piece { to: copy.destination, bytes }
    }

    /// A batch is at the receiver.
    fn arrive(self: &Arc<Self>, pieces: Vec<Piece>) {
        let (sim, from) = (&self.source.sim, self.source.node.engine);
        let to = self.to.expect("checked before it was sent");
        let adapter = |data: &SimData| data.checks == super::Checks::Keys;
        let receiver = sim.people().sessions.get(&self.write.session).cloned();
        let receiver = receiver.filter(|it| sim.is_alive(it.node));
        if sim.links().is_cut(from, to) {
            // Held up by the cut; what nobody waits for is gone one time in two.
            let gone = self.progress().given_up
                && sim.links().dice().happens("held up", u32::from(from), 5_000);
            return if gone { self.landed() } else { self.later(AGAIN, |it| it.arrive(pieces)) };
        }
        let Some(receiver) = receiver else {
            self.landed();
            let soon = sim.links().latency(to, from);
            return self.later(soon, |it| it.fail("its process is gone", true));
        };
        if sim.is_stopped(to) && !adapter(&receiver) {
            return self.later(AGAIN, |it| it.arrive(pieces));
        }
        let life = *self.progress().receiver.get_or_insert(receiver.node.life);
        if life != receiver.node.life {
            self.landed();
            let soon = sim.links().latency(to, from);
            return self.later(soon, |it| it.fail("its process has restarted", true));
        }
        let taken = receiver.land(self, &pieces);
        self.landed();
        let soon = sim.links().latency(to, from);
        match taken {
            Err(why) => self.later(soon, move |it| it.refused(why)),
            Ok(()) => self.later(soon, |it| it.acknowledged()),
        }
    }

    /// One batch flies no more.
    fn landed(&self) {
        let mut progress = self.progress();
        progress.flying -= 1;
        if progress.flying == 0 && progress.cancelled {
            let error = TransportError::Cancelled { peer: self.write.session.to_string() };
            progress.end(WriteOutcome::Failed { error, settled: true });
        }
    }

    fn comes_back(&self) -> bool {
        let (sim, from) = (&self.source.sim, self.source.node.engine);
        !self.to.is_some_and(|to| sim.links().is_cut(to, from))
    }

    fn refused(&self, why: Rejection) {
        if self.comes_back() {
            let mut progress = self.progress();
            progress.batches.clear();
            // A refused write is over only once nothing of it flies.
            let outcome = if progress.flying == 0 {
                WriteOutcome::Rejected(why)
            } else {
                let peer = self.write.session.to_string();
                let error = TransportError::Refused { peer, what: why.to_string() };
                WriteOutcome::Failed { error, settled: false }
            };
            progress.end(outcome);
        }
    }

    fn acknowledged(&self) {
        let whole = {
            let mut progress = self.progress();
            progress.unacknowledged -= 1;
            progress.unacknowledged == 0
        };
        let engine = self.source.node.engine;
        if whole && self.comes_back() && !self.source.sim.fires(sites::ACK_LOST, engine) {
            self.progress().end(WriteOutcome::Written);
        }
    }
}

impl Progress {
    fn end(&mut self, outcome: WriteOutcome) {
        if let Some(done) = self.done.take() {
            let _ = done.send(outcome);
        }
    }
}

/// Copies cut into pieces of at most `piece` bytes, in at most [`BATCHES`] batches.
fn batches(copies: &[Copy], piece: u64) -> Vec<Vec<Copy>> {
    let mut pieces = Vec::new();
    for copy in copies {
        let mut done = 0;
        while done < copy.len.0 {
            let len = piece.max(1).min(copy.len.0 - done);
            pieces.push(Copy {
                source: Address(copy.source.0 + done),
                destination: Address(copy.destination.0 + done),
                len: Bytes(len),
            });
            done += len;
        }
    }
    let each = pieces.len().div_ceil(BATCHES).max(1);
    pieces.chunks(each).map(<[Copy]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_cover_every_byte_once_in_order() {
        let copy = |at, len| Copy {
            source: Address(at),
            destination: Address(at + 1000),
            len: Bytes(len),
        };
        let cut = batches(&[copy(0, 10), copy(50, 3), copy(60, 25)], 4);
        assert!(cut.len() <= BATCHES);
        let bytes: Vec<u64> =
            cut.iter().flatten().flat_map(|it| it.source.0..it.source.0 + it.len.0).collect();
        let wanted: Vec<u64> = (0..10).chain(50..53).chain(60..85).collect();
        assert_eq!(bytes, wanted);
        assert!(cut.iter().flatten().all(|it| it.destination.0 == it.source.0 + 1000));
    }
}
