//! One connection to a peer, and the thread that serves it.
//!
//! Whoever holds the `io` lock moves the connection on: its thread, or a caller with a
//! small write while the connection is idle, which saves a wake-up. No call made under
//! that lock can block, so a timeout takes it in bounded time, and once a connection is
//! torn down under it no source memory is read any more [F05].

use super::frame::{ACK_LEN, Ack, Verdict};
use super::mooncake::request;
use super::net::{self, Gather, Interest, Wake};
use super::outgoing::{Dialect, Frame, Part};
use super::peer::Peer;
use super::plane::Shared;
use super::write::PartEnd;
use kvbaton_actors::transport::{Rejection, TransportError};
use std::collections::{BTreeMap, VecDeque};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Bytes that one call sends at most: bounds how long gates are held.
const SEND_BYTES: usize = 1 << 20;
/// Parts of one connection, unacknowledged ones of ended writes included.
const MAX_PARTS: usize = 4096;

/// Where a lane leads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    pub(super) host: Arc<str>,
    pub(super) port: u16,
    pub(super) dialect: Dialect,
}

/// One connection to a peer.
pub(super) struct Lane {
    pub(super) target: Target,
    /// Which of the peer's connections it is.
    pub(super) slot: usize,
    /// Payload bytes given to it and not yet acknowledged.
    load: AtomicU64,
    peer: Weak<Peer>,
    incoming: Mutex<Incoming>,
    io: Mutex<Option<Io>>,
    wake: Wake,
    kicked: AtomicBool,
}

#[derive(Default)]
struct Incoming {
    parts: VecDeque<Part>,
    closed: bool,
}

/// What is left to do once a connection was moved on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pumped {
    /// Everything given was sent.
    Idle,
    /// The socket takes no more for now.
    Blocked,
}

impl Lane {
    /// Makes a lane and starts its thread, which connects first.
    pub(super) fn start(
        target: Target,
        slot: usize,
        peer: &Arc<Peer>,
        shared: &Arc<Shared>,
    ) -> std::io::Result<Arc<Self>> {
        let lane = Arc::new(Self {
            target,
            slot,
            load: AtomicU64::new(0),
            peer: Arc::downgrade(peer),
            incoming: Mutex::default(),
            io: Mutex::default(),
            wake: Wake::new()?,
            kicked: AtomicBool::new(false),
        });
        let (thread_lane, thread_shared) = (lane.clone(), shared.clone());
        let name = peer.session.to_string();
        shared.spawn("kvb-send", move || thread_lane.run(&thread_shared, &name))?;
        Ok(lane)
    }

