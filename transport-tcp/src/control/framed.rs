//! Reading and writing ZMTP frames, bounded: memory grows with bytes that arrived, never
//! with a length that was claimed `[Z01]`.

use super::config::ControlLimits;
use super::zmtp::{self, Command, GREETING_LEN, Header, Malformed};
use crate::key::{Signer, TAG_LEN, Verifier};
use bytes::{Buf, Bytes, BytesMut};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Room made for one read.
const READ_CHUNK: usize = 16 << 10;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("it closed the connection")]
    Closed,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Malformed(#[from] Malformed),
    #[error("a frame of {len} bytes (the bound is {max}, `max_frame`)")]
    Oversized { len: u64, max: usize },
    #[error("it did not finish a frame within {0:?}")]
    TimedOut(Duration),
    #[error("{0}")]
    NotAuthentic(&'static str),
    #[error("it does not read its answers")]
    NotReading,
    /// The peer's own words.
    #[error("it refused us: {0}")]
    Refused(String),
}

/// What a peer sent.
#[derive(Debug)]
pub(super) enum Incoming {
    /// A whole message, its proof checked.
    Message(Bytes),
    /// A message of a wrong number of parts, skipped.
    Misshapen,
    /// A command after the handshake.
    Command(Command),
}

/// Told how many bytes of an unfinished frame are held; 0 once it is whole.
pub(super) type Gauge = Box<dyn Fn(usize)>;

/// Reads frames.
pub(super) struct FrameReader<R> {
    io: R,
    buffer: BytesMut,
    max_frame: usize,
    frame_timeout: Duration,
    gauge: Option<Gauge>,
    verifier: Option<Verifier>,
}

struct Frame {
    header: Header,
    body: Bytes,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(io: R, limits: &ControlLimits) -> Self {
        Self {
            io,
            buffer: BytesMut::new(),
            max_frame: limits.max_frame,
            frame_timeout: limits.frame_timeout,
            gauge: None,
            verifier: None,
        }
    }

    /// From now on each message must carry proof.
    pub(super) fn expect_proof(&mut self, verifier: Verifier) {
        self.verifier = Some(verifier);
    }

    pub(super) fn watch(&mut self, gauge: Gauge) {
        self.gauge = Some(gauge);
    }

    /// Reads and checks the peer's greeting; foreign bytes fail at the first that is wrong.
    pub(super) async fn greeting(&mut self) -> Result<(), Fault> {
        while self.buffer.len() < GREETING_LEN {
            if !zmtp::may_be_greeting(&self.buffer) {
                return Err(Malformed::NotZmtp.into());
            }
            self.read(GREETING_LEN).await?;
        }
        let mut greeting = [0; GREETING_LEN];
        self.buffer.copy_to_slice(&mut greeting);
        Ok(zmtp::check_greeting(&greeting)?)
    }

    /// Reads the READY, or the ERROR that comes in its place.
    pub(super) async fn ready(&mut self) -> Result<zmtp::Ready, Fault> {
        let frame = self.frame().await?;
        if !frame.header.command {
            return Err(Malformed::NotReady.into());
        }
        match zmtp::parse_command(&frame.body)? {
            Command::Ready(ready) => Ok(ready),
            Command::Error(reason) => Err(Fault::Refused(reason)),
            Command::Ping(_) | Command::Other => Err(Malformed::NotReady.into()),
        }
    }

    /// The next message or command.
    pub(super) async fn next(&mut self) -> Result<Incoming, Fault> {
        let first = self.frame().await?;
        if first.header.command {
            return Ok(Incoming::Command(zmtp::parse_command(&first.body)?));
        }
        if self.verifier.is_some() {
            return self.proven(first).await;
        }
        if !first.header.more {
            return Ok(Incoming::Message(first.body));
        }
        drop(first);
        self.skip_rest().await?;
        Ok(Incoming::Misshapen)
    }

    /// Reads the payload that belongs to a tag, and checks it.
    async fn proven(&mut self, tag: Frame) -> Result<Incoming, Fault> {
        if !tag.header.more || tag.body.len() != TAG_LEN {
            return Err(Fault::NotAuthentic("a message came without proof"));
        }
        let payload = self.frame().await?;
        if payload.header.command || payload.header.more {
            return Err(Malformed::Parts.into());
        }
        let genuine = self.verifier.as_mut().is_some_and(|v| v.verify(&payload.body, &tag.body));
        if !genuine {
            return Err(Fault::NotAuthentic("the keys differ, or the message was tampered with"));
        }
        Ok(Incoming::Message(payload.body))
    }

    /// Reads past a message's remaining parts, one at a time.
    async fn skip_rest(&mut self) -> Result<(), Fault> {
        loop {
            let part = self.frame().await?;
            if part.header.command {
                return Err(Malformed::Flags.into());
            }
            if !part.header.more {
                return Ok(());
            }
        }
    }

    async fn frame(&mut self) -> Result<Frame, Fault> {
        // Silence between frames is fine; within a frame it is bounded.
        if self.buffer.is_empty() {
            self.read(1).await?;
        }
        let bound = self.frame_timeout;
        let frame = tokio::time::timeout(bound, self.started_frame()).await;
        if let Some(gauge) = &self.gauge {
            gauge(0);
        }
        frame.map_err(|_| Fault::TimedOut(bound))?
    }

    async fn started_frame(&mut self) -> Result<Frame, Fault> {
        let header = loop {
            if let Some(header) = zmtp::parse_header(&self.buffer)? {
                break header;
            }
            self.read(zmtp::MAX_HEADER).await?;
        };
        let max = if header.command { zmtp::MAX_COMMAND } else { self.max_frame };
        let fits = usize::try_from(header.len).ok().filter(|&len| len <= max);
        let len = fits.ok_or(Fault::Oversized { len: header.len, max })?;
        self.buffer.advance(header.size);
        while self.buffer.len() < len {
            self.read(len).await?;
        }
        Ok(Frame { header, body: self.buffer.split_to(len).freeze() })
    }

    /// Reads once. `wanted` is what the buffer should hold in the end; room at most
    /// doubles per read, so it follows what arrived.
    async fn read(&mut self, wanted: usize) -> Result<(), Fault> {
        let missing = wanted.saturating_sub(self.buffer.len());
        self.buffer.reserve(missing.min(self.buffer.len()).max(READ_CHUNK));
        if self.io.read_buf(&mut self.buffer).await? == 0 {
            return Err(Fault::Closed);
        }
        if let Some(gauge) = &self.gauge {
            gauge(self.buffer.len());
        }
        Ok(())
    }

    /// Reads and drops what still comes, up to the peer's close: closing a socket with
    /// unread bytes would reset it, and the peer might lose our last words.
    pub(super) async fn drain(&mut self) {
        let mut budget = self.max_frame;
        self.buffer.clear();
        while budget > 0 && self.read(1).await.is_ok() {
            budget = budget.saturating_sub(self.buffer.len());
            self.buffer.clear();
        }
    }
}

/// Writes frames.
pub(super) struct FrameWriter<W> {
    io: W,
    signer: Option<Signer>,
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    pub(super) const fn new(io: W) -> Self {
        Self { io, signer: None }
    }

    /// From now on each message carries proof.
    pub(super) fn sign_with(&mut self, signer: Signer) {
        self.signer = Some(signer);
    }

    /// Writes bytes as they are: greetings and commands.
    pub(super) async fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.io.write_all(bytes).await
    }

    /// Writes one message in as few packets as it needs.
    pub(super) async fn message(&mut self, payload: Bytes) -> io::Result<()> {
        let mut head = Vec::with_capacity(2 * zmtp::MAX_HEADER + TAG_LEN);
        if let Some(signer) = &mut self.signer {
            zmtp::put_header(&mut head, TAG_LEN, true, false);
            head.extend(signer.sign(&payload));
        }
        zmtp::put_header(&mut head, payload.len(), false, false);
        self.io.write_all_buf(&mut Bytes::from(head).chain(payload)).await
    }

    pub(super) async fn shutdown(&mut self) {
        // The peer may be gone already; there is nobody to tell.
        let _ = self.io.shutdown().await;
    }
}
