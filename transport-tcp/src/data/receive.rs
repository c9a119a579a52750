//! Receives frames of our own protocol, straight into granted rows.
//!
//! A small frame is taken from the socket together with its header and copied; of a large
//! one everything behind the first bytes is read into place. Either happens inside the
//! gates of the frame's grant `[G01, G02]`.

use super::frame::{self, ACK_LEN, Ack, ENTRY_LEN, HEADER_LEN, Header, MAX_ENTRIES, Verdict};
use super::listen::Connection;
use super::memory::Landing;
use super::net::{self, Gather, Piece};
use super::plane::Shared;
use kvbaton_actors::transport::Rejection;
use kvbaton_core::region::MemoryRange;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Bytes that one read into memory takes at most: bounds how long gates are held.
pub(super) const READ_BYTES: usize = 1 << 20;
/// What is taken from the socket while a header is expected.
const STAGE_BYTES: usize = 16 << 10;
/// Batches of one connection that have begun and not ended `[Z01]`.
const MAX_BATCHES: usize = 8192;
/// How long a peer may leave its acknowledgements unread.
const ACK_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves one connection until it ends. An error says what the peer did wrong.
pub(super) fn serve(connection: &Connection, shared: &Shared) -> Result<(), String> {
    let mut receiver = Receiver {
        connection,
        shared,
        stage: vec![0; STAGE_BYTES.max(HEADER_LEN + MAX_ENTRIES * ENTRY_LEN)],
        begin: 0,
        end: 0,
        entries: Vec::new(),
        pieces: Vec::new(),
        gather: Gather::new(shared.config.iovecs_per_call, READ_BYTES),
        batches: BTreeMap::new(),
        active: Instant::now(),
    };
    match receiver.run() {
        Ok(()) | Err(Ended::Gone) => Ok(()),
        Err(Ended::Fault(what)) => Err(what.into()),
    }
}

/// Why a connection ended.
enum Ended {
    /// The peer closed it, or the network did.
    Gone,
    /// The peer broke the protocol.
    Fault(&'static str),
}

impl From<&'static str> for Ended {
    fn from(what: &'static str) -> Self {
        Self::Fault(what)
    }
}

/// A batch under way.
#[derive(Default)]
struct Batch {
    landed: u64,
    refused: Option<Rejection>,
}

struct Receiver<'a> {
    connection: &'a Connection,
    shared: &'a Shared,
    stage: Vec<u8>,
    begin: usize,
    end: usize,
    entries: Vec<MemoryRange>,
    pieces: Vec<Piece>,
    gather: Gather,
    batches: BTreeMap<u64, Batch>,
    active: Instant,
}