    fn lock_incoming(&self) -> MutexGuard<'_, Incoming> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_io(&self) -> MutexGuard<'_, Option<Io>> {
        self.io.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn load(&self) -> u64 {
        self.load.load(SeqCst)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock_incoming().closed
    }

    /// Takes a part, or gives it back when the lane has ended. With `inline`, tries to send
    /// on this thread, and says whether it did; otherwise the lane's thread does.
    pub(super) fn push(&self, part: Part, inline: bool) -> Result<bool, Part> {
        let len = part.len;
        {
            let mut incoming = self.lock_incoming();
            if incoming.closed {
                return Err(part);
            }
            incoming.parts.push_back(part);
        }
        self.load.fetch_add(len, SeqCst);
        let sent = inline && self.try_pump();
        if !sent {
            self.kick();
        }
        Ok(sent)
    }

    /// Looks for answers on the caller's thread, for as long as the lane's own thread would:
    /// that of a small write is often there before the lane's thread has woken up.
    pub(super) fn spin_for(&self, ended: impl Fn() -> bool, spin: Duration) {
        let begin = Instant::now();
        while !ended() && begin.elapsed() < spin {
            self.try_pump();
            net::yield_now();
        }
        if !ended() {
            self.kick();
        }
    }

    /// Takes answers that have arrived and that nobody has looked for.
    pub(super) fn look(&self) {
        self.try_pump();
    }

    /// Moves the connection on if nobody else does; true when nothing is left to send.
    fn try_pump(&self) -> bool {
        let Ok(mut guard) = self.io.try_lock() else { return false };
        let Some(io) = guard.as_mut() else { return false };
        match io.pump(self) {
            Ok(pumped) => pumped == Pumped::Idle,
            Err(error) => {
                self.end(guard, &error, true);
                true
            }
        }
    }

    /// Makes the lane's thread look.
    pub(super) fn kick(&self) {
        if !self.kicked.swap(true, SeqCst) {
            self.wake.wake();
        }
    }

    /// Closes the connection; whatever it carried fails.
    pub(super) fn close(&self, reason: &TransportError) {
        self.end(self.lock_io(), reason, false);
    }

    /// Takes one write off this connection. What has not begun is dropped. What has been
    /// sent is left alone unless `hard`; a connection in the middle of its frame is reset.
    pub(super) fn evict(&self, serial: u64, hard: bool, error: &TransportError) {
        let mut io = self.lock_io();
        let mut ended = Vec::new();
        self.lock_incoming().parts.retain_mut(|part| {
            let keep = part.write.serial != serial;
            if !keep {
                ended.push((part.write.clone(), part.len, true));
            }
            keep
        });
        let must_reset = io.as_mut().is_some_and(|io| io.evict(serial, hard, &mut ended));
        for (write, len, settled) in ended {
            self.load.fetch_sub(len, SeqCst);
            write.part_ended(PartEnd::Failed { error: error.clone(), settled });
        }
        if must_reset {
            let reason = TransportError::Disconnected {
                peer: self.peer.upgrade().map_or_else(String::new, |p| p.session.to_string()),
                reason: "its connection was reset because a write over it ended early".into(),
            };
            self.end(io, &reason, true);
        }
    }

    /// Ends the lane: nothing is sent any more, every part ends or, when it had not begun
    /// and `move_on`, goes to another connection.
    fn end(&self, mut guard: MutexGuard<'_, Option<Io>>, error: &TransportError, move_on: bool) {
        let mut parts: Vec<Part> = {
            let mut incoming = self.lock_incoming();
            incoming.closed = true;
            incoming.parts.drain(..).collect()
        };
        if let Some(io) = guard.take() {
            net::reset(&io.stream);
            parts.extend(io.parts.into_values());
        }
        drop(guard);
        self.kick();
        let peer = self.peer.upgrade();
        for mut part in parts {
            self.load.fetch_sub(part.len, SeqCst);
            match &peer {
                _ if part.detached => {}
                Some(peer) if move_on && !part.started && part.moves == 0 => {
                    part.moves += 1;
                    peer.send(part, &self.target, Some(self.slot), false);
                }
                _ => {
                    let (error, settled) = (error.clone(), !part.started);
                    part.write.part_ended(PartEnd::Failed { error, settled });
                }
            }
        }
        if let Some(peer) = peer {
            peer.forget_closed_lanes();
        }
    }

    fn run(&self, shared: &Arc<Shared>, name: &str) {
        match shared.connect(&self.target, name) {
            Err(error) => return self.end(self.lock_io(), &error, false),
            Ok(stream) => {
                let io = Io::new(stream, self.target.dialect, shared, name);
                let mut guard = self.lock_io();
                if self.is_closed() {
                    return;
                }
                *guard = Some(io);
            }
        }
        let spin = shared.config.spin;
        let mut active = Instant::now();
        loop {
            let mut guard = self.lock_io();
            let Some(io) = guard.as_mut() else { return };
            let before = io.moved;
            let (pumped, stream, expects) = match io.pump(self) {
                Ok(pumped) => (pumped, io.stream.clone(), !io.parts.is_empty()),
                Err(error) => return self.end(guard, &error, true),
            };
            if io.moved != before {
                active = Instant::now();
            }
            drop(guard);
            let fd = stream.as_raw_fd();
            // With nothing to expect, spinning would only keep the woken caller off its core.
            let spins = expects && pumped == Pumped::Idle;
            if spins && self.spin_until_ready(fd, active, spin) {
                continue;
            }
            if self.kicked.swap(false, SeqCst) {
                self.wake.clear();
                continue;
            }
            // While nothing is expected, only the end of the connection wakes this thread; a
            // caller that sent a small write looks for its answer first, then kicks.
            let interest = Interest { read: expects, write: pumped == Pumped::Blocked };
            let fds = [(fd, interest), (self.wake.fd(), net::READABLE)];
            match net::wait(&fds, Some(shared.config.idle_timeout)) {
                Ok(true) => {}
                Ok(false) if self.retire() => return,
                Ok(false) => {}
                Err(error) => {
                    let error = lost(name, &error.to_string());
                    return self.end(self.lock_io(), &error, true);
                }
            }
        }
    }

    /// Looks again for a moment after some activity: what follows it follows soon.
    fn spin_until_ready(&self, fd: RawFd, active: Instant, spin: Duration) -> bool {
        while active.elapsed() < spin {
            if self.kicked.load(SeqCst)
                || net::wait(&[(fd, net::READABLE)], Some(Duration::ZERO)).unwrap_or(true)
            {
                return true;
            }
            net::yield_now();
        }
        false
    }

    /// Closes the connection if nothing is under way on it.
    fn retire(&self) -> bool {
        let mut io = self.lock_io();
        let mut incoming = self.lock_incoming();
        let idle = incoming.parts.is_empty() && io.as_ref().is_none_or(|io| io.parts.is_empty());
        if idle {
            incoming.closed = true;
            io.take();
            drop((incoming, io));
            if let Some(peer) = self.peer.upgrade() {
                peer.forget_closed_lanes();
            }
        }
        idle
    }
}

fn lost(peer: &str, reason: &str) -> TransportError {
    TransportError::Disconnected { peer: peer.into(), reason: reason.into() }
}

/// The state of an open connection.
struct Io {
    stream: Arc<TcpStream>,
    dialect: Dialect,
    name: Arc<str>,
    parts: BTreeMap<u64, Part>,
    /// Batches with frames still to send, in turn.
    ready: VecDeque<u64>,
    /// Batches that Mooncake statuses are due for, in the order of the requests.
    owed: VecDeque<(u64, u64)>,
    frame: Frame,
    gather: Gather,
    next_batch: u64,
    answers: Vec<u8>,
    /// Changes whenever something was sent or received.
    moved: u64,
}

impl Io {
    fn new(stream: TcpStream, dialect: Dialect, shared: &Shared, name: &str) -> Self {
        Self {
            stream: Arc::new(stream),
            dialect,
            name: name.into(),
            parts: BTreeMap::new(),
            ready: VecDeque::new(),
            owed: VecDeque::new(),
            frame: Frame::default(),
            gather: Gather::new(shared.config.iovecs_per_call, SEND_BYTES),
            next_batch: 0,
            answers: Vec::new(),
            moved: 0,
        }
    }

