//! The side channel: frames over a TCP connection that does not block.

use crate::wire::MAX_FRAME;
use kvbaton_transport_tcp::data::net;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// Bytes received that are not whole frames yet.
#[derive(Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    taken: usize,
}

/// Why no more frames come.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The peer closed, or the connection broke.
    Broken(String),
    /// The peer sent what is no frame.
    Foreign(&'static str),
}

impl Frames {
    /// Receives what is there; true if there was anything.
    pub(crate) fn fill(&mut self, socket: RawFd) -> Result<bool, Ended> {
        const STEP: usize = 64 << 10;
        self.bytes.drain(..self.taken);
        self.taken = 0;
        let before = self.bytes.len();
        if before > MAX_FRAME + 4 {
            // Whole frames wait to be taken first.
            return Ok(false);
        }
        self.bytes.resize(before + STEP, 0);
        let got = net::receive(socket, &mut self.bytes[before..]);
        self.bytes.truncate(before + *got.as_ref().unwrap_or(&0));
        match got {
            Ok(0) => Err(Ended::Broken("it closed the side channel".into())),
            Ok(_) => Ok(true),
            Err(error) if net::is_retry(&error) => Ok(false),
            Err(error) => Err(Ended::Broken(error.to_string())),
        }
    }

    /// The next whole frame, without its length.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, Ended> {
        let rest = &self.bytes[self.taken..];
        let Some((len, body)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_le_bytes(*len) as usize;
        if len == 0 || len > MAX_FRAME {
            return Err(Ended::Foreign("a frame of a length out of bounds"));
        }
        let Some(frame) = body.get(..len) else { return Ok(None) };
        self.taken += 4 + len;
        Ok(Some(frame))
    }
}

/// Bytes that are to be sent.
#[derive(Default)]
pub(crate) struct Outgoing {
    pub(crate) bytes: Vec<u8>,
    sent: usize,
}

impl Outgoing {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Sends what the connection takes now.
    pub(crate) fn flush(&mut self, socket: RawFd) -> Result<(), Ended> {
        while self.sent < self.bytes.len() {
            match net::send(socket, &self.bytes[self.sent..]) {
                Ok(more) => self.sent += more,
                Err(error) if net::is_retry(&error) => return Ok(()),
                Err(error) => return Err(Ended::Broken(error.to_string())),
            }
        }
        self.bytes.clear();
        self.sent = 0;
        Ok(())
    }
}

/// Waits until a descriptor is readable (or writable, where asked), or the time is over.
pub(crate) fn wait(
    readable: impl IntoIterator<Item = RawFd>,
    writable: Option<RawFd>,
    timeout: Duration,
) -> io::Result<()> {
    let entry = |fd, events| libc::pollfd { fd, events, revents: 0 };
    let mut polled: smallvec::SmallVec<[libc::pollfd; 20]> =
        readable.into_iter().map(|fd| entry(fd, libc::POLLIN)).collect();
    polled.extend(writable.map(|fd| entry(fd, libc::POLLOUT)));
    let timeout = libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: live entries of that number, a live timeout, no signal mask.
    let ready = unsafe {
        let count = polled.len() as libc::nfds_t;
        libc::ppoll(polled.as_mut_ptr(), count, &raw const timeout, std::ptr::null())
    };
    if ready < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(())
}