impl Receiver<'_> {
    fn run(&mut self) -> Result<(), Ended> {
        loop {
            let header = self.next_header()?;
            self.take_frame(&header)?;
            self.connection.touch();
        }
    }

    fn staged(&self) -> usize {
        self.end - self.begin
    }

    /// Stages at least `len` bytes.
    fn stage(&mut self, len: usize) -> Result<(), Ended> {
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
        }
        if self.begin + len > self.stage.len() {
            self.stage.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        while self.staged() < len {
            let most = self.stage.len().min(self.begin + len.max(STAGE_BYTES));
            match net::receive(self.connection.fd(), &mut self.stage[self.end..most]) {
                Ok(0) => return Err(Ended::Gone),
                Ok(got) => {
                    self.end += got;
                    self.active = Instant::now();
                }
                Err(error) if net::is_retry(&error) => self.wait()?,
                Err(_) => return Err(Ended::Gone),
            }
        }
        Ok(())
    }

    /// Waits for more; after recent activity it looks again a while before it sleeps.
    fn wait(&mut self) -> Result<(), Ended> {
        let fds = [(self.connection.fd(), net::READABLE)];
        while self.active.elapsed() < self.shared.config.spin {
            if net::wait(&fds, Some(Duration::ZERO)).unwrap_or(true) {
                return Ok(());
            }
            net::yield_now();
        }
        net::wait(&fds, None).map(drop).map_err(|_| Ended::Gone)
    }

    fn next_header(&mut self) -> Result<Header, Ended> {
        self.stage(HEADER_LEN)?;
        let bytes = self.stage[self.begin..][..HEADER_LEN].try_into().expect("one header");
        let header = Header::decode(bytes)?;
        let table = header.entries * ENTRY_LEN;
        self.stage(HEADER_LEN + table)?;
        let bytes = &self.stage[self.begin + HEADER_LEN..][..table];
        frame::decode_table(bytes, header.payload, &mut self.entries)?;
        self.begin += HEADER_LEN + table;
        Ok(header)
    }

    fn take_frame(&mut self, header: &Header) -> Result<(), Ended> {
        let mut batch = self.batches.remove(&header.batch).unwrap_or_default();
        let first_refusal = batch.refused.is_none();
        let mut left = header.payload;
        if batch.refused.is_none() && !header.abort {
            let admitted = self.shared.memory.admit(header.generation, header.grant, &self.entries);
            let landed = admitted.map(|landing| self.land(&landing, &mut left));
            match landed {
                Ok(Ok(())) => {}
                Ok(Err(Stopped::Ended(ended))) => return Err(ended),
                Ok(Err(Stopped::Refused(rejection))) | Err(rejection) => {
                    batch.refused = Some(rejection);
                }
            }
            batch.landed += header.payload - left;
        }
        if let Some(rejection) = batch.refused.filter(|_| first_refusal) {
            self.shared.counters.refused(rejection);
            if !header.last {
                self.answer(header, &batch, false)?;
            }
        }
        self.drain(left)?;
        if header.last {
            return self.answer(header, &batch, true);
        }
        if self.batches.len() >= MAX_BATCHES {
            return Err("too many batches at a time on one connection".into());
        }
        self.batches.insert(header.batch, batch);
        Ok(())
    }

    fn answer(&mut self, header: &Header, batch: &Batch, last: bool) -> Result<(), Ended> {
        let verdict = match batch.refused {
            Some(rejection) => Verdict::Refused(rejection),
            None if header.abort => Verdict::Aborted,
            None => Verdict::Applied,
        };
        let ack = Ack { last, verdict, batch: header.batch, landed: batch.landed };
        let bytes: [u8; ACK_LEN] = ack.encode();
        let deadline = Instant::now() + ACK_TIMEOUT;
        net::send_all(self.connection.fd(), &bytes, deadline).map_err(|_| Ended::Gone)
    }

    /// Lands the frame's payload; `left` is what is still to come when it stops early.
    fn land(&mut self, landing: &Landing, left: &mut u64) -> Result<(), Stopped> {
        self.pieces.clear();
        self.pieces.extend(self.entries.iter().map(|entry| Piece {
            // Admitted entries lie in registered memory, so they are addressable.
            address: entry.start.0 as usize,
            len: entry.len.0 as usize,
        }));
        let (mut next, mut skip) = (0, 0);
        while *left > 0 {
            let landed = if self.staged() > 0 {
                self.land_staged(landing, next, skip)?
            } else {
                self.gather.fill(&self.pieces[next..], skip);
                self.read_into_place(landing)?
            };
            *left -= landed as u64;
            self.shared.counters.bytes_received.fetch_add(landed as u64, Relaxed);
            (next, skip) = net::advance(&self.pieces, next, skip, landed);
        }
        Ok(())
    }

    /// Copies what was staged behind the header.
    fn land_staged(
        &mut self,
        landing: &Landing,
        mut next: usize,
        mut skip: usize,
    ) -> Result<usize, Stopped> {
        let entered = landing.enter().map_err(Stopped::Refused)?;
        let mut landed = 0;
        while self.begin < self.end && next < self.pieces.len() {
            let piece = self.pieces[next];
            let len = (piece.len - skip).min(self.end - self.begin);
            let from = &self.stage[self.begin..][..len];
            // SAFETY: admitted pieces lie in granted rows of registered memory, and while
            // `entered` lives neither ends. The stage is ours, so the two are disjoint.
            unsafe { net::copy_out(from, Piece { address: piece.address + skip, len }) };
            landed += len;
            self.begin += len;
            (next, skip) = net::advance(&self.pieces, next, skip, len);
        }
        entered.landed(landed as u64);
        Ok(landed)
    }

    /// One non-blocking read, after as much waiting as it takes.
    fn read_into_place(&mut self, landing: &Landing) -> Result<usize, Stopped> {
        loop {
            let entered = landing.enter().map_err(Stopped::Refused)?;
            // SAFETY: admitted pieces lie in granted rows of registered memory, and while
            // `entered` lives neither ends.
            let read = unsafe { net::receive_pieces(self.connection.fd(), &mut self.gather) };
            match read {
                Ok(0) => return Err(Stopped::Ended(Ended::Gone)),
                Ok(got) => {
                    entered.landed(got as u64);
                    self.active = Instant::now();
                    return Ok(got);
                }
                Err(error) if net::is_retry(&error) => {
                    drop(entered);
                    self.wait().map_err(Stopped::Ended)?;
                }
                Err(_) => return Err(Stopped::Ended(Ended::Gone)),
            }
        }
    }

    /// Drops the payload of a refused frame, so that other batches can go on.
    fn drain(&mut self, mut left: u64) -> Result<(), Ended> {
        let staged = left.min(self.staged() as u64);
        self.begin += staged as usize;
        left -= staged;
        while left > 0 {
            match net::discard(self.connection.fd(), left.min(READ_BYTES as u64) as usize) {
                Ok(0) => return Err(Ended::Gone),
                Ok(got) => left -= got as u64,
                Err(error) if net::is_retry(&error) => self.wait()?,
                Err(_) => return Err(Ended::Gone),
            }
        }
        Ok(())
    }
}

/// Why landing a frame stopped early.
enum Stopped {
    Refused(Rejection),
    Ended(Ended),
}