    /// Takes answers and sends frames, as far as both go without waiting.
    fn pump(&mut self, lane: &Lane) -> Result<Pumped, TransportError> {
        loop {
            self.read_answers(lane)?;
            self.take_incoming(lane)?;
            if self.frame.is_done() && !self.next_frame(lane) {
                return Ok(Pumped::Idle);
            }
            if !self.send_frame()? {
                return Ok(Pumped::Blocked);
            }
        }
    }

    fn take_incoming(&mut self, lane: &Lane) -> Result<(), TransportError> {
        let mut incoming = lane.lock_incoming();
        for part in incoming.parts.drain(..) {
            self.next_batch += 1;
            self.parts.insert(self.next_batch, part);
            self.ready.push_back(self.next_batch);
        }
        if self.parts.len() > MAX_PARTS {
            return Err(lost(&self.name, "it acknowledges nothing"));
        }
        Ok(())
    }

    /// Prepares the next frame; writes take turns frame by frame. False: none is left.
    fn next_frame(&mut self, lane: &Lane) -> bool {
        while let Some(batch) = self.ready.pop_front() {
            let Some(part) = self.parts.get_mut(&batch) else { continue };
            if part.write.is_stopped() && !part.started {
                self.end_part(lane, batch, PartEnd::Aborted);
                continue;
            }
            let owed = part.owed;
            self.frame.build(part, batch, self.dialect);
            if part.owed > owed {
                self.owed.push_back((batch, part.owed - owed));
            }
            if !part.sent {
                self.ready.push_back(batch);
            }
            if !self.frame.is_done() {
                return true;
            }
            // A stopped write towards a stock peer: nothing more is sent of it.
            self.end_if_paid(lane, batch);
        }
        false
    }

    /// Sends some of the frame; false when the socket takes no more for now.
    fn send_frame(&mut self) -> Result<bool, TransportError> {
        self.frame.gather(&mut self.gather);
        let Some(part) = self.parts.get_mut(&self.frame.batch) else {
            return Err(lost(&self.name, "it acknowledged a batch before it was sent"));
        };
        let sources = if self.frame.has_payload() { &part.write.sources[..] } else { &[] };
        let inside: Vec<_> = sources.iter().map_while(|source| source.enter()).collect();
        if inside.len() < sources.len() {
            let reason = "this node unregistered the memory that a write was reading";
            return Err(TransportError::Local {
                what: format!("sending to {}", self.name),
                reason: reason.into(),
            });
        }
        // SAFETY: the frame's heads are ours; its payload lies in registered memory, whose
        // registrations cannot end while `inside` lives.
        let sent = unsafe { net::send_pieces(self.stream.as_raw_fd(), &mut self.gather) };
        drop(inside);
        match sent {
            Ok(sent) => {
                part.started = true;
                self.moved += 1;
                self.frame.advance(sent);
                Ok(true)
            }
            Err(error) if net::is_retry(&error) => Ok(false),
            Err(error) => Err(lost(&self.name, &error.to_string())),
        }
    }

    fn read_answers(&mut self, lane: &Lane) -> Result<(), TransportError> {
        let mut buffer = [0; 4096];
        loop {
            match net::receive(self.stream.as_raw_fd(), &mut buffer) {
                Ok(0) => return Err(lost(&self.name, "end of stream")),
                Ok(got) => {
                    self.moved += 1;
                    self.answers.extend_from_slice(&buffer[..got]);
                    self.take_answers(lane).map_err(|what| TransportError::Malformed {
                        peer: self.name.to_string(),
                        what: what.into(),
                    })?;
                    if got < buffer.len() {
                        return Ok(());
                    }
                }
                Err(error) if net::is_retry(&error) => return Ok(()),
                Err(error) => return Err(lost(&self.name, &error.to_string())),
            }
        }
    }

    fn take_answers(&mut self, lane: &Lane) -> Result<(), &'static str> {
        let answers = std::mem::take(&mut self.answers);
        let len = match self.dialect {
            Dialect::Kvbaton => ACK_LEN,
            Dialect::Mooncake { statuses: true } => request::STATUS_LEN,
            Dialect::Mooncake { statuses: false } => 1,
        };
        let mut chunks = answers.chunks_exact(len);
        for chunk in &mut chunks {
            match self.dialect {
                Dialect::Kvbaton => {
                    let ack = Ack::decode(chunk.try_into().expect("one acknowledgement"))?;
                    self.acknowledged(lane, ack)?;
                }
                Dialect::Mooncake { statuses } => {
                    let fine = !statuses
                        || request::decode_status(chunk.try_into().expect("one status"))
                            .ok_or("what is no status")?;
                    self.paid(lane, fine)?;
                }
            }
        }
        self.answers.extend_from_slice(chunks.remainder());
        Ok(())
    }

    fn acknowledged(&mut self, lane: &Lane, ack: Ack) -> Result<(), &'static str> {
        let part = self.parts.get(&ack.batch).ok_or("an acknowledgement of an unknown batch")?;
        match (ack.last, ack.verdict) {
            (false, Verdict::Refused(rejection)) => {
                part.write.refuse(rejection);
                return Ok(());
            }
            (false, _) => return Err("an early acknowledgement that refuses nothing"),
            (true, _) if !part.sent => return Err("an acknowledgement of an unsent batch"),
            (true, _) => {}
        }
        let end = match ack.verdict {
            Verdict::Applied if part.has_left() => return Err("success of a batch given up"),
            Verdict::Applied => PartEnd::Applied,
            Verdict::Refused(rejection) => PartEnd::Refused(rejection),
            Verdict::Aborted => PartEnd::Aborted,
        };
        self.end_part(lane, ack.batch, end);
        Ok(())
    }

    /// Takes one status, or the byte read back, of a Mooncake peer.
    fn paid(&mut self, lane: &Lane, applied: bool) -> Result<(), &'static str> {
        let (batch, left) = self.owed.front_mut().ok_or("a status that nobody waits for")?;
        let batch = *batch;
        *left -= 1;
        if *left == 0 {
            self.owed.pop_front();
        }
        if !applied {
            // It closes after a refusal and serves requests in order: no later one lands.
            self.end_part(lane, batch, PartEnd::Refused(Rejection::OutsideMemory));
            return Ok(());
        }
        if let Some(part) = self.parts.get_mut(&batch) {
            part.owed -= 1;
        }
        self.end_if_paid(lane, batch);
        Ok(())
    }

    fn end_if_paid(&mut self, lane: &Lane, batch: u64) {
        let Some(part) = self.parts.get(&batch).filter(|part| part.sent && part.owed == 0) else {
            return;
        };
        let end = match self.dialect {
            _ if !part.has_left() => PartEnd::Applied,
            Dialect::Mooncake { statuses: false } => PartEnd::Failed {
                error: TransportError::Cancelled { peer: self.name.to_string() },
                settled: false,
            },
            _ => PartEnd::Aborted,
        };
        self.end_part(lane, batch, end);
    }

    fn end_part(&mut self, lane: &Lane, batch: u64, end: PartEnd) {
        let Some(part) = self.parts.remove(&batch) else { return };
        lane.load.fetch_sub(part.len, SeqCst);
        if !part.detached {
            part.write.part_ended(end);
        }
    }

    /// Drops what the write has not begun here and lets go of what was sent; true when the
    /// connection must be reset.
    fn evict(
        &mut self,
        serial: u64,
        hard: bool,
        ended: &mut Vec<(Arc<super::write::WriteState>, u64, bool)>,
    ) -> bool {
        let framed = (!self.frame.is_done()).then_some(self.frame.batch);
        let mut must_reset = false;
        let mut dropped = Vec::new();
        for (batch, part) in &mut self.parts {
            if part.write.serial != serial || part.detached {
                continue;
            }
            part.detached = true;
            let dropped_len = if part.started { 0 } else { part.len };
            ended.push((part.write.clone(), dropped_len, !part.started));
            if part.started {
                must_reset |= hard || framed == Some(*batch);
            } else {
                dropped.push(*batch);
            }
        }
        for batch in dropped {
            self.parts.remove(&batch);
            self.owed.retain(|(owed, _)| *owed != batch);
            if framed == Some(batch) {
                self.frame.clear();
            }
        }
        must_reset
    }
}
